// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// TestPlansReadAsWritten shows whole plans, so that a change of order, image or
// wording is seen in review.
func TestPlansReadAsWritten(t *testing.T) {
	t.Parallel()

	for name, s := range map[string]*scene{
		"workers-first":          newScene(3, 2),
		"factory-from-1.14":      newScene(1, 1).runs("1.13.4").aims("1.14.0"),
		"resume-after-a-crash":   newScene(3, 2).runs("1.13.4", "worker-1").silent("worker-2").entry("worker-2", cluster.PhaseRebooting, "b"),
		"drift-of-one-node":      newScene(3, 2).runs("1.13.4", "worker-1", "cp-1", "cp-2", "cp-3"),
		"unfit-for-every-reason": unfit(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, golden := render(s.make()), filepath.Join("testdata", name+".golden")

			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}

				return
			}

			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the plan changed (-golden +now); if that is wanted, run the test with -update:\n%s", diff)
			}
		})
	}
}

// unfit is a cluster in which as much as possible is wrong at once.
func unfit() *scene {
	s := newScene(2, 3).runs("1.13.5", "worker-1").silent("worker-2").entry("worker-3", cluster.PhaseFallback, "boot-9").
		cordoned("worker-1", "").unpinned("cp-1").roles("os:reader").asserts("1.36.0").kubernetes("1.30.1").undrained()
	s.snapshot.Foreign = []string{"flatcar-1"}
	s.node("cp-2").Machine.Extensions = []string{"drbd"}

	return s
}

// render prints a plan for people who review golden files.
func render(made plan.Plan) string {
	var text strings.Builder

	for i, step := range made.Steps {
		fmt.Fprintf(&text, "%d. %s (%s, %s): %s -> %s", i+1, step.Node, step.Role, step.Address, step.From, step.To)

		switch {
		case step.Done:
			text.WriteString(", return to service")
		case step.Finish:
			text.WriteString(", finish")
		}

		fmt.Fprintf(&text, "\n   api %q, image %q\n", step.API, step.Image)
	}

	fmt.Fprintf(&text, "at target: %s\n", strings.Join(made.AtTarget, ", "))
	fmt.Fprintf(&text, "elsewhere: %s\n", strings.Join(made.Elsewhere, ", "))

	for _, finding := range made.Findings {
		severity := [...]string{cluster.Advice: "advice", cluster.Observed: "observed", cluster.Permanent: "permanent"}[finding.Severity]
		fmt.Fprintf(&text, "%s [%s]: %s\n", severity, finding.Attribute, finding)
	}

	return text.String()
}
