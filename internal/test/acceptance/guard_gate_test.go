// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// switched is a gate that people open and close.
func switched(timeout string) string {
	return "\ngates = [{\n api_version = \"v1\"\n kind = \"ConfigMap\"\n namespace = \"default\"\n name = \"upgrades\"\n" +
		" expr = \"object.data.allowed == 'yes'\"\n timeout = " + quote(timeout) + "\n}]"
}

func TestAccGateThatDoesNotHoldStopsTheRun(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	s.allow("no")

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+switched("30s"))
	w.plan().mustSucceed(2).mustWarn("gates[0]")
	w.apply().mustFail("gates[0]", "default/upgrades", "object.data.allowed == 'yes'")
	s.untouched("cp-0", "worker-0")

	if cordons := s.cordons(); cordons != 0 {
		t.Errorf("%d nodes were cordoned", cordons)
	}

	answer := w.ask(s, `talos_version = "1.13.4"`+switched("30s"))
	answer.want("gates", "failed", "error", "", "gates[0]", "default/upgrades")

	// What the cluster does not serve no waiting brings.
	missing := "talos_version = \"1.13.4\"\ngates = [{ preset = \"longhorn\" }]"
	answer = w.ask(s, missing)
	answer.want("gates", "unknown", "error", "", "gates[0]", "longhorn.io/v1beta2")
	w.write(use(s), missing)
	w.apply().mustFail("gates[0]", "longhorn.io/v1beta2")

	w.write(use(s), `talos_version = "1.13.4"`+switched("30s")+"\npreflight = { skip = [\"gates\"] }")
	w.plan().mustSucceed(2).mustWarn("check gates, skipped")

	s.allow("yes")
	w.write(use(s), `talos_version = "1.13.4"`+switched("30s"))
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}

func TestAccGatesThatCannotBe(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	w := newWorkspace(t)

	for title, test := range map[string]struct {
		gate string
		says []string
	}{
		"it does not compile": {`{ api_version = "v1", kind = "ConfigMap", expr = "object.data.allowed ==" }`, []string{"gates[0].expr", "1:23"}},
		"it is no condition":  {`{ api_version = "v1", kind = "ConfigMap", expr = "size(objects)" }`, []string{"gates[0].expr", "bool"}},
		"nobody knows it":     {`{ preset = "longhorns" }`, []string{"gates[0].preset", "longhorn"}},
		"a secret":            {`{ api_version = "v1", kind = "Secret", expr = "object.data.a == 'b'" }`, []string{"gates[0].kind", "Secret"}},
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.write(use(s), "talos_version = \"1.13.4\"\ngates = ["+test.gate+"]")
			w.plan().mustFail(test.says...)
		})
	}

	w.t = t
	s.unchanged()
}
