// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// overrideB is an installer_image that demands schematic B.
const overrideB = "factory.talos.dev/metal-installer/" + schematicB

// drawScene is any cluster that an observation could show, however ill.
func drawScene(rt *rapid.T) *scene {
	s := newScene(rapid.IntRange(0, 5).Draw(rt, "control planes"), rapid.IntRange(0, 6).Draw(rt, "workers"))

	s.target.InstallerImage = rapid.SampledFrom([]string{"", "", "", generic, overrideB, "NO image"}).Draw(rt, "installer_image")
	s.policy.Order = rapid.SampledFrom([]cluster.Order{cluster.WorkersFirst, cluster.ControlPlanesFirst}).Draw(rt, "order")
	s.policy.Drain.Enabled = rapid.Bool().Draw(rt, "drain")
	s.target.Talos = version.MustParse(rapid.SampledFrom([]string{"1.12.6", "1.13.4", "1.14.0", "1.99.0", "2.0.0"}).Draw(rt, "target"))

	for i := range s.snapshot.Nodes {
		drawNode(rt, s, &s.snapshot.Nodes[i])
	}

	if rapid.IntRange(0, 9).Draw(rt, "journal") == 0 {
		s.snapshot.Journal, s.snapshot.JournalError = nil, errAway
	}

	if rapid.IntRange(0, 9).Draw(rt, "kubernetes") == 0 {
		s.snapshot.KubernetesError, s.snapshot.Journal = errAway, nil
		for i := range s.snapshot.Nodes {
			s.snapshot.Nodes[i].Kube = nil
		}
	}

	return s
}

func drawNode(rt *rapid.T, s *scene, node *cluster.Node) {
	seldom := func(what string) bool { return rapid.IntRange(0, 7).Draw(rt, node.Name+" "+what) == 0 }
	drawMachine(rt, node)

	if seldom("has a journal entry") {
		phase := rapid.SampledFrom([]cluster.Phase{cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseFallback}).Draw(rt, "phase")
		s.entry(node.Name, phase, rapid.SampledFrom([]string{"", "boot-9"}).Draw(rt, "fallen back to"))
	}

	node.Kube.Ready = !seldom("is not ready")

	if seldom("is cordoned") {
		s.cordoned(node.Name, rapid.SampledFrom([]string{"", "run-1"}).Draw(rt, "by"))
	}

	if seldom("does not answer") {
		s.silent(node.Name)
	}

	if seldom("is not registered") {
		node.Kube = nil
	}

	node.Gone = node.Kube != nil && !node.Kube.Ready && seldom("is gone")
}

func drawMachine(rt *rapid.T, node *cluster.Node) {
	draw := func(what string, from ...string) string { return rapid.SampledFrom(from).Draw(rt, node.Name+" "+what) }

	if text := draw("runs", "", "1.7.0", "1.12.6", "1.12.6", "1.13.4", "1.13.4", "1.14.0", "1.15.0-beta.1"); text != "" {
		node.Machine.Talos = version.MustParse(text)
	} else {
		node.Machine.Talos = version.Version{}
	}

	node.Machine.Schematic = draw("schematic", "", "", schematicA, schematicB)
	node.Machine.Platform = draw("platform", "", "metal", "metal", "aws", "equinixMetal", "no platform")
	node.Machine.SecureBoot = draw("boots", "plain", "plain", "secure") == "secure"
	node.Machine.Config.InstallImage = draw("image", "", generic+":v1.12.6", overrideB+":v1.12.6", "registry.example.com:5000/talos", ":NO:")

	switch draw("configuration", "pinned", "pinned", "unpinned", "unreadable") {
	case "unpinned":
		node.Machine.Config.Images = nil
	case "unreadable":
		node.Machine.Config = nil
	}
}

func TestEveryManagedNodeIsMovedAtTheTargetOrNamedElsewhere(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)
		made := s.make()

		var planned, managed []string

		for _, step := range made.Steps {
			planned = append(planned, step.Node)
		}

		planned = append(planned, made.AtTarget...)
		planned = append(planned, made.Elsewhere...)

		for _, node := range s.snapshot.Managed() {
			managed = append(managed, node.Name)
		}

		slices.Sort(planned)
		slices.Sort(managed)

		if !slices.Equal(planned, managed) {
			rt.Fatalf("planned %q, managed %q", planned, managed)
		}

		if made.Total() != len(managed) {
			rt.Fatalf("total %d of %d nodes", made.Total(), len(managed))
		}
	})
}

func TestPlansDependOnTheObservationAlone(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)
		made := s.make()

		if again := s.make(); !reflect.DeepEqual(made, again) {
			rt.Fatalf("planned\n%s\nand then\n%s", render(made), render(again))
		}

		slices.Reverse(s.snapshot.Nodes)

		if reversed := s.make(); !slices.Equal(reversed.Steps, made.Steps) {
			rt.Fatalf("the order of the observation decides:\n%s\nand\n%s", render(made), render(reversed))
		}
	})
}

func TestNodesWithNothingToDoHaveNoTurn(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)

		for _, step := range s.make().Steps {
			node := s.node(step.Node)
			if step.Done && !step.Finish {
				rt.Fatalf("%s is done and has a turn", step.Node)
			}

			if step.Finish || node.Machine == nil {
				continue
			}

			if order := node.Machine.Talos.Compare(s.target.Talos); order > 0 || (order == 0 && (!step.Demanded || node.Machine.Schematic == step.Schematic)) {
				rt.Fatalf("%s runs %s and has a turn: %+v", step.Node, node.Machine.Talos, step)
			}
		}
	})
}

func TestStepsAreOrderedByUnfinishedRoleAvailabilityAndName(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)

		first := cluster.Worker
		if s.policy.Order == cluster.ControlPlanesFirst {
			first = cluster.ControlPlane
		}

		rank := func(step plan.Step) string {
			return fmt.Sprintf("%t %t %t %s", !step.Finish, step.Role != first, s.node(step.Node).Available(), step.Node)
		}

		// "false" sorts before "true", so the ranks read in the wanted order.
		if steps := s.make().Steps; !slices.IsSortedFunc(steps, func(a, b plan.Step) int { return strings.Compare(rank(a), rank(b)) }) {
			rt.Fatalf("steps out of order: %s", stepNames(plan.Plan{Steps: steps}))
		}
	})
}

func TestWhatStandsInTheWayIsSaidInFull(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)
		made := s.make()

		for _, finding := range cluster.Blocking(made.Findings) {
			if finding.Check == "" || finding.Found == "" || strings.Contains(finding.String(), "%!") || strings.Contains(finding.String(), "<nil>") {
				rt.Fatalf("an incomplete finding: %+v", finding)
			}

			// The refusals of package image carry their remedy themselves.
			if finding.Remedy == "" && finding.Check != "schematic" {
				rt.Fatalf("no remedy: %s", finding)
			}
		}

		for _, step := range made.Steps {
			if step.Image != "" || step.Finish {
				continue
			}

			// A repository that cannot be read is one finding for all nodes.
			names := func(f cluster.Finding) bool {
				return (f.Node == step.Node && f.Severity == cluster.Permanent) || (f.Severity == cluster.Observed && strings.Contains(f.Found, step.Node))
			}
			if !slices.ContainsFunc(made.Findings, names) {
				rt.Fatalf("%s has a turn without an image, and nothing says why", step.Node)
			}
		}
	})
}

func TestPlanningAgainAfterAStepYieldsTheRest(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)

		for made := s.make(); len(made.Steps) > 0; {
			s.carryOut(made.Steps[0])

			next := s.make()
			if want := stepNames(plan.Plan{Steps: made.Steps[1:]}); stepNames(next) != want {
				rt.Fatalf("after %s: steps %q, want %q", made.Steps[0].Node, stepNames(next), want)
			}

			made = next
		}
	})
}

// carryOut changes the cluster as a successful turn does.
func (s *scene) carryOut(step plan.Step) {
	node := s.node(step.Node)

	machine := cluster.Machine{UUID: step.UUID, Role: node.Role, Platform: "metal"}
	if node.Machine != nil {
		machine = *node.Machine
	}

	machine.Talos = step.To
	if s.target.InstallerImage == overrideB {
		machine.Schematic = schematicB
	}

	node.Machine, node.Unreachable = &machine, nil

	if s.snapshot.Journal != nil {
		delete(s.snapshot.Journal.Entries, step.UUID)
	}

	if node.Kube != nil {
		node.Kube.Ready = true
		if node.Kube.CordonedBy != "" {
			node.Kube.Unschedulable, node.Kube.CordonedBy = false, ""
		}
	}
}
