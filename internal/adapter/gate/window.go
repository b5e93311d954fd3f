// SPDX-License-Identifier: MPL-2.0

package gate

import (
	"fmt"
	"strings"
	"sync"
	"time"

	// Runners without a time zone database are common: containers and Windows have none.
	_ "time/tzdata"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// WindowSpec is a maintenance window as it is configured.
type WindowSpec struct {
	// Cron is when the window opens, in five fields, in the time zone: minute, hour, day of the month, month and
	// day of the week. If both days are restricted, either is enough.
	Cron string
	// Duration is how long the window stays open each time, at most [MaxWindow]. Windows that overlap are merged.
	Duration time.Duration
	// TimeZone is an IANA name; empty is UTC.
	TimeZone string
}

// MaxWindow is how long a maintenance window may stay open each time.
const MaxWindow = 7 * 24 * time.Hour

// horizon is how far ahead the end of a window is searched before it counts as always open. What a cron leaves out,
// it leaves out at least once a year, and clocks change at least once a year, too.
const horizon = 2 * 366 * 24 * time.Hour

var _ cluster.Window = (*window)(nil)

// window is a maintenance window: the union of the spans that begin at the
// starts of the cron.
type window struct {
	text     string
	starts   *calendar
	duration time.Duration

	// last is the latest answer, which is valid until its end. It is kept because finding it may take a long walk
	// through the calendar, and a roll asks often.
	mutex sync.Mutex
	last  answer
}

// answer says whether the window is open between two times; until is zero if it does not change.
type answer struct {
	from, until time.Time
	open        bool
}

// covers reports whether the answer is valid at the time. An answer without an end is used for half of the horizon
// only.
func (a answer) covers(at time.Time) bool {
	if a.from.IsZero() || at.Before(a.from) {
		return false
	}

	if a.until.IsZero() {
		return at.Before(a.from.Add(horizon / 2))
	}

	return at.Before(a.until)
}

// NewWindow returns a window. Its error is an [*Error].
func NewWindow(spec WindowSpec) (cluster.Window, error) {
	zone, err := location(spec.TimeZone)
	if err != nil {
		return nil, err
	}

	starts, err := newCalendar(spec.Cron, zone)
	if err != nil {
		return nil, err
	}

	if spec.Duration <= 0 || spec.Duration > MaxWindow {
		return nil, &Error{
			Field: "duration", Found: fmt.Sprintf("duration is %s, and has to be positive and at most %s", readable.Duration(spec.Duration), readable.Duration(MaxWindow)),
			Remedy: "Set duration to how long the window stays open each time, such as \"4h\".",
		}
	}

	text := fmt.Sprintf("%s for %s, %s", strings.Join(strings.Fields(spec.Cron), " "), readable.Duration(spec.Duration), zone)

	return &window{text: text, starts: starts, duration: spec.Duration}, nil
}

// location returns the time zone of the name.
func location(name string) (*time.Location, error) {
	problem := &Error{
		Field: "time_zone", Found: fmt.Sprintf("there is no time zone %q", name),
		Remedy: "Set time_zone to an IANA name such as \"Europe/Oslo\", or leave it out for UTC.",
	}

	// Go takes "Local" for the zone of the machine, and the database of many machines has it as "localtime": the
	// window would be another one on another runner.
	if strings.EqualFold(name, "Local") || strings.EqualFold(name, "localtime") {
		problem.Found = fmt.Sprintf("time_zone is %q, which is another one on another machine", name)

		return nil, problem
	}

	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, problem
	}

	return zone, nil
}

// String returns how messages name the window: "0 22 * * 1-5 for 4h, Europe/Oslo".
func (w *window) String() string { return w.text }

// Open implements [cluster.Window]: the window is open if it started no longer than its duration ago. The end is
// not part of it. Times are in its time zone.
func (w *window) Open(at time.Time) (open bool, until time.Time) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	if !w.last.covers(at) {
		w.last = w.find(at)
	}

	return w.last.open, w.last.until
}

func (w *window) find(at time.Time) answer {
	start, open := w.starts.latest(at, at.Add(-w.duration))
	if !open {
		next, _ := w.starts.next(at)

		return answer{from: at, until: next}
	}

	// If there is a later start before the end, the window stays open longer.
	for end := start.Add(w.duration); end.Sub(at) < horizon; end = start.Add(w.duration) {
		later, found := w.starts.latest(end, start)
		if !found {
			return answer{from: at, until: end, open: true}
		}

		start = later
	}

	return answer{from: at, open: true}
}
