// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// EventKind is what an event reports.
type EventKind string

const (
	// EventPlanned: the cluster was looked at; Outline says what is about to be
	// done, or what forbids it. It comes before the lease, and once at most.
	EventPlanned EventKind = "planned"
	// EventRunStarted: the lease is held and the plan stands.
	EventRunStarted EventKind = "run-started"
	// EventNodeStarted: a node's upgrade began.
	EventNodeStarted EventKind = "node-started"
	// EventNodeStep: a node entered the step that Step names.
	EventNodeStep EventKind = "node-step"
	// EventPulled: the images that a node pulls before anything is disturbed are
	// there or, with Err, one is not.
	EventPulled EventKind = "pulled"
	// EventNodeDone: a node runs the target, healthy and uncordoned.
	EventNodeDone EventKind = "node-done"
	// EventNodeStopped: a node's upgrade ended before the node was done; Err says why
	// where it failed, else Text does.
	EventNodeStopped EventKind = "node-stopped"
	// EventWaiting: something is being waited for; Text says what.
	EventWaiting EventKind = "waiting"
	// EventWarning: something worth a person's attention; Text says what.
	EventWarning EventKind = "warning"
	// EventSuspended: somebody has suspended the upgrades of the cluster, and nothing
	// new is started; Text says who, since when and why.
	EventSuspended EventKind = "suspended"
	// EventResumed: they are no longer suspended.
	EventResumed EventKind = "resumed"
	// EventRunDone: every managed node runs the target.
	EventRunDone EventKind = "run-done"
	// EventRunLost: another run took the lease; nothing more may be said about
	// the cluster in the name of this one.
	EventRunLost EventKind = "run-lost"
	// EventRollingBack: the new system of the node did not become healthy or, with
	// Asked, a person wants the old one, and it is sent back to the version To; Text
	// says what was wrong, or who asked.
	EventRollingBack EventKind = "rolling-back"
	// EventRolledBack: the rollback of a node that a person asked for is over. The node
	// is in service with the version To or, with Err, is not.
	EventRolledBack EventKind = "rolled-back"
	// EventRunFailed: the run stopped; Err says why.
	EventRunFailed EventKind = "run-failed"
)

// NodeStep is what is being done to a node.
type NodeStep string

// The steps of one node's upgrade, in order.
const (
	StepPull      NodeStep = "pull"
	StepCordon    NodeStep = "cordon"
	StepDrain     NodeStep = "drain"
	StepInstall   NodeStep = "install"
	StepReboot    NodeStep = "reboot"
	StepReturn    NodeStep = "return"
	StepEtcd      NodeStep = "etcd"
	StepReady     NodeStep = "ready"
	StepUncordon  NodeStep = "uncordon"
	StepLegacy    NodeStep = "legacy-upgrade"
	StepInstaller NodeStep = "installer-idle"
	// StepSnapshot takes a snapshot of etcd, before any of these.
	StepSnapshot NodeStep = "etcd-snapshot"
	// StepGates waits for the gates of the user, before anything else.
	StepGates NodeStep = "gates"
	// StepRollback sends the node back to its previous system.
	StepRollback NodeStep = "rollback"
	// StepInstallImage has the machine configuration name the image that runs.
	StepInstallImage NodeStep = "install-image"
)

// The steps of one component, in order, after [StepPull].
const (
	// StepConfigure changes the image in the machine configuration.
	StepConfigure NodeStep = "configure"
	// StepRestart waits for the component to run from that image.
	StepRestart NodeStep = "restart"
	// StepApply applies the bootstrap manifests.
	StepApply NodeStep = "apply"
	// StepRollout waits for what was applied to be rolled out.
	StepRollout NodeStep = "rollout"
)

// Progress is how far one product of a run is.
type Progress struct {
	// Managed tells that the target says something about this product.
	Managed bool
	// Done and Total count nodes at the target of this product, and all managed
	// nodes.
	Done, Total int
	// Steps counts what is left to do in this product.
	Steps int
	// Waits says why this product waits for the other one, a sentence in the words
	// of the annotation protocol; empty where it does not.
	Waits string
	// Lowest is the lowest version that may be claimed; zero where it cannot be
	// told.
	Lowest version.Version
}

// Event is one thing that happened in a run.
type Event struct {
	Kind EventKind
	Time time.Time
	// Node is empty for what concerns the whole cluster, as manifests do.
	Node string
	// Component is the part of Kubernetes that the event is about; empty for
	// what is about Talos or about the whole run.
	Component Component
	Step      NodeStep
	// Talos and Kubernetes are the two products as they were last seen; zero in
	// events of steps.
	Talos, Kubernetes Progress
	Target            Target
	// To is the version that the node of EventNodeStarted and EventNodeDone
	// moves to; it differs from the target where the way there has more than
	// one hop.
	To   version.Version
	Text string
	Err  error
	// Asked tells, of EventRollingBack, that a person asked for it.
	Asked bool
	// Outline is what [EventPlanned] is about; nil in all other events.
	Outline *Outline
}

// Outline is what a run set out to do, as it was planned from one observation.
// Whoever is told of it must not change it.
type Outline struct {
	// ClusterID is empty where the cluster did not say who it is.
	ClusterID string
	// Nodes are all nodes as they were then, Held the names of those that are left
	// alone.
	Nodes []Node
	Held  []string
	// Turns are in the order in which they are to be taken; none where nothing is
	// to be done, or nothing can be.
	Upgrades []PlannedUpgrade
	// Estimate is roughly how long all of them take.
	Estimate time.Duration
	// Findings are those of all checks.
	Findings []Finding
}

// PlannedUpgrade is one node, or one component of it, on the way from one version to
// another.
type PlannedUpgrade struct {
	// Node is empty for the upgrade of [Manifests].
	Node      string
	Role      Role
	Component Component
	From, To  version.Version
	// Image is the one that is installed or configured; empty for manifests.
	Image string
	// Estimate is zero where nobody knows.
	Estimate time.Duration
	// Canary tells that others wait for it, Finish that an earlier run began it.
	Canary, Finish bool
}

// Flusher is an observer that passes on later what it was told.
type Flusher interface {
	// Flush returns when everything is passed on, or when the context ends.
	Flush(ctx context.Context)
}

// Observer is told of events in order, from one goroutine at a time. It must
// not block for long and cannot stop a run.
type Observer interface {
	Observe(event Event)
}
