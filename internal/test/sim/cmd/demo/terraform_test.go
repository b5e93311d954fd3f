// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlannedIsWhatAPlanSaysOfTheUpgrade(t *testing.T) {
	t.Parallel()

	roll := diagnostic{
		Severity: "warning", Summary: `Planned: Rolling upgrade of 2 of 5 nodes (talosconfig context "talossim")`,
		Detail: "One node of talosconfig context \"talossim\" after the other, in this order:\n\n" +
			"  Talos 1.12.6 -> 1.13.4 (https://github.com/siderolabs/talos/releases/tag/v1.13.4)\n\n" +
			"  step  node      role          from    to      image                                 estimate\n" +
			"  1     worker-1  worker        1.12.6  1.13.4  ghcr.io/siderolabs/installer:v1.13.4  4m\n" +
			"  2     cp-0      controlplane  1.12.6  1.13.4  ghcr.io/siderolabs/installer:v1.13.4  4m\n\n" +
			"Planned duration: about 8 minutes (an estimate from typical durations, not a promise).\n\nAs data: hops and steps.",
	}

	for name, test := range map[string]struct {
		warnings  []diagnostic
		what, how string
	}{
		"a roll, after another warning": {
			[]diagnostic{{Summary: "Provider development overrides are in effect"}, roll},
			"Rolling upgrade of 2 of 5 nodes",
			"Talos 1.12.6 -> 1.13.4, in this order: worker-1, cp-0; about 8 minutes",
		},
		"nothing": {nil, "", ""},
	} {
		if what, how := planned(test.warnings); what != test.what || how != test.how {
			t.Errorf("%s: got %q and %q, want %q and %q", name, what, how, test.what, test.how)
		}
	}
}

func TestDiagnosticsAreReadFromAmongOtherMessages(t *testing.T) {
	t.Parallel()

	warnings, failures := diagnostics([]byte(`{"@level":"info","@message":"Terraform 1.14.8","type":"version"}
{"@level":"warn","type":"diagnostic","diagnostic":{"severity":"warning","summary":"Planned: x","detail":"y"}}
not JSON
{"@level":"error","type":"diagnostic","diagnostic":{"severity":"error","summary":"Unable to upgrade","detail":"a\n\nb"}}
`))

	if diff := cmp.Diff([]diagnostic{{"warning", "Planned: x", "y"}}, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]diagnostic{{"error", "Unable to upgrade", "a\n\nb"}}, failures); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestEssenceIsTwoSentencesOfEachParagraph(t *testing.T) {
	t.Parallel()

	got := essence("it fell back (boot ID 1)\nto 1.12.6\n\nOne. Two, v1.2.\n\nOne: a.b. Two (Terraform 1.14). Three. Four.")
	want := []string{"it fell back (boot ID 1) to 1.12.6", "One. Two, v1.2.", "One: a.b. Two (Terraform 1.14). [...]"}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the essence (-want +got):\n%s", diff)
	}
}
