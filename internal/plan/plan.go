// SPDX-License-Identifier: MPL-2.0

// Package plan decides, from an observation alone, which nodes have to move, in
// which order and with which image, or why they cannot. It is pure: no clock,
// no context, no I/O.
package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Step is the turn of one node.
type Step struct {
	// Hop is the index in [Plan.Hops] of the hop that the step is a part of.
	Hop int
	// Component is the part of Kubernetes that moves; empty for a turn that
	// moves Talos.
	Component cluster.Component
	// Canary tells that nothing but canaries moves before this one is done.
	Canary bool
	// Estimate is roughly how long the turn takes.
	Estimate time.Duration

	Node     string
	Role     cluster.Role
	Address  string
	UUID     string
	From, To version.Version
	// Image is the installer image with its tag.
	Image string
	// Schematic is the one the node must report afterwards; empty when the
	// image does not tell.
	Schematic string
	// Demanded tells that a node with the right version and another schematic
	// is not at its target.
	Demanded bool
	API      cluster.UpgradeAPI
	// Finish tells that an earlier run left the node in the middle of its
	// turn: it is looked at before anything else is done.
	Finish bool
	// Done tells that nothing has to be installed: only the way back into
	// service is left.
	Done bool
}

// Plan is what has to be done, and what stands in the way.
type Plan struct {
	// Hops are the legs of the way from what runs to the target, in order.
	Hops []Hop
	// Steps are in the order in which the nodes move, through all hops: a node
	// has one turn in each hop that concerns it.
	Steps []Step
	// Held are the names of the nodes that the policy leaves alone.
	Held []string
	// Budget is how many workers may be unavailable at a time.
	Budget int
	// AtTarget are the names of the nodes with nothing to do.
	AtTarget []string
	// Elsewhere are the names of the nodes that are not known to be at the
	// target and cannot be moved there: silent ones and newer ones. A finding
	// says why.
	Elsewhere []string
	// Findings that are not [cluster.Advice] forbid to begin.
	Findings []cluster.Finding
}

// Total counts the nodes that the target applies to.
func (p Plan) Total() int { return len(p.Steps) + len(p.AtTarget) + len(p.Elsewhere) }

// Make plans the way from the snapshot to the target. It never fails: what
// cannot be is a finding.
func Make(snapshot cluster.Snapshot, target cluster.Target, policy cluster.Policy) Plan {
	var made Plan

	made.Findings = append(made.Findings, checkTarget(snapshot, target)...)
	made.Findings = append(made.Findings, checkInventory(snapshot)...)

	if target.Talos.IsZero() {
		return made
	}

	for _, node := range snapshot.Managed() {
		step, needed, findings := planNode(snapshot, node, target, policy)
		made.Findings = append(made.Findings, findings...)

		switch {
		case needed:
			made.Steps = append(made.Steps, step)
		case step.Done:
			made.AtTarget = append(made.AtTarget, node.Name)
		default:
			made.Elsewhere = append(made.Elsewhere, node.Name)
		}
	}

	sortSteps(snapshot, policy.Order, made.Steps)
	made.Findings = append(made.Findings, checkWork(snapshot, made.Steps)...)

	return made
}

// Startable are the steps, in order, that may begin now, beside the busy ones:
// those whose turn has begun and has not ended. The snapshot is the one the
// plan was made from.
func (p Plan) Startable(_ cluster.Snapshot, busy []Step) []Step {
	if len(busy) > 0 || len(p.Steps) == 0 {
		return nil
	}

	return p.Steps[:1]
}

// planNode plans one node. A node that does not answer has no step unless an
// earlier run left it in the middle of its turn.
func planNode(snapshot cluster.Snapshot, node cluster.Node, target cluster.Target, policy cluster.Policy) (Step, bool, []cluster.Finding) {
	entry, open := openEntry(snapshot, node)
	step := Step{
		Node: node.Name, Role: node.Role, Address: node.Address, UUID: node.UUID(),
		To: target.Talos, Finish: open || leftCordoned(node),
	}

	if node.Machine == nil {
		step.From, step.Image = entry.Previous, entry.Image

		return step, open, nil
	}

	step.From, step.API = node.Machine.Talos, node.Machine.UpgradeAPI()

	choice, err := chooseImage(node.Machine, target)
	step.Image, step.Schematic, step.Demanded = choice.Reference, choice.Schematic, choice.Demanded

	if atTarget(node.Machine, target.Talos, choice) {
		step.Done = true

		return step, step.Finish, nil
	}

	if node.Machine.Talos.Compare(target.Talos) > 0 {
		// Refused by checkTarget, which names it.
		return step, open, nil
	}

	var findings []cluster.Finding
	if err != nil {
		findings = append(findings, imageFinding(node.Name, target, err))
	}

	findings = append(findings, checkNode(snapshot, node, step, policy)...)

	return step, true, findings
}

// atTarget is the rule of what counts as done: the version, and the schematic
// where one is demanded.
func atTarget(machine *cluster.Machine, target version.Version, choice image.Choice) bool {
	if !machine.Talos.Equal(target) {
		return false
	}

	return !choice.Demanded || machine.Schematic == choice.Schematic
}

// chooseImage chooses nothing where the node's own repository decides and
// cannot be read: checkReadable says so.
func chooseImage(machine *cluster.Machine, target cluster.Target) (image.Choice, error) {
	if machine.Config == nil && target.InstallerImage == "" {
		return image.Choice{}, nil
	}

	return image.Resolve(runningImage(machine), target.Talos, target.InstallerImage)
}

func runningImage(machine *cluster.Machine) image.Running {
	running := image.Running{
		Schematic:  machine.Schematic,
		Extensions: machine.Extensions,
		Platform:   machine.Platform,
		SecureBoot: machine.SecureBoot,
	}

	if machine.Config != nil {
		running.InstallImage = machine.Config.InstallImage
	}

	return running
}

func openEntry(snapshot cluster.Snapshot, node cluster.Node) (cluster.Entry, bool) {
	if snapshot.Journal == nil {
		return cluster.Entry{}, false
	}

	entry, found := snapshot.Journal.Entries[node.UUID()]

	return entry, found && entry.Open()
}

// leftCordoned tells that a run of ours cordoned the node and did not live to
// take the cordon back.
func leftCordoned(node cluster.Node) bool {
	return node.Kube != nil && node.Kube.Unschedulable && node.Kube.CordonedBy != ""
}

// sortSteps puts first what an earlier run left unfinished, because nothing
// else may be disturbed before it is whole; then, within the demanded order of
// roles, the nodes that are unavailable anyway, because they cost nothing.
func sortSteps(snapshot cluster.Snapshot, order cluster.Order, steps []Step) {
	first := cluster.Worker
	if order == cluster.ControlPlanesFirst {
		first = cluster.ControlPlane
	}

	available := make(map[string]bool, len(snapshot.Nodes))
	for _, node := range snapshot.Nodes {
		available[node.Name] = node.Available()
	}

	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(
			falseLast(a.Finish, b.Finish),
			falseLast(a.Role == first, b.Role == first),
			falseLast(!available[a.Node], !available[b.Node]),
			cmp.Compare(a.Node, b.Node),
		)
	})
}

func falseLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
