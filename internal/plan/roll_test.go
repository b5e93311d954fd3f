// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// drawRoll is a cluster in service, of mixed versions, that may be rolled by any
// sensible policy.
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

// roll plays a plan the way an engine does: it plans anew whenever something
// begins or ends, and what runs beside each other ends in any order.
type roll struct {
	*scene
	t    *rapid.T
	busy []plan.Step
	// supported tells that every pair of versions was so at the beginning.
	supported bool
	// reboots counts the turns in Talos by node.
	reboots map[string]int
	// machines are those the machines that do not answer.
	machines map[string]*cluster.Machine
}

func TestRollsAreSafeAtEveryMoment(t *testing.T) {
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

// begin starts the turns, one after the other, and looks at each moment.
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

// away are the workers that are unavailable, and those that are about to be.
func (r *roll) away() map[string]bool {
	away := map[string]bool{}

	for _, node := range r.snapshot.Workers() {
		if !node.Available() || slices.ContainsFunc(r.busy, func(s plan.Step) bool { return s.Node == node.Name }) {
			away[node.Name] = true
		}
	}

	return away
}

// progress lets something happen to one of the turns going on: its node is
// cordoned and entered in the journal, goes away, comes back with the new
// version and is not yet in service, or ends its turn.
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

// enter notes the turn in the journal and on the node.
func (r *roll) enter(node *cluster.Node, step plan.Step, phase cluster.Phase) {
	if !node.Kube.Unschedulable {
		node.Kube.Unschedulable, node.Kube.CordonedBy = true, "run-1"
	}

	r.snapshot.Journal.Entries[step.Key] = cluster.Entry{
		Node: step.Node, Phase: phase, Attempt: 1, BootID: "b", Image: step.Image, Target: step.To, Previous: step.From, Run: "run-1",
	}
}

// restore lets a node that went away answer again.
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
