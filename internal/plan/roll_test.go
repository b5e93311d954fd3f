// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
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

		r := &roll{scene: s, t: rt, reboots: map[string]int{}}
		r.supported = r.unsupported() == ""
		r.play()

		after := s.make()
		if len(after.Steps)+len(after.Elsewhere) > 0 || len(cluster.Blocking(after.Findings)) > 0 {
			rt.Fatalf("the roll ended with\n%s", render(after))
		}

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
		node := r.node(step.Node)
		away := r.away()

		if step.Role == cluster.Worker && step.Component == "" && !away[step.Node] && len(away)+1 > made.Budget {
			r.t.Fatalf("%s begins while %v are unavailable, and %d may be", step.Node, away, made.Budget)
		}

		for _, other := range r.busy {
			if step.Role == cluster.ControlPlane || other.Role == cluster.ControlPlane || step.Component != "" || other.Component != "" {
				r.t.Fatalf("%s %s begins beside %s %s", step.Node, step.Component, other.Node, other.Component)
			}

			if other.Node == step.Node || !other.To.Equal(step.To) {
				r.t.Fatalf("%s to %s begins beside %s to %s", step.Node, step.To, other.Node, other.To)
			}
		}

		if len(r.busy)+1 > made.Budget {
			r.t.Fatalf("%d turns at a time, and %d may be", len(r.busy)+1, made.Budget)
		}

		if r.policy.Hold[step.Node] {
			r.t.Fatalf("%s is held and has its turn", step.Node)
		}

		r.checkCanaries(step)
		r.checkVersions(*node, step)

		if step.Component == "" {
			r.reboots[step.Node]++
		}

		r.busy = append(r.busy, step)
	}
}

// checkCanaries wants every canary past the release that another node is about
// to get.
func (r *roll) checkCanaries(step plan.Step) {
	for _, name := range r.policy.Canary {
		behind := r.node(name).Machine == nil || r.node(name).Machine.Talos.Minor().Compare(step.To.Minor()) < 0
		if step.Component == "" && !step.Canary && behind {
			r.t.Fatalf("%s begins before the canary %s is done", step.Node, name)
		}
	}
}

// checkFaltering lets each canary in turn that is not on its way fall out of
// service for a moment: nothing that is to wait for canaries may begin then.
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

// checkVersions holds the turn against S5.
func (r *roll) checkVersions(node cluster.Node, step plan.Step) {
	running := node.Versions[step.Component]
	if step.Component == "" {
		running = node.Machine.Talos
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
	node := r.node(step.Node)

	what := rapid.SampledFrom([]string{"cordoned", "away", "back", "done", "done"}).Draw(r.t, "what")
	if step.Component != "" {
		what = "done"
	}

	switch what {
	case "cordoned":
		r.enter(node, step, cluster.PhaseIntent)
	case "away":
		r.enter(node, step, cluster.PhaseRebooting)
		r.silent(step.Node)
		node.Kube.Ready = false
	case "back":
		r.enter(node, step, cluster.PhaseRebooting)
		r.restore(node, step)
		node.Machine.Talos = step.To
	case "done":
		r.restore(node, step)
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

	r.snapshot.Journal.Entries[step.UUID] = cluster.Entry{
		Node: step.Node, Phase: phase, Attempt: 1, BootID: "b", Image: step.Image, Target: step.To, Previous: step.From, Run: "run-1",
	}
}

// restore lets a node that went away answer again.
func (r *roll) restore(node *cluster.Node, step plan.Step) {
	if node.Machine != nil {
		return
	}

	fresh := newScene(0, 0)
	fresh.add(node.Role, node.Name, node.Address)

	node.Machine, node.Unreachable = fresh.snapshot.Nodes[0].Machine, nil
	node.Machine.Talos = step.From

	if node.Role == cluster.ControlPlane {
		r.elect()
	}
}

// unsupported is the first pair of versions, of whichever nodes, that the
// matrix does not allow.
func (r *roll) unsupported() string {
	for _, one := range r.snapshot.Nodes {
		if one.Machine == nil {
			continue
		}

		for _, other := range r.snapshot.Nodes {
			for _, running := range other.Versions {
				if err := compat.Supports(one.Machine.Talos, running); err != nil {
					return fmt.Sprintf("%s beside %s: %v", one.Name, other.Name, err)
				}
			}
		}
	}

	return ""
}
