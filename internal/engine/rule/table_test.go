// SPDX-License-Identifier: MPL-2.0

package rule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// TestTable_IsAskedBefore says what is asked before which stage, in the order in which people are
// told: a rule that is lost at a stage shows here, and not on a cluster.
func TestTable_IsAskedBefore(t *testing.T) {
	t.Parallel()

	const want = `
kubernetes-api            cordon install reboot send-back component
talos-api                 cordon install reboot send-back
talos-api                                                 component
etcd-members              cordon install reboot send-back
etcd-quorum               cordon install reboot send-back
etcd-alarms               cordon install reboot send-back component
etcd-raft-lag             cordon install reboot send-back
control-planes            cordon install reboot send-back
control-planes                                            component
control-plane-components  cordon install reboot send-back
control-plane-components                                  component
restarted-kubelets                                        component
kubelets-ready                                            component
version-skew                                              component
canary                    cordon install
settle                    cordon install
nodes-ready               cordon install reboot send-back
room-for-pods             cordon install reboot send-back
external-changes          cordon install
disk-space                cordon install
time-sync                 cordon install
gates                     cordon install
operator                  cordon install                  component
pending-install           cordon install
selectors                 cordon install                  component
canary                                                    component
`

	stages := []struct {
		name  string
		stage rule.Stage
	}{
		{"cordon", rule.Cordon}, {"install", rule.Install}, {"reboot", rule.Reboot}, {"send-back", rule.SendBack}, {"component", rule.Component},
	}

	got := &strings.Builder{}

	for _, one := range rule.Table() {
		line := fmt.Sprintf("\n%-25s", one.Name)

		for _, asked := range stages {
			name := asked.name
			if one.Stages&asked.stage == 0 {
				name = strings.Repeat(" ", len(name))
			}

			line += " " + name
		}

		got.WriteString(strings.TrimRight(line, " "))
	}

	if diff := cmp.Diff(want, got.String()+"\n"); diff != "" {
		t.Errorf("the rules are asked otherwise (-want +got):\n%s", diff)
	}
}

// TestJudge_AsksTheRulesOfTheStage and no others, in their order.
func TestJudge_AsksTheRulesOfTheStage(t *testing.T) {
	t.Parallel()

	says := func(name string, stages rule.Stage) rule.Rule {
		return rule.Rule{Name: name, Stages: stages, Check: func(rule.View) []cluster.Finding { return rule.NewFinding(name, "", name, "", nil) }}
	}
	rules := []rule.Rule{says("a", rule.Cordon|rule.Reboot), says("b", rule.Component), says("c", rule.Cordon)}

	for stage, want := range map[rule.Stage]string{rule.Cordon: "a c", rule.Install: "", rule.Reboot: "a", rule.Component: "b"} {
		var found []string
		for _, finding := range rule.Judge(rules, stage, rule.View{}) {
			found = append(found, finding.Check)
		}

		if got := strings.Join(found, " "); got != want {
			t.Errorf("stage %d: %q, want %q", stage, got, want)
		}
	}
}
