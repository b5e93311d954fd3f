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
