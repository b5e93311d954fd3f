// SPDX-License-Identifier: MPL-2.0

package engine

import "testing"

func TestTextsEndOnce(t *testing.T) {
	for text, want := range map[string]string{
		"waited 30m0s for it to be safe":     "waited 30m0s for it to be safe.",
		"Bring etcd back (talosctl).":        "Bring etcd back (talosctl).",
		"is anybody still there?":            "is anybody still there?",
		"it reports NOSPACE (check etcd-ok)": "it reports NOSPACE (check etcd-ok).",
	} {
		if got := withFullStop(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
