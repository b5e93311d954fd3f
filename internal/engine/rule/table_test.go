// SPDX-License-Identifier: MPL-2.0

package rule_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// TestTable_IsThatOfTheGuide: people read what is asked before which step, in the order in which they are told,
// and a rule that is lost at a step shows here, and not on a cluster.
func TestTable_IsThatOfTheGuide(t *testing.T) {
	t.Parallel()

	guide, err := os.ReadFile(filepath.Join("..", "..", "..", "templates", "guides", "guards.md.tmpl"))
	if err != nil {
		t.Fatal(err)
	}

	stages := []struct {
		name  string
		stage rule.Stage
	}{
		{"cordon", rule.Cordon}, {"install", rule.Install}, {"reboot", rule.Reboot}, {"way back", rule.SendBack}, {"component", rule.Component},
	}

	head, line := "| what has to hold |", "|---|"
	for _, asked := range stages {
		head, line = head+" "+asked.name+" |", line+"---|"
	}

	want := head + "\n" + line + "\n"

	for _, one := range rule.Table() {
		want += "| " + one.About + " |"

		for _, asked := range stages {
			if one.Stages&asked.stage != 0 {
				want += " yes |"
			} else {
				want += " |"
			}
		}

		want += "\n"
	}

	_, table, _ := strings.Cut(string(guide), head)
	table, _, _ = strings.Cut(head+table, "\n\n")

	if diff := cmp.Diff(want, table+"\n"); diff != "" {
		t.Errorf("the guide shows other rules than there are (-want +got):\n%s\nwant\n%s", diff, want)
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
