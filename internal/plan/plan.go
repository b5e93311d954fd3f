// SPDX-License-Identifier: MPL-2.0

// Package plan decides, from an observation alone, which nodes have to move, in
// which order, through which versions and with which image, or why they cannot.
// It is pure: no clock, no context, no I/O.
package plan

import (
	"cmp"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Step is what is done to one node, or to one of its components.
type Step struct {
	// Hop is the index in [Plan.Hops] of the hop that the step is a part of.
	Hop int
	// Component is the part of Kubernetes that moves; empty for a step that
	// moves Talos. The step of [cluster.Manifests] names no node.
	Component cluster.Component
	// Pool is the name of the pool that the worker belongs to; empty where there is
	// none.
	Pool string
	// Canary tells that nothing but canaries moves before this one is done; for
	// a component, that none of its kind does.
	Canary bool
	// Estimate is roughly how long the step takes.
	Estimate time.Duration

	Node    string
	Role    cluster.Role
	Address string
	// Key is the one of the node's entry in the journal.
	Key string
	// From is what the node runs when the step begins: at present or, where it
	// has a step in an earlier hop, after that.
	From, To version.Version
	// Image is the installer image with its tag or, for a component, the one that
	// the machine configuration is to name; empty for manifests.
	Image string
	// Configured is what the machine configuration names for a component when
	// the step begins; empty where it names nothing.
	Configured string
	// Schematic is the one the node must report afterwards; empty when the
	// image does not tell.
	Schematic string
	// Demanded tells that a node with the right version and another schematic
	// is not at its target.
	Demanded bool
	// API is the way in which the node takes this step, as From decides; empty
	// for a component, and for a node that does not answer and has to be
	// finished.
	API cluster.UpgradeAPI
	// Finish tells that an earlier run left the node in the middle of its
	// step: it is looked at before anything else is done. Only the first step
	// of a node can be one.
	Finish bool
	// Done tells that nothing has to be installed: only the way back into
	// service is left.
	Done bool
}

// Plan is what has to be done, and what stands in the way.
type Plan struct {
	// Hops are the parts of the way from what runs to the target, in order.
	Hops []Hop
	// Steps are in the order in which the nodes move, through all hops: a node
	// has one step in each hop of Talos that concerns it, and one for each of
	// its components in each hop of Kubernetes.
	Steps []Step
	// Held are the names of the nodes that the policy leaves alone.
	Held []string
	// Policy is the one that the plan was made with, with what its selectors chose.
	Policy cluster.Policy
	// Budget is how many workers may be unavailable at a time.
	Budget int
	// KubeletBudget is how many workers' kubelets may be restarting at a time.
	KubeletBudget int
	// Settle is how long a node must stay healthy before the next one starts.
	Settle time.Duration
	// Talos and Kubernetes are how far the two products are.
	Talos, Kubernetes cluster.Progress
	// AtTarget are the names of the nodes with nothing to do.
	AtTarget []string
	// Elsewhere are the names of the nodes that are not known to be at the
	// target and cannot be moved there: silent ones, newer ones, and all that
	// are to be moved when there is no way. A finding says why.
	Elsewhere []string
	// Findings that are not [cluster.Advice] forbid to begin.
	Findings []cluster.Finding

	// faltering tells that a canary which has no step before the others is not
	// in service.
	faltering bool
}

// Total counts the nodes that the target applies to: all but the held ones.
func (p Plan) Total() int {
	moving := make(map[string]struct{}, len(p.Steps))

	for i := range p.Steps {
		if p.Steps[i].Component != cluster.Manifests {
			moving[p.Steps[i].Node] = struct{}{}
		}
	}

	return len(moving) + len(p.AtTarget) + len(p.Elsewhere)
}

// Make plans the way from what was observed to the target. It never fails: what
// cannot be is a finding.
func Make(observed cluster.Observation, target cluster.Target, policy cluster.Policy) Plan {
	p := newPlanner(observed, target, policy)

	p.measure()
	p.route()
	p.checkInventory()
	p.checkNames()
	p.checkIntermediate()
	p.checkHeld()
	p.checkUnfinished()
	p.checkProxyImage()
	p.checkAgreement()
	p.checkUnreported()
	p.checkServing()
	p.schedule()
	p.explainIdle()
	p.countSteps()
	p.checkDigests()
	p.checkDefects()
	p.checkReleases()
	p.checkWritten()
	p.adviseImages()
	p.checkContainers()
	p.checkPendingInstalls()
	p.checkManifests()
	p.checkWork()
	p.adviseServing()
	p.made.Findings = p.policy.Skip(p.made.Findings)

	return p.made
}

// planner is a plan in the making.
type planner struct {
	snapshot cluster.Observation
	target   cluster.Target
	policy   cluster.Policy
	walk     Walk
	canaries map[string]bool
	// selected is what is wrong with what the selectors choose.
	selected []cluster.Finding
	// nodes are those that are there, in the order of the observation.
	nodes []plannedNode
	// unclaimed is what the journal has open under no machine ID of a node.
	unclaimed cluster.Journal
	// start is what the cluster runs: the lowest of what has to move.
	start State
	// blocked tells that there is no way to the target.
	blocked bool
	// proxyless tells that Talos manages kube-proxy nowhere.
	proxyless bool
	// syncs tells that the manifests are to be synced, and may be.
	syncs bool
	// synced is the version that the last sync of the manifests so far leaves the
	// pods of kube-proxy at.
	synced version.Version
	// ailing are the components at the target that are not Ready.
	ailing []ailment
	made   Plan
}

func newPlanner(observed cluster.Observation, target cluster.Target, policy cluster.Policy) *planner {
	if policy.MaxUnavailable == (cluster.Share{}) {
		policy.MaxUnavailable = cluster.OneAtATime()
	}

	policy.Releases = cmp.Or(policy.Releases, compat.BuiltIn())
	policy, selected := Select(observed, policy)

	p := &planner{
		snapshot: observed, target: target, policy: policy, selected: selected,
		walk:     Walk{Intermediate: policy.Intermediate, AllowUnknown: policy.AllowUnknown, Releases: policy.Releases},
		canaries: make(map[string]bool, len(policy.Canaries())),
		nodes:    make([]plannedNode, 0, len(observed.Nodes)),

		proxyless: withoutProxy(observed, policy),
		syncs:     policy.Kubernetes.Manifests.Sync && !allHeld(observed, policy),
	}

	for _, name := range policy.Canaries() {
		p.canaries[name] = true
	}

	if observed.Journal != nil {
		p.unclaimed = observed.Journal.Unclaimed(observed.Nodes)
	}

	for i := range observed.Nodes {
		node := &observed.Nodes[i]
		if node.Gone {
			continue
		}

		subject := p.describe(node)
		if subject.held {
			p.made.Held = append(p.made.Held, node.Name)
		}

		p.nodes = append(p.nodes, subject)
	}

	p.made.Budget, p.made.Settle = observed.Budget(policy.MaxUnavailable), policy.Settle
	p.made.Policy = policy
	p.made.KubeletBudget = observed.Budget(policy.Kubernetes.MaxUnavailableKubelets)

	return p
}

// add adds to the findings.
func (p *planner) add(findings ...cluster.Finding) {
	p.made.Findings = append(p.made.Findings, findings...)
}

// explainIdle says of every node that has no step why it has none.
func (p *planner) explainIdle() {
	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.held, node.steps > 0:
		case p.arrived(node):
			p.made.AtTarget = append(p.made.AtTarget, node.Name)
		default:
			p.made.Elsewhere = append(p.made.Elsewhere, node.Name)
		}
	}
}

// arrived tells whether the node is known to be at the target.
func (p *planner) arrived(node *plannedNode) bool {
	if !p.target.Talos.IsZero() && !p.arrivedTalos(node) {
		return false
	}

	if p.target.Kubernetes.IsZero() {
		return !p.target.Talos.IsZero()
	}

	return p.arrivedKubernetes(node)
}
