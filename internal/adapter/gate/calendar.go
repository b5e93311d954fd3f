// SPDX-License-Identifier: MPL-2.0

package gate

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// calendar is when a cron starts: in each minute in which a clock in its time zone shows what the cron says. So a
// time that clocks skip does not start anything that day, and a time that they show twice starts twice.
//
// Only the parser is that of the library: its own search steps by hours, and misses starts if clocks change by half
// an hour or at midnight.
type calendar struct {
	fields *cron.SpecSchedule
	zone   *time.Location
}

// reach is how far ahead a start is searched. February 29 comes every four years, but not in 2100.
const reach = (8*365 + 10) * 24 * time.Hour

// newCalendar parses a cron. Its error is an [*Error].
func newCalendar(text string, zone *time.Location) (*calendar, error) {
	const remedy = "Set cron to minute, hour, day of the month, month and day of the week, such as \"0 22 * * 1-5\" for each working day at 22:00; Sunday is 0."

	trimmed := strings.TrimSpace(text)

	switch {
	case trimmed == "":
		return nil, &Error{Field: "cron", Found: "cron is missing", Remedy: remedy}
	case strings.HasPrefix(trimmed, "TZ="), strings.HasPrefix(trimmed, "CRON_TZ="):
		return nil, &Error{
			Field: "cron", Found: fmt.Sprintf("cron is %q, and may not set a time zone", text),
			Remedy: "Remove the time zone from cron, and set time_zone.",
		}
	case strings.HasPrefix(trimmed, "@"):
		return nil, &Error{Field: "cron", Found: fmt.Sprintf("cron is %q, which are not five fields", text), Remedy: remedy}
	}

	schedule, err := cron.ParseStandard(trimmed)
	if err != nil {
		return nil, &Error{Field: "cron", Found: fmt.Sprintf("cron is %q, which is not a cron expression: %s", text, err), Remedy: remedy}
	}

	fields, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return nil, &Error{Field: "cron", Found: fmt.Sprintf("cron is %q, which are not five fields", text), Remedy: remedy}
	}

	// Any eight years have a February 29, except those around 2100. The zone does not matter.
	if _, ever := (&calendar{fields: fields, zone: time.UTC}).next(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)); !ever {
		return nil, &Error{Field: "cron", Found: fmt.Sprintf("cron is %q, which never comes", text), Remedy: "Set cron to days that there are. " + remedy}
	}

	return &calendar{fields: fields, zone: zone}, nil
}

// latest returns the latest start up to at that is later than after; false if there is none.
func (c *calendar) latest(at, after time.Time) (time.Time, bool) {
	for minute := at.Truncate(time.Minute); minute.After(after); minute = minute.Add(-time.Minute) {
		if local := minute.In(c.zone); c.hasDay(local) && c.hasMinute(local) {
			return local, true
		}
	}

	return time.Time{}, false
}

// next returns the first start after the time; false if there is none within [reach].
func (c *calendar) next(at time.Time) (time.Time, bool) {
	end := at.Add(reach)

	for minute := at.Truncate(time.Minute).Add(time.Minute); minute.Before(end); {
		local := minute.In(c.zone)

		switch {
		case !has(c.fields.Month, int(local.Month())):
			minute = skip(minute, time.Date(local.Year(), local.Month()+1, 1, 0, 0, 0, 0, c.zone))
		case !c.hasDay(local):
			minute = skip(minute, time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, c.zone))
		case c.hasMinute(local):
			return local, true
		default:
			minute = minute.Add(time.Minute)
		}
	}

	return time.Time{}, false
}

// skip goes from a minute towards a midnight, but stops short of it and continues minute by minute: some midnights
// come twice, and some never.
func skip(minute, midnight time.Time) time.Time {
	const margin = 3 * time.Hour

	next := minute.Add(time.Minute)
	if early := midnight.Add(-margin); early.After(next) {
		return early
	}

	return next
}

// hasDay reports whether the cron includes the day, by the rule of all crons: if both the day of the month and the
// day of the week are restricted, either is enough.
func (c *calendar) hasDay(local time.Time) bool {
	// The library marks a field that is a star with the top bit.
	const star = 1 << 63

	if !has(c.fields.Month, int(local.Month())) {
		return false
	}

	month, week := has(c.fields.Dom, local.Day()), has(c.fields.Dow, int(local.Weekday()))
	if (c.fields.Dom|c.fields.Dow)&star != 0 {
		return month && week
	}

	return month || week
}

func (c *calendar) hasMinute(local time.Time) bool {
	return has(c.fields.Hour, local.Hour()) && has(c.fields.Minute, local.Minute())
}

// has reports whether a field of the cron includes the value.
func has(field uint64, value int) bool { return field&(1<<value) != 0 }
