// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccGateErrorsPointAtTheirPlace wants an error to name the gate, its attribute, and the position in the
// expression.
func TestAccGateErrorsPointAtTheirPlace(t *testing.T) {
	full(t)

	w := newWorkspace(t)

	for title, test := range map[string]struct {
		// gate has the arguments of the second gate.
		gate string
		says []string
	}{
		"expression of one line": {
			"api_version = \"v1\"\nkind = \"ConfigMap\"\nexpr = \"object.data.allowed =\"",
			[]string{"gates[1].expr", "1:21", "| object.data.allowed =\n", "....^"},
		},
		"expression of several lines": {
			"api_version = \"v1\"\nkind = \"ConfigMap\"\nexpr = <<-EOT\nobject.data.allowed == 'yes' &&\n  !obj.data.frozen\nEOT",
			[]string{"gates[1].expr", "2:4", "undeclared reference to 'obj'", "|   !obj.data.frozen\n", "...^", "object, which is each object"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.write("", "talos_version = \"1.13.4\"\ngates = [{\n preset = \"rook-ceph\"\n}, {\n"+test.gate+"\n}]")

			failed := w.plan().mustFail(test.says...)

			// The command line shows at least a whole element of a list.
			if shown := failed.Snippet.Code; !strings.Contains(shown, test.gate) || strings.Contains(shown, "rook-ceph") {
				t.Errorf("it points at %q, want the second gate", shown)
			}
		})
	}
}

// TestAccGateThatIsKnownOnlyAtApply wants an error in a gate that is known only at apply to be found before anything
// is touched.
func TestAccGateThatIsKnownOnlyAtApply(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	s.allow("yes")

	w := newWorkspace(t)
	late := func(name, expr string) {
		w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\nresource \"terraform_data\" \"" + name + "\" {\n input = " + quote(expr) + "\n}\n\n" +
			"resource \"talosupgrade_cluster\" \"this\" {\n talos_version = \"1.13.4\"\n gates = [{\n" +
			" api_version = \"v1\"\n kind = \"ConfigMap\"\n namespace = \"default\"\n name = \"upgrades\"\n" +
			" expr = terraform_data." + name + ".output\n timeout = \"30s\"\n}]\n}\n")
	}

	late("wrong", "object.data.allowed = 'yes'")
	w.plan().mustSucceed(2)
	w.apply().mustFail("gates[0].expr", "1:21")
	s.unchanged()

	late("closed", "object.data.allowed == 'no'")
	w.plan().mustSucceed(2)
	w.apply().mustFail("gates[0]", "object.data.allowed == 'no'")
	s.untouched("cp-0")

	late("right", "object.data.allowed == 'yes'")
	w.plan().mustSucceed(2)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 0))
	w.plan().mustSucceed(0)
}
