// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

	drawPolicy(rt, s)

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

// drawPolicy is any policy, however contradictory.
func drawPolicy(rt *rapid.T, s *scene) {
	s.target.Kubernetes = version.MustParse(rapid.SampledFrom([]string{"1.34.2", "1.34.2", "1.35.0", "1.36.1", "1.33.0"}).Draw(rt, "kubernetes target"))
	if rapid.Bool().Draw(rt, "Kubernetes is not managed") {
		s.target.Kubernetes = version.Version{}
	}

	s.policy.Kubernetes.Manifests.Sync = rapid.IntRange(0, 3).Draw(rt, "manifests") > 0
	s.policy.Kubernetes.Manifests.Timeout = rapid.SampledFrom([]time.Duration{time.Minute, time.Minute, 0}).Draw(rt, "manifests timeout")
	if rapid.IntRange(0, 3).Draw(rt, "kubelets are to come from a mirror") == 0 {
		s.wants(cluster.Kubelet, "registry.example.com/kubelet")
	}

	s.policy.AllowIntermediate = rapid.Bool().Draw(rt, "intermediate")
	s.policy.AllowUnknown = rapid.Bool().Draw(rt, "unknown")
	s.policy.MaxUnavailable = share(rapid.SampledFrom([]string{"1", "2", "50%"}).Draw(rt, "max_unavailable"))
	s.policy.Hold, s.policy.Images = map[string]bool{}, map[string]string{}

	s.skips(rapid.SliceOfN(rapid.SampledFrom([]string{
		"schematic", "secure-boot", "installer-image", "two-members", "external-changes", "etcd-quorum", "etcd-alarms", "control-plane-components",
	}), 0, 3).Draw(rt, "skipped")...)

	for _, text := range rapid.SliceOfN(rapid.SampledFrom([]string{"1.12.1", "1.13.0", "1.35.0", "1.35.1", "1.20.0"}), 0, 2).Draw(rt, "through") {
		s.policy.Intermediate = append(s.policy.Intermediate, version.MustParse(text))
	}

	for _, name := range []string{"worker-1", "worker-2", "cp-1", "nobody"} {
		switch rapid.SampledFrom([]string{"", "", "", "held", "canary", "image"}).Draw(rt, name+" is special") {
		case "held":
			s.policy.Hold[name] = true
		case "canary":
			s.policy.Canary = append(s.policy.Canary, name)
		case "image":
			s.policy.Images[name] = overrideB
		}
	}
}

func drawNode(rt *rapid.T, s *scene, node *cluster.Node) {
	seldom := func(what string) bool { return rapid.IntRange(0, 7).Draw(rt, node.Name+" "+what) == 0 }
	drawMachine(rt, node)

	if seldom("has a journal entry") {
		phase := rapid.SampledFrom([]cluster.Phase{cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseFallback}).Draw(rt, "phase")
		s.entry(node.Name, phase, rapid.SampledFrom([]string{"", "boot-9"}).Draw(rt, "fallen back to"))
	}

	if seldom("runs another Kubernetes") {
		node.Versions[cluster.Kubelet] = version.MustParse(rapid.SampledFrom([]string{"1.31.0", "1.33.5", "1.34.2", "1.35.0"}).Draw(rt, "kubelet"))
	}

	if node.Machine.Config != nil && node.Machine.Config.Images != nil && seldom("names another Kubernetes") {
		s.namesComponent(node.Name, cluster.Kubelet, rapid.SampledFrom([]string{
			"ghcr.io/siderolabs/kubelet:v1.33.5-slim", "ghcr.io/siderolabs/kubelet:v1.35.0", "registry.example.com/kubelet:latest", "NO image",
		}).Draw(rt, "named"))
	}

	if seldom("has an old kube-proxy") {
		s.runsComponent(node.Name, cluster.Proxy, "1.33.7")
	}

	node.Kube.Ready = !seldom("is not ready")

	if seldom("is in trouble") {
		drawTrouble(rt, s, node)
	}

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

// drawTrouble is what a node may say about itself that nobody wants to hear.
func drawTrouble(rt *rapid.T, s *scene, node *cluster.Node) {
	node.Machine.Stage = rapid.SampledFrom([]cluster.Stage{cluster.StageRunning, cluster.StageBooting, cluster.StageUpgrading, cluster.StageShuttingDown}).Draw(rt, "stage")
	node.Machine.BootUnknown = rapid.Bool().Draw(rt, "boot unknown")
	node.Kube.CordonedByTalos = rapid.Bool().Draw(rt, "cordoned by Talos")
	node.Kube.Pressure = rapid.SliceOfN(rapid.SampledFrom([]string{"DiskPressure", "PIDPressure"}), 0, 2).Draw(rt, "pressure")

	if node.Role != cluster.ControlPlane {
		return
	}

	component := rapid.SampledFrom([]cluster.Component{cluster.APIServer, cluster.Scheduler}).Draw(rt, "component")
	if rapid.Bool().Draw(rt, "is missing") {
		s.missing(node.Name, component)
	} else {
		node.Pods[component] = cluster.ComponentPod{Node: node.Name, Component: component}
	}

	if alarm := rapid.SampledFrom([]string{"", "NOSPACE on member 1", "CORRUPT on member 2", "CORRUPT on member 1f"}).Draw(rt, "alarm"); alarm != "" {
		s.alarmed(alarm, node.Name)
	}

	s.status(node.Name, func(e *cluster.EtcdStatus) {
		e.Leader = rapid.SampledFrom([]uint64{0, 1, 2}).Draw(rt, "leader")
		e.Index = rapid.SampledFrom([]uint64{0, 5000}).Draw(rt, "index")
		e.DBSize = rapid.SampledFrom([]int64{0, 1800 << 20, 3 << 30}).Draw(rt, "database")
	})
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

		var managed []string

		planned := slices.Concat(made.AtTarget, made.Elsewhere, made.Held)

		for _, step := range made.Steps {
			if step.Component != cluster.Manifests && !slices.Contains(planned[len(made.AtTarget)+len(made.Elsewhere)+len(made.Held):], step.Node) {
				planned = append(planned, step.Node)
			}
		}

		for _, node := range s.snapshot.Managed() {
			managed = append(managed, node.Name)
		}

		slices.Sort(planned)
		slices.Sort(managed)

		if !slices.Equal(planned, managed) {
			rt.Fatalf("planned %q, managed %q", planned, managed)
		}

		if made.Total() != len(managed)-len(made.Held) {
			rt.Fatalf("total %d of %d nodes, %d of them held", made.Total(), len(managed), len(made.Held))
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
			if step.Component == cluster.Manifests {
				continue
			}

			node := s.node(step.Node)
			if step.Done && !step.Finish {
				rt.Fatalf("%s is done and has a turn", step.Node)
			}

			if step.Finish || node.Machine == nil {
				continue
			}

			if step.Component != "" && step.From.Equal(step.To) && s.policy.Kubernetes.Images[step.Component] != "" {
				continue
			}

			if order := step.From.Compare(step.To); order > 0 || (order == 0 && (!step.Demanded || node.Machine.Schematic == step.Schematic)) {
				rt.Fatalf("%s runs %s and has a turn: %+v", step.Node, node.Machine.Talos, step)
			}

			if s.policy.Hold[step.Node] {
				rt.Fatalf("%s is held and has a turn: %+v", step.Node, step)
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

		had := map[string]bool{}

		var ranks []string

		steps := s.make().Steps
		for _, step := range steps {
			if step.Component != "" {
				continue
			}

			// A node that had its turn is back in service, unless somebody
			// else's cordon keeps it out.
			node := s.node(step.Node)
			available := node.Available() || (had[step.Node] && node.Kube != nil && (!node.Kube.Unschedulable || node.Kube.CordonedBy != ""))
			had[step.Node] = true

			// What was left unfinished and answers comes before what does not,
			// out of service before in service.
			silent := step.Finish && node.Machine == nil
			serving := step.Finish && (silent || node.Available())

			// "false" sorts before "true", so the ranks read in the wanted order.
			ranks = append(ranks, fmt.Sprintf("%d %t %t %t %t %t %t %s",
				step.Hop, !step.Finish, serving, silent, !step.Canary, step.Role != first, available, step.Node))
		}

		if !slices.IsSorted(ranks) {
			rt.Fatalf("steps out of order: %s\n%s", stepNames(plan.Plan{Steps: steps}), strings.Join(ranks, "\n"))
		}
	})
}

func TestWhatStandsInTheWayIsSaidInFull(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)
		made := s.make()

		for _, finding := range made.Findings {
			known, listed := cluster.CheckNamed(finding.Check)
			if !listed || finding.Skipped && (known.Firm != "" || finding.Severity != cluster.Advice) {
				rt.Fatalf("not a check, or not one to skip: %+v", finding)
			}
		}

		for _, finding := range cluster.Blocking(made.Findings) {
			if finding.Check == "" || finding.Found == "" || strings.Contains(finding.String(), "%!") || strings.Contains(finding.String(), "<nil>") {
				rt.Fatalf("an incomplete finding: %+v", finding)
			}

			if finding.Remedy == "" {
				rt.Fatalf("no remedy: %s", finding)
			}
		}

		finished := map[string]bool{}

		for _, step := range made.Steps {
			finished[step.Node] = finished[step.Node] || step.Finish
			if step.Image != "" || step.Component != "" || finished[step.Node] {
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

		// What is still to be synced would be recorded nowhere.
		if s.snapshot.Journal == nil {
			s.unsynced()
		}

		// And what is named could be changed nowhere. Where nothing is named, the node is
		// refused, and nobody foresees where its kube-proxy sets out from after a sync.
		for i := range s.snapshot.Nodes {
			node := &s.snapshot.Nodes[i]

			if node.Machine != nil && (node.Machine.Config == nil || len(node.Machine.Config.Images) == 0) {
				node.Machine.Config = s.pinned(*node)
			}
		}

		for made := s.make(); len(made.Steps) > 0; {
			s.carryOut(made.Steps[0])

			next := s.make()
			got, want := essence(next.Steps), essence(made.Steps[1:])

			// Where several nodes are unfinished, the end of one may end a hop;
			// another then goes on in one turn instead of returning first.
			if made.Steps[0].Finish && len(want) > 0 && made.Steps[1].Finish {
				got, want = sortedMoves(got), sortedMoves(want)
			}

			if !slices.Equal(got, want) {
				rt.Fatalf("after %v:\n%s\nwant:\n%s", made.Steps[0], strings.Join(got, "\n"), strings.Join(want, "\n"))
			}

			made = next
		}
	})
}

// sortedMoves leaves out the turns in which nothing moves.
func sortedMoves(steps []string) []string {
	moves := slices.DeleteFunc(steps, func(text string) bool {
		fields := strings.Fields(text)

		return len(fields) > 3 && fields[1] == fields[3]
	})
	slices.Sort(moves)

	return moves
}

// essence is what of the steps does not depend on how many hops are behind.
func essence(steps []plan.Step) []string {
	texts := make([]string, 0, len(steps))
	for _, step := range steps {
		if step.Component == cluster.Manifests {
			// Where it begins depends on what is left behind.
			texts = append(texts, string(step.Component))

			continue
		}

		texts = append(texts, fmt.Sprintf("%s %s %s -> %s (canary %t)", step.Node, step.Component, step.From, step.To, step.Canary))
	}

	return texts
}
