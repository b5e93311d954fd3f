// SPDX-License-Identifier: MPL-2.0

// Package plan decides, from an observation alone, which nodes have to move, in which order, through which
// versions and with which image, or why they cannot. It is pure: no clock, no context, no I/O.
package plan

import (
	"cmp"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Step is an upgrade of one node, or of one of its components.
type Step struct {
	// Hop is the index in [Plan.Hops] of the hop that the step belongs to.
	Hop int
	// Component is the part of Kubernetes that moves; empty for a step that moves Talos. The step of
	// [cluster.Manifests] names no node.
	Component cluster.Component
	// Pool is the name of the pool that the worker belongs to; empty if it belongs to none.
	Pool string
	// Canary is true if only canaries may move before this step is done; for a component, only canaries of its
	// kind.
	Canary bool
	// Estimate is roughly how long the step takes.
	Estimate time.Duration

	Node    string
	Role    cluster.Role
	Address string
	// Key is the key of the node's entry in the journal.
	Key string
	// From is what the node runs when the step begins: now or, if it has a step in an earlier hop, after that
	// step.
	From, To version.Version
	// Image is the installer image with its tag or, for a component, the image that the machine configuration
	// will name; empty for manifests.
	Image string
	// Configured is what the machine configuration names for a component when the step begins; empty if it names
	// nothing.
	Configured string
	// Schematic is what the node must report afterwards; empty if the image does not say.
	Schematic string
	// Demanded is true if a node with the right version and another schematic is not at its target.
	Demanded bool
	// API is the API through which the node is upgraded in this step, which depends on From; empty for a
	// component, and for a node that does not answer and has to be finished.
	API cluster.UpgradeAPI
	// Finish is true if an earlier run left the node in the middle of its step: it is examined before anything
	// else is done. Only the first step of a node can be one.
	Finish bool
	// Done is true if nothing has to be installed, and the node only has to be brought back into service.
	Done bool
	// MovesLater is true if the node only has to be brought back into service, and moves in a later step.
	MovesLater bool
}

// Plan is what has to be done, and what prevents it.
type Plan struct {
	// Hops are the parts of the path from what runs to the target, in order.
	Hops []Hop
	// Steps are in the order in which the nodes move, through all hops: a node has one step in each hop of Talos
	// that concerns it, before the first of which it may have to return to service, and one for each of its
	// components in each hop of Kubernetes.
	Steps []Step
	// Held are the names of the nodes that the policy leaves alone.
	Held []string
	// Policy is the policy that the plan was made with, including what its selectors chose.
	Policy cluster.Policy
	// Budget is how many workers may be unavailable at a time.
	Budget int
	// KubeletBudget is how many workers' kubelets may be restarting at a time.
	KubeletBudget int
	// Settle is how long a node must stay healthy before the next one starts.
	Settle time.Duration
	// Talos and Kubernetes are the progress of the two products.
	Talos, Kubernetes cluster.Progress
	// AtTarget are the names of the nodes with nothing to do.
	AtTarget []string
	// Elsewhere are the names of the nodes that are not known to be at the target and have no step: those that do
	// not answer, those that are newer, and, if there is no path, all that would have to move. A finding says
	// why.
	Elsewhere []string
	// Findings other than [cluster.Advice] prevent the roll from beginning.
	Findings []cluster.Finding

	// faltering is true if a canary that has no step before the others is not in service.
	faltering bool
}

// Total returns the number of nodes that the target applies to: all but the held ones.
func (p Plan) Total() int {
	moving := make(map[string]struct{}, len(p.Steps))

	for i := range p.Steps {
		if p.Steps[i].Component != cluster.Manifests {
			moving[p.Steps[i].Node] = struct{}{}
		}
	}

	return len(moving) + len(p.AtTarget) + len(p.Elsewhere)
}

// Make plans the path from the observation to the target. It never fails: problems are findings.
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
	// selected are the findings about what the selectors choose.
	selected []cluster.Finding
	// nodes are the nodes that are not gone, in the order of the observation.
	nodes []plannedNode
	// unclaimed has the open entries of the journal whose key is the machine ID of no node.
	unclaimed cluster.Journal
	// start is what the cluster runs: the lowest versions of what has to move.
	start State
	// blocked is true if there is no path to the target.
	blocked bool
	// proxyless is true if Talos does not manage kube-proxy.
	proxyless bool
	// syncs is true if the policy syncs the manifests and a control plane may render them.
	syncs bool
	// synced is the version to which the last scheduled sync of the manifests moves the pods of kube-proxy.
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

// add adds findings to the plan.
func (p *planner) add(findings ...cluster.Finding) {
	p.made.Findings = append(p.made.Findings, findings...)
}

// explainIdle puts every node without a step into AtTarget or Elsewhere.
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

// arrived reports whether the node is known to be at the target.
func (p *planner) arrived(node *plannedNode) bool {
	if !p.target.Talos.IsZero() && !p.arrivedTalos(node) {
		return false
	}

	if p.target.Kubernetes.IsZero() {
		return !p.target.Talos.IsZero()
	}

	return p.arrivedKubernetes(node)
}
