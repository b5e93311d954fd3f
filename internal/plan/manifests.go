// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// scheduleManifests ends the hop with a sync of the bootstrap manifests: after
// each hop of Kubernetes that leaves pods of kube-proxy behind, because they must
// not fall further behind the kubelets, and at the end of the whole way, for Talos
// brings manifests of its own.
func (p *planner) scheduleManifests(index int, hop Hop) {
	if !p.syncs {
		return
	}

	moves := hop.Axis == Kubernetes && p.podsLag(hop.To.Kubernetes)
	ends := index == len(p.made.Hops)-1 && len(p.made.Steps) > 0

	if moves || ends {
		p.syncManifests(index, hop)
	}
}

// waitsForPods tells whether a sync waits until what it changed is rolled out.
func (p *planner) waitsForPods() bool { return p.policy.Kubernetes.Manifests.Timeout > 0 }

// manifestsDue tells that an earlier run did not get to a sync.
func (p *planner) manifestsDue() bool {
	return p.snapshot.Journal != nil && p.snapshot.Journal.Manifests != nil
}

// dropSync takes syncs away that only pods of kube-proxy ask for, where nobody
// waits for these: they would be repeated for as long as the pods take.
func (p *planner) dropSync() {
	moves := func(s Step) bool { return s.Component != cluster.Manifests }
	if p.waitsForPods() || p.manifestsDue() || len(p.made.Steps) == 0 || slices.ContainsFunc(p.made.Steps, moves) {
		return
	}

	p.made.Steps, p.synced = nil, version.Version{}
	p.made.Hops = slices.DeleteFunc(p.made.Hops, p.onlyForPods)
}

// syncManifests adds the step. Where nothing lies between it and another one, it
// is put off until here.
func (p *planner) syncManifests(index int, hop Hop) {
	step := Step{
		Hop: index, Component: cluster.Manifests, Estimate: manifestsEstimate,
		From: hop.From.Kubernetes, To: hop.To.Kubernetes,
	}

	if last := len(p.made.Steps) - 1; last >= 0 && p.made.Steps[last].Component == cluster.Manifests {
		step.From = p.made.Steps[last].From
		p.made.Steps = p.made.Steps[:last]
	}

	p.made.Steps = append(p.made.Steps, step)
	p.synced = version.Highest(p.synced, hop.To.Kubernetes)
}

// scheduleSync adds a sync of the manifests where nothing else is left to do:
// one that an earlier run did not get to, or that kube-proxy alone needs.
func (p *planner) scheduleSync() {
	if len(p.made.Steps) > 0 || p.blocked || !p.syncs {
		return
	}

	if !p.manifestsDue() && (p.target.Kubernetes.IsZero() || !p.podsLag(p.target.Kubernetes)) {
		return
	}

	hop := Hop{Axis: Kubernetes, From: p.start, To: p.start}
	if hops := p.made.Hops; len(hops) > 0 {
		hop = hops[len(hops)-1]
	} else {
		p.made.Hops = []Hop{hop}
	}

	p.syncManifests(len(p.made.Hops)-1, hop)
}

// addImageHop adds a hop in which no version changes where components are only
// given images of another repository.
func (p *planner) addImageHop() {
	if p.target.Kubernetes.IsZero() || p.start.Kubernetes.IsZero() || slices.ContainsFunc(p.made.Hops, func(h Hop) bool { return h.Axis == Kubernetes }) {
		return
	}

	wanting := slices.ContainsFunc(p.nodes, func(node subject) bool {
		return !node.held && slices.ContainsFunc(node.parts, func(t part) bool { return p.wants(&node, &t) })
	})
	if !wanting {
		return
	}

	at := p.start
	if hops := p.made.Hops; len(hops) > 0 {
		at = hops[len(hops)-1].To
	}

	p.made.Hops = append(p.made.Hops, Hop{Axis: Kubernetes, From: at, To: at})
}
