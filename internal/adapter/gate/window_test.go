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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func newWindow(t *testing.T, cron string, duration time.Duration, zone string) cluster.Window {
	t.Helper()

	w, err := gate.NewWindow(gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: zone})
	if err != nil {
		t.Fatalf("NewWindow(%q, %s, %q): %v", cron, duration, zone, err)
	}

	return w
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()

	if text == "" {
		return time.Time{}
	}

	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}

	return at
}

func TestWindow_IsOpen(t *testing.T) {
	for name, given := range map[string]struct {
		cron     string
		duration time.Duration
		zone, at string
		open     bool
		until    string
	}{
		"before it opens":        {"0 22 * * 1-5", 4 * time.Hour, "Europe/Oslo", "2025-06-11T21:59:59+02:00", false, "2025-06-11T22:00:00+02:00"},
		"in the moment it opens": {"0 22 * * 1-5", 4 * time.Hour, "Europe/Oslo", "2025-06-11T22:00:00+02:00", true, "2025-06-12T02:00:00+02:00"},
		"after midnight":         {"0 22 * * 1-5", 4 * time.Hour, "Europe/Oslo", "2025-06-12T01:59:59+02:00", true, "2025-06-12T02:00:00+02:00"},
		"in the moment it closes": {
			"0 22 * * 1-5", 4 * time.Hour, "Europe/Oslo", "2025-06-12T02:00:00+02:00", false, "2025-06-12T22:00:00+02:00",
		},
		"over the weekend":            {"0 22 * * 1-5", 4 * time.Hour, "Europe/Oslo", "2025-06-14T12:00:00+02:00", false, "2025-06-16T22:00:00+02:00"},
		"asked in another zone":       {"0 22 * * 1-5", 4 * time.Hour, "Europe/Oslo", "2025-06-11T20:00:00Z", true, "2025-06-12T00:00:00Z"},
		"without a zone it is UTC":    {"30 3 * * *", time.Hour, "", "2025-06-11T03:45:00Z", true, "2025-06-11T04:30:00Z"},
		"names of days and months":    {"0 0 * JAN sun", time.Hour, "", "2025-06-11T00:00:00Z", false, "2026-01-04T00:00:00Z"},
		"a day of the month or week":  {"0 0 13 * 5", time.Hour, "", "2025-06-11T00:00:00Z", false, "2025-06-13T00:00:00Z"},
		"a step is no star":           {"0 0 */10 * 1", time.Hour, "", "2025-06-17T12:00:00Z", false, "2025-06-21T00:00:00Z"},
		"less than a minute":          {"* * * * *", 20 * time.Second, "", "2025-06-11T00:00:19.9Z", true, "2025-06-11T00:00:20Z"},
		"less than a minute, closed":  {"* * * * *", 20 * time.Second, "", "2025-06-11T00:00:20Z", false, "2025-06-11T00:01:00Z"},
		"for a whole week":            {"0 0 1 * *", 7 * 24 * time.Hour, "", "2025-06-07T23:59:00Z", true, "2025-06-08T00:00:00Z"},
		"leap day":                    {"0 12 29 2 *", time.Hour, "", "2025-03-01T00:00:00Z", false, "2028-02-29T12:00:00Z"},
		"leap day around 2100":        {"0 12 29 2 *", time.Hour, "", "2096-03-01T00:00:00Z", false, "2104-02-29T12:00:00Z"},
		"on leap day":                 {"0 12 29 2 *", time.Hour, "", "2028-02-29T12:30:00Z", true, "2028-02-29T13:00:00Z"},
		"windows that touch are one":  {"0 1,2,3 * * *", time.Hour, "", "2025-06-11T01:30:00Z", true, "2025-06-11T04:00:00Z"},
		"windows that overlap":        {"0 1,2 * * *", 90 * time.Minute, "", "2025-06-11T01:10:00Z", true, "2025-06-11T03:30:00Z"},
		"a minute short of touching":  {"0 1,2,3 * * *", 59 * time.Minute, "", "2025-06-11T01:30:00Z", true, "2025-06-11T01:59:00Z"},
		"always":                      {"0 * * * *", 2 * time.Hour, "Europe/Oslo", "2025-06-11T01:10:00Z", true, ""},
		"always, each minute":         {"* * * * *", time.Minute, "Europe/Oslo", "2025-06-11T01:10:00Z", true, ""},
		"each day of 24 hours in UTC": {"0 0 * * *", 24 * time.Hour, "", "2025-06-11T01:10:00Z", true, ""},
		// On a day of 25 hours, one hour is left out.
		"each day of 24 hours in Oslo": {"0 0 * * *", 24 * time.Hour, "Europe/Oslo", "2025-06-11T01:10:00Z", true, "2025-10-26T22:00:00Z"},

		// On March 30, 2025 the clocks of Oslo go from 02:00 to 03:00.
		"spring, a start that is skipped": {"30 2 * * *", time.Hour, "Europe/Oslo", "2025-03-30T03:30:00+02:00", false, "2025-03-31T02:30:00+02:00"},
		"spring, the duration is real":    {"0 1 * * *", 2 * time.Hour, "Europe/Oslo", "2025-03-30T03:30:00+02:00", true, "2025-03-30T04:00:00+02:00"},
		"spring, a gap of three hours":    {"30 */2 * * *", 2 * time.Hour, "Europe/Oslo", "2025-03-29T12:00:00Z", true, "2025-03-30T02:30:00+01:00"},
		// On October 26, 2025 they go from 03:00 to 02:00.
		"autumn, the first of two starts":  {"30 2 * * *", 30 * time.Minute, "Europe/Oslo", "2025-10-26T02:30:00+02:00", true, "2025-10-26T03:00:00+02:00"},
		"autumn, between them":             {"30 2 * * *", 30 * time.Minute, "Europe/Oslo", "2025-10-26T02:00:00+01:00", false, "2025-10-26T02:30:00+01:00"},
		"autumn, the second of two starts": {"30 2 * * *", 30 * time.Minute, "Europe/Oslo", "2025-10-26T02:59:00+01:00", true, "2025-10-26T03:00:00+01:00"},
		"autumn, the duration is real":     {"0 1 * * *", 2 * time.Hour, "Europe/Oslo", "2025-10-26T02:00:00+01:00", false, "2025-10-27T01:00:00+01:00"},
		"autumn, evening of that day":      {"0 22 * * *", 4 * time.Hour, "Europe/Oslo", "2025-10-26T21:59:00+01:00", false, "2025-10-26T22:00:00+01:00"},
		// On October 5, 2025 the clocks of Lord Howe go from 02:00 to 02:30.
		"half an hour": {"15 3 * * *", time.Hour, "Australia/Lord_Howe", "2025-10-05T01:00:00+10:30", false, "2025-10-05T03:15:00+11:00"},
		// On April 25, 2025 the clocks of Cairo go from 00:00 to 01:00.
		"a midnight that never comes": {"0 1 25 4 *", time.Hour, "Africa/Cairo", "2025-04-24T12:00:00+02:00", false, "2025-04-25T01:00:00+03:00"},
		// On November 2, 2025 the clocks of Havana go from 01:00 to 00:00.
		"a midnight that comes twice": {"0 0 2 11 *", time.Hour, "America/Havana", "2025-10-31T12:00:00Z", false, "2025-11-02T00:00:00-04:00"},
		// On October 29, 2021 the clocks of Amman went from 01:00 to 00:00; Go takes the second midnight.
		"a midnight of which the second counts": {"0 0 29 10 *", time.Hour, "Asia/Amman", "2021-10-27T12:00:00Z", false, "2021-10-29T00:00:00+03:00"},
	} {
		t.Run(name, func(t *testing.T) {
			open, until := newWindow(t, given.cron, given.duration, given.zone).Open(instant(t, given.at))
			if want := instant(t, given.until); open != given.open || !until.Equal(want) || until.IsZero() != want.IsZero() {
				t.Errorf("Open(%s): %v until %s, want %v until %s", given.at, open, until.Format(time.RFC3339), given.open, given.until)
			}
		})
	}
}

func TestWindow_ReusedAnswersLikeANewOne(t *testing.T) {
	const cron, zone = "0 1,2 * * *", "Europe/Oslo"

	asked := newWindow(t, cron, time.Hour, zone)

	// Forward, back, and the same again: each time the result must be that of a new window.
	for _, text := range []string{
		"2025-06-11T02:30:00+02:00", "2025-06-11T02:59:59+02:00", "2025-06-11T03:00:00+02:00", "2025-06-11T12:00:00+02:00",
		"2025-06-11T01:00:00+02:00", "2025-06-11T00:59:00+02:00", "2025-06-10T12:00:00+02:00", "2025-06-11T02:30:00+02:00",
	} {
		at := instant(t, text)
		open, until := asked.Open(at)
		want, wanted := newWindow(t, cron, time.Hour, zone).Open(at)

		if open != want || !until.Equal(wanted) {
			t.Errorf("Open(%s): %v until %s, want %v until %s", text, open, until, want, wanted)
		}
	}
}

func TestWindow_AlwaysOpenStaysSo(t *testing.T) {
	always := newWindow(t, "0 * * * *", time.Hour, "Europe/Oslo")

	for year := range 12 {
		at := time.Date(2025+year, time.July, 1, 12, 34, 56, 0, time.UTC)
		if open, until := always.Open(at); !open || !until.IsZero() {
			t.Errorf("Open(%s): %v until %s", at, open, until)
		}
	}
}

func TestWindow_TellsTimesInItsZone(t *testing.T) {
	w := newWindow(t, "0 22 * * 1-5", 4*time.Hour, "Europe/Oslo")

	for at, want := range map[string]string{"2025-06-11T12:00:00Z": "2025-06-11 22:00 CEST", "2025-01-08T22:00:00Z": "2025-01-09 02:00 CET"} {
		if _, until := w.Open(instant(t, at)); until.Format("2006-01-02 15:04 MST") != want {
			t.Errorf("Open(%s): until %s, want %s", at, until, want)
		}
	}
}

func TestWindow_IsRecognised(t *testing.T) {
	for want, given := range map[string]gate.WindowSpec{
		"0 22 * * 1-5 for 4h, Europe/Oslo": {Cron: "0 22 * * 1-5", Duration: 4 * time.Hour, TimeZone: "Europe/Oslo"},
		"0 22 * * * for 1h30m, UTC":        {Cron: "  0  22 * * * ", Duration: 90 * time.Minute},
		"*/5 * * * * for 10s, UTC":         {Cron: "*/5 * * * *", Duration: 10 * time.Second, TimeZone: "UTC"},
		"0 0 1 * * for 168h, UTC":          {Cron: "0 0 1 * *", Duration: gate.MaxWindow},
		"0 0 1 * * for 20m, UTC":           {Cron: "0 0 1 * *", Duration: 20 * time.Minute},
	} {
		w, err := gate.NewWindow(given)
		if err != nil {
			t.Fatal(err)
		}

		if got := w.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestWindow_RefusesAnInvalidOne(t *testing.T) {
	const cron, duration = "0 22 * * *", time.Hour

	for name, given := range map[string]struct {
		spec  gate.WindowSpec
		field string
		says  string
	}{
		"no cron":                       {gate.WindowSpec{Duration: duration}, "cron", "missing"},
		"four fields":                   {gate.WindowSpec{Cron: "22 * * *", Duration: duration}, "cron", "expected exactly 5 fields, found 4"},
		"six fields":                    {gate.WindowSpec{Cron: "0 0 22 * * *", Duration: duration}, "cron", "expected exactly 5 fields, found 6"},
		"an hour that is none":          {gate.WindowSpec{Cron: "0 24 * * *", Duration: duration}, "cron", "above maximum"},
		"a word":                        {gate.WindowSpec{Cron: "0 noon * * *", Duration: duration}, "cron", "noon"},
		"an interval":                   {gate.WindowSpec{Cron: "@every 1h", Duration: duration}, "cron", "@every"},
		"a descriptor":                  {gate.WindowSpec{Cron: " @daily", Duration: duration}, "cron", "@daily"},
		"a zone in cron":                {gate.WindowSpec{Cron: "CRON_TZ=Europe/Oslo 0 22 * * *", Duration: duration}, "cron", "may not set a time zone"},
		"the older spelling of it":      {gate.WindowSpec{Cron: "TZ=UTC 0 22 * * *", Duration: duration}, "cron", "may not set a time zone"},
		"a zone in cron and no more":    {gate.WindowSpec{Cron: "TZ=UTC", Duration: duration}, "cron", "may not set a time zone"},
		"February 30":                   {gate.WindowSpec{Cron: "0 0 30 2 *", Duration: duration}, "cron", "never comes"},
		"the 31st of months without":    {gate.WindowSpec{Cron: "0 0 31 4,6,9,11 *", Duration: duration}, "cron", "never comes"},
		"an empty list":                 {gate.WindowSpec{Cron: ", 0 * * *", Duration: duration}, "cron", "never comes"},
		"no duration":                   {gate.WindowSpec{Cron: cron}, "duration", "0s"},
		"a negative duration":           {gate.WindowSpec{Cron: cron, Duration: -time.Hour}, "duration", "-1h"},
		"more than a week":              {gate.WindowSpec{Cron: cron, Duration: gate.MaxWindow + time.Second}, "duration", "at most 168h"},
		"a zone that does not exist":    {gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: "Europe/Olso"}, "time_zone", "Europe/Olso"},
		"an offset":                     {gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: "+02:00"}, "time_zone", "+02:00"},
		"a path":                        {gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: "../../etc/passwd"}, "time_zone", "passwd"},
		"the zone of the machine":       {gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: "Local"}, "time_zone", "another one on another machine"},
		"the zone file of the machine":  {gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: "localtime"}, "time_zone", "another one on another machine"},
		"a zone of blanks":              {gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: " "}, "time_zone", `" "`},
		"a zone that is a whole region": {gate.WindowSpec{Cron: cron, Duration: duration, TimeZone: "Europe"}, "time_zone", "Europe"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gate.NewWindow(given.spec)

			if problem := refusal(t, err); problem.Field != given.field || !strings.Contains(problem.Found, given.says) {
				t.Errorf("%s: %s; want %s: ...%s...", problem.Field, problem.Found, given.field, given.says)
			}
		})
	}
}

// choice is one field of a generated cron: some values, or all of them.
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

// made is a generated cron.
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

// TestWindow_IsOpenWhereAStartIsInRange compares a window with the result of a walk through all minutes, in zones
// whose clocks change in many ways.
func TestWindow_IsOpenWhereAStartIsInRange(t *testing.T) {
	const ahead = 45 * 24 * time.Hour

	// Somewhere, clocks change on these days or soon after.
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

// walk goes through all minutes and reports whether the window is open at the time, and when that changes; zero if
// it does not change before the end.
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
