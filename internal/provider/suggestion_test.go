// SPDX-License-Identifier: MPL-2.0

package provider

import "testing"

func TestNearestNameIsWhatSomebodyMeant(t *testing.T) {
	for written, want := range map[string]string{
		"etcd-alarm":      "etcd-alarms",
		"etcd_alarms":     "etcd-alarms",
		"disk-spcae":      "disk-space",
		"drian":           "",
		"drains":          "drain",
		"installer-imgae": "installer-image",
		"schematics":      "schematic",
		"":                "",
		"x":               "",
		"everything":      "",
	} {
		if got := nearest(written, checkNames()); got != want {
			t.Errorf("%q is taken for %q, want %q", written, got, want)
		}
	}
}

func TestKeystrokesBetweenTexts(t *testing.T) {
	for _, test := range []struct {
		from, to string
		want     int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2},
	} {
		if got := keystrokes(test.from, test.to); got != test.want {
			t.Errorf("%q to %q takes %d, want %d", test.from, test.to, got, test.want)
		}
	}
}
