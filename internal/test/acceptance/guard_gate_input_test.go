// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccGateErrorsPointAtTheirPlace is about where people are sent to look: the
// gate, its attribute, and the position within the expression.
func TestAccGateErrorsPointAtTheirPlace(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	w := newWorkspace(t)

	for title, test := range map[string]struct {
		// gate are the arguments of the second gate.
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
		"no condition": {
			"api_version = \"v1\"\nkind = \"ConfigMap\"\nexpr = \"object.data.allowed\"",
			[]string{"gates[1].expr", "has to give bool", "== true"},
		},
		"about nothing": {
			"api_version = \"v1\"\nkind = \"ConfigMap\"\nexpr = \"1 < 2\"",
			[]string{"gates[1].expr", "uses none of object, objects and node"},
		},
		"unknown preset": {
			"preset = \"rook\"",
			[]string{"gates[1].preset", "longhorn, rook-ceph, cloudnative-pg"},
		},
		"preset with an expression": {
			"preset = \"longhorn\"\nexpr = \"object.spec.replicas == 3\"",
			[]string{"gates[1].expr", "longhorn", "Remove"},
		},
		"no expression": {
			"api_version = \"v1\"\nkind = \"ConfigMap\"",
			[]string{"gates[1].expr", "missing"},
		},
		"secret of another group": {
			"api_version = \"example.com/v1\"\nkind = \"secret\"\nexpr = \"object.spec.a == 1\"",
			[]string{"gates[1].kind", "may not read Secrets"},
		},
		"name and selector": {
			"api_version = \"v1\"\nkind = \"ConfigMap\"\nname = \"a\"\nselector = \"a=b\"\nexpr = \"object.data.a == 'b'\"",
			[]string{"gates[1].selector", "exclude each other"},
		},
		"timeout": {
			"preset = \"longhorn\"\ntimeout = \"soon\"",
			[]string{"gates[1].timeout", "soon"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.write(use(s), "talos_version = \"1.13.4\"\ngates = [{\n preset = \"rook-ceph\"\n}, {\n"+test.gate+"\n}]")

			failed := w.plan().mustFail(test.says...)

			// The command line shows no less than an element of a list.
			if shown := failed.Snippet.Code; !strings.Contains(shown, test.gate) || strings.Contains(shown, "rook-ceph") {
				t.Errorf("it points at %q, want the second gate", shown)
			}
		})
	}

	w.t = t
	s.unchanged()
}

// TestAccGateThatIsKnownOnlyAtApply: what is wrong with it is found before
// anything is touched all the same.
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

// TestAccGateThatNoWaitingCures is about what only the API server can refuse: the
// plan warns, and the apply does not wait half a day for it.
func TestAccGateThatNoWaitingCures(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	w := newWorkspace(t)

	for title, test := range map[string]struct{ gate, says string }{
		"a selector that does not parse": {`api_version = "v1", kind = "ConfigMap", selector = "a=b=c"`, "with the labels a=b=c"},
		"a namespace of a node":          {`api_version = "v1", kind = "Node", namespace = "default"`, "leave the namespace out"},
		"the plural of a kind":           {`api_version = "v1", kind = "configmaps"`, "serves no v1 configmaps"},
		"a version that is not there":    {`api_version = "apps/v1beta9", kind = "Deployment"`, "serves no apps/v1beta9 Deployment"},
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.write(use(s), "talos_version = \"1.13.4\"\ngates = [{ "+test.gate+", expr = \"objects.size() > 0\", timeout = \"12h\" }]")
			w.plan().mustSucceed(2).mustWarn(test.says)

			begun := time.Now()

			w.apply().mustFail("gates[0]", test.says)

			if took := time.Since(begun); took > 12*time.Hour/speed {
				t.Errorf("it took %s", took)
			}
		})
	}

	w.t = t
	s.onlyLocked()
}
