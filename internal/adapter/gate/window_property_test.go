// SPDX-License-Identifier: MPL-2.0

package gate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
)

// choice is one field of a cron that was made up: some values, or all of them.
type choice struct {
	values []int
	all    bool
}

func (c choice) has(value int) bool { return c.all || slices.Contains(c.values, value) }

func (c choice) String() string {
	if c.all {
		return "*"
	}

	return strings.ReplaceAll(strings.Trim(fmt.Sprint(c.values), "[]"), " ", ",")
}

func drawChoice(t *rapid.T, name string, least, most int) choice {
	if rapid.Bool().Draw(t, name+" all") {
		return choice{all: true}
	}

	return choice{values: rapid.SliceOfNDistinct(rapid.IntRange(least, most), 1, 4, rapid.ID).Draw(t, name)}
}

// made is a cron that was made up.
type made struct{ minute, hour, day, month, weekday choice }

func (m made) String() string {
	return fmt.Sprintf("%s %s %s %s %s", m.minute, m.hour, m.day, m.month, m.weekday)
}

func (m made) starts(at time.Time) bool {
	days := m.day.has(at.Day()) && m.weekday.has(int(at.Weekday()))
	if !m.day.all && !m.weekday.all {
		days = m.day.has(at.Day()) || m.weekday.has(int(at.Weekday()))
	}

	return days && m.minute.has(at.Minute()) && m.hour.has(at.Hour()) && m.month.has(int(at.Month()))
}

// TestWindowIsOpenWhereAStartIsInRange compares a window with what walking
// through all minutes gives, in zones whose clocks move in many ways.
func TestWindowIsOpenWhereAStartIsInRange(t *testing.T) {
	const ahead = 45 * 24 * time.Hour

	// Clocks move on or soon after these days, somewhere.
	days := []string{"2021-10-26", "2025-03-28", "2025-04-04", "2025-04-24", "2025-09-05", "2025-10-04", "2025-10-25", "2025-10-30", "2025-11-01", "2027-12-30", "2028-02-27"}
	zones := []string{"", "Europe/Oslo", "America/Havana", "America/Santiago", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Amman", "Asia/Beirut", "Asia/Kathmandu", "Pacific/Apia"}

	rapid.Check(t, func(t *rapid.T) {
		cron := made{
			minute: drawChoice(t, "minute", 0, 59), hour: drawChoice(t, "hour", 0, 23), day: drawChoice(t, "day", 1, 28),
			month: drawChoice(t, "month", 1, 12), weekday: drawChoice(t, "weekday", 0, 6),
		}
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		duration := time.Duration(rapid.IntRange(1, 26*60).Draw(t, "minutes open")) * time.Minute
		day, _ := time.Parse(time.DateOnly, rapid.SampledFrom(days).Draw(t, "day asked"))
		at := day.Add(time.Duration(rapid.IntRange(0, 5*24*3600).Draw(t, "seconds")) * time.Second)

		w, err := gate.NewWindow(gate.WindowSpec{Cron: cron.String(), Duration: duration, TimeZone: name})
		if err != nil {
			t.Fatalf("NewWindow(%s): %v", cron, err)
		}

		zone, _ := time.LoadLocation(name)
		want, wanted := walk(cron, zone, duration, at, at.Add(ahead))

		switch open, until := w.Open(at); {
		case open != want:
			t.Fatalf("Open(%s) = %v, want %v", at.In(zone), open, want)
		case !wanted.IsZero() && !until.Equal(wanted):
			t.Fatalf("Open(%s) = %v until %s, want until %s", at.In(zone), open, until, wanted.In(zone))
		case wanted.IsZero() && !until.IsZero() && until.Before(at.Add(ahead)):
			t.Fatalf("Open(%s) = %v until %s, and it stays so until %s", at.In(zone), open, until, at.Add(ahead).In(zone))
		}
	})
}

// walk goes through all minutes and tells whether one of them opened the window
// at the time, and when that changes; zero where it does not before the end.
func walk(cron made, zone *time.Location, duration time.Duration, at, end time.Time) (open bool, until time.Time) {
	var latest time.Time

	minute := at.Add(-duration).Truncate(time.Minute)
	for ; !minute.After(at); minute = minute.Add(time.Minute) {
		if cron.starts(minute.In(zone)) {
			latest = minute
		}
	}

	isOpen := func(now time.Time) bool { return !latest.IsZero() && now.Before(latest.Add(duration)) }

	open = isOpen(at)

	for ; minute.Before(end); minute = minute.Add(time.Minute) {
		if cron.starts(minute.In(zone)) {
			latest = minute
		}

		if isOpen(minute) != open {
			return open, minute
		}
	}

	return open, time.Time{}
}
