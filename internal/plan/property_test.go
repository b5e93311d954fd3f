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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// overrideB is an installer_image that demands schematic B.
const overrideB = "factory.talos.dev/metal-installer/" + schematicB

// drawScene returns any cluster that an observation could show, however broken.
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

// drawPolicy draws any policy, however contradictory.
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

// drawTrouble draws problems that a node may report.
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

func TestProperty_EveryNodeIsMovedAtTheTargetOrNamedElsewhere(t *testing.T) {
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

func TestProperty_PlansDependOnTheObservationAlone(t *testing.T) {
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

func TestProperty_NodesWithNothingToDoHaveNoTurn(t *testing.T) {
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

func TestProperty_StepsByUnfinishedRoleAvailabilityAndName(t *testing.T) {
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

			// Unfinished nodes that answer come before those that do not, and those out of service before those in
			// service.
			silent := step.Finish && node.Machine == nil
			serving := step.Finish && (silent || node.Available())

			// "false" sorts before "true", so the ranks read in the wanted order.
			ranks = append(ranks, fmt.Sprintf("%d %t %t %t %t %t %t %t %s",
				step.Hop, !step.Finish, serving, silent, step.Finish && !step.Done, !step.Canary, step.Role != first, available, step.Node))
		}

		if !slices.IsSorted(ranks) {
			rt.Fatalf("steps out of order: %s\n%s", stepNames(plan.Plan{Steps: steps}), strings.Join(ranks, "\n"))
		}
	})
}

func TestProperty_FindingsAreComplete(t *testing.T) {
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

func TestProperty_PlanningAgainAfterAStepYieldsTheRest(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)

		// Without a journal, a pending sync could not be recorded.
		if s.snapshot.Journal == nil {
			s.unsynced()
		}

		// Nor could an image that is named be changed. If none is named, the node is refused, and it is not known from
		// which version its kube-proxy starts after a sync.
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

			// If several nodes are unfinished, the end of one may end a hop; another one then goes on in one turn
			// instead of returning first.
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

// essence returns the part of the steps that does not depend on how many hops are done.
func essence(steps []plan.Step) []string {
	texts := make([]string, 0, len(steps))
	for _, step := range steps {
		if step.Component == cluster.Manifests {
			// The version at which a sync begins depends on the pods that lag.
			texts = append(texts, string(step.Component))

			continue
		}

		texts = append(texts, fmt.Sprintf("%s %s %s -> %s (canary %t)", step.Node, step.Component, step.From, step.To, step.Canary))
	}

	return texts
}

// TestProperty_SkippingAgainChangesNothing: others skip the same findings again, together with their own.
func TestProperty_SkippingAgainChangesNothing(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)
		found := s.make().Findings

		if again := s.policy.Skip(found); !reflect.DeepEqual(found, again) {
			rt.Fatalf("skipped once more: %v\nwas %v", again, found)
		}

		for _, finding := range found {
			if finding.Firm && finding.Severity == cluster.Advice {
				rt.Fatalf("nobody may skip it: %s", finding)
			}
		}
	})
}

// TestProperty_NoRollBeginsBesideAControlPlaneThatDoesNotServe, unless its own turn is next or was the last one,
// whichever half moves first.
func TestProperty_NoRollBeginsBesideAControlPlaneThatDoesNotServe(t *testing.T) {
	t.Parallel()

	begun := 0

	rapid.Check(t, func(rt *rapid.T) {
		s := drawWhole(rt)
		made := s.make()

		if len(made.Steps) == 0 || made.Steps[0].Component == cluster.Manifests || len(cluster.Blocking(made.Findings)) > 0 {
			return
		}

		begun++
		first := made.Steps[0]

		// If a component of a control plane had the last turn, it is waited for.
		last := 0

		for _, node := range s.snapshot.ControlPlanes() {
			whole := node.Kube.Ready || node.Name == first.Node

			for component, pod := range node.Pods {
				own := slices.ContainsFunc(made.Steps, func(step plan.Step) bool {
					return step.Hop == first.Hop && step.Node == node.Name && (step.Component == component || step.Node == first.Node && first.Component == "")
				})
				whole = whole && (pod.Ready || own)
			}

			if !whole {
				last++
			}
		}

		if last > 1 || (last > 0 && first.Component == "") {
			rt.Fatalf("%s %s begins beside %d control planes that do not serve", first.Node, first.Component, last)
		}
	})

	if begun == 0 {
		t.Error("no roll ever began, so nothing was seen")
	}
}

// drawWhole returns a cluster in which nothing is wrong, except that components lag and some do not serve.
func drawWhole(rt *rapid.T) *scene {
	s := newScene(rapid.IntRange(1, 3).Draw(rt, "control planes"), 1).asserts("1.35.0")
	if rapid.Bool().Draw(rt, "Kubernetes alone") {
		s.unmanaged()
	}

	for _, node := range s.snapshot.ControlPlanes() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet} {
			if rapid.Bool().Draw(rt, node.Name+" moved "+string(component)) {
				s.component(node.Name, component, "1.35.0")
			}

			switch ill := rapid.IntRange(0, 7).Draw(rt, node.Name+" "+string(component)) == 0; {
			case ill && component == cluster.Kubelet:
				s.notReady(node.Name)
			case ill:
				s.ailing(node.Name, component, "CrashLoopBackOff")
			}
		}
	}

	return s
}

// drawRoll returns a cluster in service, with mixed versions, that any sensible policy may upgrade.
func drawRoll(rt *rapid.T) *scene {
	number := func(what string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, what) }
	s := newScene(rapid.SampledFrom([]int{1, 3, 5}).Draw(rt, "control planes"), number("workers", 0, 6))

	talos, kubernetes := number("talos", 8, 13), number("kubernetes", 26, 36)
	s.kubernetes(fmt.Sprintf("1.%d.1", kubernetes))
	s.target.Talos = version.MustParse(fmt.Sprintf("1.%d.1", min(talos+number("hops of talos", 0, 3), 15)))

	if rapid.Bool().Draw(rt, "kubernetes is managed") {
		s.target.Kubernetes = version.MustParse(fmt.Sprintf("1.%d.2", min(kubernetes+number("hops of kubernetes", 0, 3), 38)))
	}

	s.policy.AllowIntermediate = true
	s.policy.Order = rapid.SampledFrom([]cluster.Order{cluster.WorkersFirst, cluster.ControlPlanesFirst}).Draw(rt, "order")
	s.policy.Kubernetes.MaxUnavailableKubelets = share(rapid.SampledFrom([]string{"1", "2", "50%", "100%"}).Draw(rt, "max_unavailable_kubelets"))
	s.policy.Kubernetes.Manifests.Sync = rapid.IntRange(0, 3).Draw(rt, "manifests") > 0
	s.policy.Kubernetes.Manifests.Timeout = rapid.SampledFrom([]time.Duration{time.Minute, time.Minute, 0}).Draw(rt, "manifests timeout")

	if rapid.IntRange(0, 4).Draw(rt, "kube-proxy") == 0 {
		s.proxyless()
	}

	s.policy.MaxUnavailable = share(rapid.SampledFrom([]string{"1", "2", "3", "34%", "50%", "100%"}).Draw(rt, "max_unavailable"))
	s.policy.Hold = map[string]bool{}

	for i := range s.snapshot.Nodes {
		node := &s.snapshot.Nodes[i]
		node.Machine.Talos = version.MustParse(fmt.Sprintf("1.%d.0", min(talos+number(node.Name+" ahead", 0, 2)/2, 15)))

		switch rapid.SampledFrom([]string{"", "", "", "", "", "", "not ready", "cordoned", "held", "canary", "kubelet"}).Draw(rt, node.Name) {
		case "not ready":
			if node.Role == cluster.Worker {
				s.notReady(node.Name)
			}
		case "cordoned":
			s.cordoned(node.Name, "")
		case "held":
			s.policy.Hold[node.Name] = true
		case "canary":
			if node.Role == cluster.Worker {
				s.policy.Canary = append(s.policy.Canary, node.Name)
			}
		case "kubelet":
			if node.Role == cluster.Worker {
				s.component(node.Name, cluster.Kubelet, fmt.Sprintf("1.%d.0", kubernetes-number("behind", 0, 2)))
			}
		}
	}

	return s
}

// roll carries out a plan as an engine does: it plans again whenever something begins or ends, and turns that run at
// the same time end in any order.
type roll struct {
	*scene
	t    *rapid.T
	busy []plan.Step
	// supported is true if the matrix allowed every pair of versions at the beginning.
	supported bool
	// reboots counts the turns in Talos by node.
	reboots map[string]int
	// machines are the machines that do not answer.
	machines map[string]*cluster.Machine
}

func TestProperty_RollsAreSafeAtEveryMoment(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawRoll(rt)

		before := s.make()
		if len(cluster.Blocking(before.Findings)) > 0 {
			rt.Skip("it is not fit to be rolled")
		}

		started := map[string]version.Version{}
		for _, node := range s.snapshot.Nodes {
			started[node.Name] = node.Machine.Talos
		}

		r := &roll{scene: s, t: rt, reboots: map[string]int{}, machines: map[string]*cluster.Machine{}}
		r.supported = r.unsupported() == ""
		r.play()

		after := s.make()
		if len(after.Steps)+len(after.Elsewhere) > 0 || len(cluster.Blocking(after.Findings)) > 0 {
			rt.Fatalf("the roll ended with\n%s", render(after))
		}

		s.checkSynced(rt)

		for name, from := range started {
			want := int(s.target.Talos.Minor().Minor - from.Minor().Minor)
			if want == 0 && from.Less(s.target.Talos) {
				want = 1
			}

			if s.policy.Hold[name] {
				want = 0
			}

			if r.reboots[name] != want {
				rt.Fatalf("%s was rebooted %d times on its way from %s to %s", name, r.reboots[name], from, s.target.Talos)
			}
		}
	})
}

func (r *roll) play() {
	for turns := 0; ; turns++ {
		made := r.make()
		if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
			r.t.Fatalf("with %d turns going on: %v", len(r.busy), blocking)
		}

		r.checkFaltering()

		started := made.Startable(r.snapshot, r.busy)

		switch {
		case len(started)+len(r.busy) == 0 && len(made.Steps) > 0:
			r.t.Fatalf("nothing may start of\n%s", render(made))
		case len(started)+len(r.busy) == 0:
			return
		case turns > 1000:
			r.t.Fatal("the roll does not end")
		}

		r.begin(made, started)
		r.progress()
	}
}

// begin starts the turns one after the other, and checks the cluster at each moment.
func (r *roll) begin(made plan.Plan, started []plan.Step) {
	for _, step := range started {
		if step.Component == cluster.Manifests {
			if len(r.busy)+len(started) > 1 {
				r.t.Fatalf("manifests begin beside %v", slices.Concat(r.busy, started))
			}

			r.busy = append(r.busy, step)

			continue
		}

		r.checkBudgets(made, step)

		for _, other := range r.busy {
			if step.Role == cluster.ControlPlane || other.Role == cluster.ControlPlane || step.Component != other.Component || (step.Component != "" && step.Component != cluster.Kubelet) {
				r.t.Fatalf("%s %s begins beside %s %s", step.Node, step.Component, other.Node, other.Component)
			}

			if other.Node == step.Node || !other.To.Equal(step.To) {
				r.t.Fatalf("%s to %s begins beside %s to %s", step.Node, step.To, other.Node, other.To)
			}
		}

		if r.policy.Hold[step.Node] {
			r.t.Fatalf("%s is held and has its turn", step.Node)
		}

		r.checkCanaries(step)
		r.checkVersions(*r.node(step.Node), step)

		if step.Component == "" {
			r.reboots[step.Node]++
		}

		r.busy = append(r.busy, step)
	}
}

// away returns the workers that are unavailable, and those that are about to be.
func (r *roll) away() map[string]bool {
	away := map[string]bool{}

	for _, node := range r.snapshot.Workers() {
		if !node.Available() || slices.ContainsFunc(r.busy, func(s plan.Step) bool { return s.Node == node.Name }) {
			away[node.Name] = true
		}
	}

	return away
}

// progress advances one of the turns going on: its node is cordoned and entered in the journal, goes away, comes
// back with the new version but not yet in service, or ends its turn.
func (r *roll) progress() {
	if len(r.busy) == 0 {
		return
	}

	index := rapid.IntRange(0, len(r.busy)-1).Draw(r.t, "who")
	step := r.busy[index]

	var node *cluster.Node
	if step.Component != cluster.Manifests {
		node = r.node(step.Node)
	}

	what := rapid.SampledFrom([]string{"cordoned", "away", "back", "done", "done"}).Draw(r.t, "what")
	if step.Component != "" && what != "cordoned" {
		what = "done"
	}

	switch {
	case step.Component == cluster.Manifests && what != "done":
		r.due()

		return
	case step.Component != "" && what != "done":
		// The machine configuration is changed, and nothing has restarted yet.
		r.due().namesComponent(step.Node, step.Component, step.Image)

		return
	}

	switch what {
	case "cordoned":
		r.enter(node, step, cluster.PhaseIntent)
	case "away":
		r.enter(node, step, cluster.PhaseRebooting)

		if node.Machine != nil {
			r.machines[step.Node] = node.Machine
		}

		r.silent(step.Node)
		node.Kube.Ready = false
	case "back":
		r.enter(node, step, cluster.PhaseRebooting)
		r.restore(node, step)
		node.Machine.Talos = step.To
	case "done":
		if node != nil {
			r.restore(node, step)
		}

		r.carryOut(step)

		r.busy = slices.Delete(r.busy, index, index+1)
		if r.supported && r.unsupported() != "" {
			r.t.Fatalf("after %s: %s", step.Node, r.unsupported())
		}
	}
}

// enter records the turn in the journal and on the node.
func (r *roll) enter(node *cluster.Node, step plan.Step, phase cluster.Phase) {
	if !node.Kube.Unschedulable {
		node.Kube.Unschedulable, node.Kube.CordonedBy = true, "run-1"
	}

	r.snapshot.Journal.Entries[step.Key] = cluster.Entry{
		Node: step.Node, Phase: phase, Attempt: 1, BootID: "b", Image: step.Image, Target: step.To, Previous: step.From, Run: "run-1",
	}
}

// restore makes a node that went away answer again.
func (r *roll) restore(node *cluster.Node, step plan.Step) {
	if node.Machine != nil {
		return
	}

	node.Machine, node.Unreachable = r.machines[step.Node], nil
	node.Machine.Talos = step.From

	if node.Role == cluster.ControlPlane {
		r.elect()
	}
}

// checkBudgets counts the workers that are away, and the turns. A kubelet may always restart if no other one does.
func (r *roll) checkBudgets(made plan.Plan, step plan.Step) {
	most, away := made.Budget, r.away()

	if step.Component == cluster.Kubelet {
		most, away = made.KubeletBudget, r.unready()
	}

	alone := step.Component == cluster.Kubelet && len(r.busy) == 0
	counts := step.Role == cluster.Worker && (step.Component == "" || step.Component == cluster.Kubelet)

	if counts && !alone && !away[step.Node] && len(away)+1 > most {
		r.t.Fatalf("%s %s begins while %v are unavailable, and %d may be", step.Node, step.Component, away, most)
	}

	if len(r.busy)+1 > most {
		r.t.Fatalf("%d turns at a time, and %d may be", len(r.busy)+1, most)
	}
}

// unready returns the workers whose kubelets are away, and those that are about to
// be.
func (r *roll) unready() map[string]bool {
	away := map[string]bool{}

	for _, node := range r.snapshot.Workers() {
		if !node.Kube.Ready || slices.ContainsFunc(r.busy, func(s plan.Step) bool { return s.Node == node.Name }) {
			away[node.Name] = true
		}
	}

	return away
}

// checkCanaries checks that every canary is past the release that another node is about to get.
func (r *roll) checkCanaries(step plan.Step) {
	for _, name := range r.policy.Canary {
		behind := r.node(name).Machine == nil || r.node(name).Machine.Talos.Minor().Compare(step.To.Minor()) < 0
		if step.Component == "" && !step.Canary && behind {
			r.t.Fatalf("%s begins before the canary %s is done", step.Node, name)
		}

		kubelet := r.node(name).Versions[cluster.Kubelet]
		if step.Component == cluster.Kubelet && !step.Canary && !r.policy.Hold[name] && kubelet.Minor().Compare(step.To.Minor()) < 0 {
			r.t.Fatalf("the kubelet of %s begins before that of the canary %s is done", step.Node, name)
		}
	}
}

// checkFaltering takes each canary without a turn out of service for a moment: nothing that has to wait for canaries
// may begin then.
func (r *roll) checkFaltering() {
	for _, name := range r.policy.Canary {
		node := r.node(name)
		if !node.Available() || slices.ContainsFunc(r.busy, func(s plan.Step) bool { return s.Node == name }) {
			continue
		}

		node.Kube.Ready = false

		for _, step := range r.make().Startable(r.snapshot, r.busy) {
			if step.Component == "" && !step.Canary && !step.Finish {
				r.t.Fatalf("%s begins while the canary %s is not Ready", step.Node, name)
			}
		}

		node.Kube.Ready = true
	}
}

// checkVersions checks the turn against S5.
func (r *roll) checkVersions(node cluster.Node, step plan.Step) {
	running := node.Machine.Talos

	if step.Component != "" {
		running = node.Versions[step.Component]

		_, tag, _ := strings.Cut(step.Configured, ":v")
		if named := version.MustParse(tag); step.Component == cluster.Proxy || named.Less(running) {
			running = named
		}

		if step.Configured != node.Machine.Config.Images[step.Component] || !strings.HasSuffix(step.Image, ":"+step.To.Tag()) {
			r.t.Fatalf("%s %s names %s and is to go from %q to %q", step.Node, step.Component, node.Machine.Config.Images[step.Component], step.Configured, step.Image)
		}
	}

	if !running.Equal(step.From) || !step.From.Less(step.To) || step.To.Minor().Compare(step.From.Minor().Next()) > 0 {
		r.t.Fatalf("%s %s runs %s and is to go from %s to %s", step.Node, step.Component, running, step.From, step.To)
	}

	if step.Component == cluster.Kubelet {
		for _, other := range r.snapshot.Nodes {
			if api, found := other.Versions[cluster.APIServer]; found && api.Minor().Compare(step.To.Minor()) < 0 {
				r.t.Fatalf("the kubelet of %s moves to %s, and the API server of %s is %s", step.Node, step.To, other.Name, api)
			}
		}
	}
}

// checkSynced checks that no sync of the manifests is pending, and that the pods of kube-proxy are at the target.
func (s *scene) checkSynced(rt *rapid.T) {
	if !s.policy.Kubernetes.Manifests.Sync || s.unrendered() {
		return
	}

	if s.snapshot.Journal.Manifests != nil {
		rt.Fatal("the roll ended without a sync of the manifests")
	}

	if s.target.Kubernetes.IsZero() {
		return
	}

	for _, node := range s.snapshot.Nodes {
		if pod, runs := node.Versions[cluster.Proxy]; runs && !s.policy.Hold[node.Name] && !pod.Equal(s.target.Kubernetes) {
			rt.Fatalf("the kube-proxy of %s is %s in the end", node.Name, pod)
		}
	}
}

// unsupported returns the first pair of versions, on any nodes, that the matrix does not allow.
func (r *roll) unsupported() string {
	for _, one := range r.snapshot.Nodes {
		if one.Machine == nil {
			continue
		}

		for _, other := range r.snapshot.Nodes {
			for component, running := range other.Versions {
				// If nothing syncs the pods, they stay behind, as the policy says.
				if component == cluster.Proxy && (!r.policy.Kubernetes.Manifests.Sync || r.unrendered()) {
					continue
				}

				if err := compat.Supports(one.Machine.Talos, running); err != nil {
					return fmt.Sprintf("%s beside %s: %v", one.Name, other.Name, err)
				}
			}
		}
	}

	return ""
}
