// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// neighbourJudgements are about control planes beside the one that is disturbed.
func neighbourJudgements() []judgement {
	unready := func(wait float64, node string) func() *tale {
		return func() *tale {
			t := held()
			t.ready("cp-1", false, runsOn)
			t.wait(wait)
			t.look()
			t.cordon(node, true, "client")

			return t
		}
	}
	foreign := func(node string) func() *tale {
		return func() *tale {
			t := held()
			t.tell("cp-1", history.KindStage, "from", "running", "to", "upgrading", "ready", "true", "by", "other")
			t.wait(5)
			t.look()
			t.cordon(node, true, "client")

			return t
		}
	}
	serverless := func() *tale {
		t := held()
		t.component("cp-1", apiServer, "a", runsOn, "failed")
		t.wait(60)
		t.look()
		t.cordon("cp-0", true, "client")

		return t
	}

	return []judgement{
		{name: "S1: beside a control plane that is not Ready", want: breaks(s1), tale: unready(120, "cp-0")},
		{name: "S1: the one that is not Ready itself", tale: unready(120, "cp-1")},
		{name: "S1: a worker beside a control plane that is not Ready", tale: unready(120, "worker-0")},
		{name: "S1: beside one of which nobody can know yet", tale: unready(10, "cp-0")},
		{name: "S1: beside one that was Ready when somebody last looked", tale: func() *tale {
			t := held()
			t.look()
			t.ready("cp-1", false, runsOn)
			t.wait(120)
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S1: beside an API server that is down", want: breaks(s1), tale: serverless},
		{name: "S1: beside an API server that may be down", options: []checker.Option{checker.Skips("control-plane-components")}, tale: serverless},
		{name: "S1: beside a control plane that somebody else upgrades", want: breaks(s1), tale: foreign("cp-0")},
		{name: "S1: a worker beside a control plane that somebody else upgrades", tale: foreign("worker-0")},
		{name: "S1: what others do may be skipped", options: []checker.Option{checker.Skips("external-changes")}, tale: foreign("cp-0")},
		{name: "S1: somebody else is done", tale: func() *tale {
			t := held()
			t.tell("cp-1", history.KindStage, "from", "running", "to", "rebooting", "ready", "true", "by", "other")
			t.tell("cp-1", history.KindDown, "by", "other")
			t.comeBack("cp-1", before)
			t.look()
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S4, S5: what somebody else installs is for nobody to judge", tale: func() *tale {
			t := held()
			t.tell("cp-1", history.KindInstall, "talos", "1.12.0", "schematic", "", "slot", "B", "exit", "0", "by", "other")
			t.tell("cp-1", history.KindInstall, "talos", before, "schematic", "", "slot", "B", "exit", "0", "by", "other")

			return t
		}},
		{name: "S4: what somebody else installed is not overwritten", want: breaks(s4), tale: func() *tale {
			t := held()
			t.tell("cp-1", history.KindInstall, "talos", after, "schematic", "", "slot", "B", "exit", "0", "by", "other")
			t.put("cp-1", after)

			return t
		}},
	}
}

func TestViolationsSayWhatWasWrong(t *testing.T) {
	judge := checker.New()

	told := troubled("cp-1", "lagging")
	told.cordon("cp-0", true, "client")

	for _, event := range told.events {
		judge.Add(event)
	}

	violations := judge.Violations()
	if len(violations) != 1 || violations[0].Node != "cp-0" || !strings.Contains(violations[0].What, "was cordoned although etcd on cp-1 lagged behind") {
		t.Errorf("got %+v", violations)
	}
}
