// SPDX-License-Identifier: MPL-2.0

package gate

import (
	"fmt"
	"strings"
	"sync"
	"time"

	// Runners without a time zone database are common: containers have none, nor
	// has Windows.
	_ "time/tzdata"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// WindowSpec is a maintenance window as the configuration says it.
type WindowSpec struct {
	// Cron is when it opens, in five fields, in the time zone: minute, hour, day of
	// the month, month and day of the week. Where both days are restricted, either
	// is enough.
	Cron string
	// Duration is how long it stays open each time, at most [MaxWindow]. Windows
	// that overlap are one.
	Duration time.Duration
	// TimeZone is an IANA name; empty is UTC.
	TimeZone string
}

// MaxWindow is how long a maintenance window may stay open each time.
const MaxWindow = 7 * 24 * time.Hour

// horizon is how far ahead an end is looked for before a window counts as always
// open. What a cron leaves out it leaves out once a year at the latest, and so
// do changes of the clock.
const horizon = 2 * 366 * 24 * time.Hour

var _ cluster.Window = (*window)(nil)

// window is a maintenance window: the union of the spans that begin at the
// starts of the cron.
type window struct {
	text     string
	starts   *calendar
	duration time.Duration

	// last is the latest answer, which stays right until its end: to find it may
	// take a walk through the calendar, and a roll asks often.
	mutex sync.Mutex
	last  answer
}

// answer is that the window is open, or not, from one time until another; until
// is zero for ever.
type answer struct {
	from, until time.Time
	open        bool
}

// covers tells whether the answer is right at the time. One for ever is not
// believed longer than half of what was looked at.
func (a answer) covers(at time.Time) bool {
	if a.from.IsZero() || at.Before(a.from) {
		return false
	}

	if a.until.IsZero() {
		return at.Before(a.from.Add(horizon / 2))
	}

	return at.Before(a.until)
}

// NewWindow reads a window. Its error is an [*Error].
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
			Field: "duration", Found: fmt.Sprintf("duration is %s, and has to be positive and at most %s", short(spec.Duration), short(MaxWindow)),
			Remedy: "Set duration to how long the window stays open each time, such as \"4h\".",
		}
	}

	text := fmt.Sprintf("%s for %s, %s", strings.Join(strings.Fields(spec.Cron), " "), short(spec.Duration), zone)

	return &window{text: text, starts: starts, duration: spec.Duration}, nil
}

// location is the time zone of the name.
func location(name string) (*time.Location, error) {
	problem := &Error{
		Field: "time_zone", Found: fmt.Sprintf("there is no time zone %q", name),
		Remedy: "Set time_zone to an IANA name such as \"Europe/Oslo\", or leave it out for UTC.",
	}

	// Go takes "Local" for the zone of the machine, and the database of many a
	// machine has it as "localtime": another runner would have another window.
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

// String is how people recognise the window: "0 22 * * 1-5 for 4h, Europe/Oslo".
func (w *window) String() string { return w.text }

// Open implements [cluster.Window]: the window is open where a start lies at most
// its duration back. The end does not belong to it. Times are in its time zone.
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

	// The latest start that the span reaches takes it further.
	for end := start.Add(w.duration); end.Sub(at) < horizon; end = start.Add(w.duration) {
		later, found := w.starts.latest(end, start)
		if !found {
			return answer{from: at, until: end, open: true}
		}

		start = later
	}

	return answer{from: at, open: true}
}

// short is a duration without the zeros: 4h, not 4h0m0s.
func short(d time.Duration) string {
	text := d.String()

	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}
