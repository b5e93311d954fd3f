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
	// EventPlanned: the cluster was observed; Outline says what is about to be done, or what forbids it. It comes
	// before the lease is taken, at most once.
	EventPlanned EventKind = "planned"
	// EventRunStarted: the lease is held and the plan is final.
	EventRunStarted EventKind = "run-started"
	// EventNodeStarted: a node's upgrade began.
	EventNodeStarted EventKind = "node-started"
	// EventNodeStep: a node entered the step that Step names.
	EventNodeStep EventKind = "node-step"
	// EventPulled: the images that a node pulls before anything is disturbed are there or, if Err is set, one of
	// them is not.
	EventPulled EventKind = "pulled"
	// EventNodeDone: a node runs the target, healthy and uncordoned.
	EventNodeDone EventKind = "node-done"
	// EventNodeStopped: a node's upgrade ended before the node was done; Err says why if it failed, otherwise
	// Text does.
	EventNodeStopped EventKind = "node-stopped"
	// EventWaiting: something is being waited for; Text says what.
	EventWaiting EventKind = "waiting"
	// EventWarning: something worth a person's attention; Text says what.
	EventWarning EventKind = "warning"
	// EventSuspended: somebody has suspended the upgrades of the cluster, and nothing new is started; Text says
	// who did, since when and why.
	EventSuspended EventKind = "suspended"
	// EventResumed: the upgrades are no longer suspended.
	EventResumed EventKind = "resumed"
	// EventRunDone: every managed node runs the target.
	EventRunDone EventKind = "run-done"
	// EventRunLost: another run took the lease, or the operator of the cluster is upgrading it; this run must not
	// report anything more about the cluster.
	EventRunLost EventKind = "run-lost"
	// EventRollingBack: the node is sent back to the version To, because its new system did not become healthy
	// or, if Asked is true, because a person asked for it; Text says what was wrong, or who asked.
	EventRollingBack EventKind = "rolling-back"
	// EventRolledBack: the rollback of a node that a person asked for is over. The node is in service with the
	// version To or, if Err is set, is not.
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
	// StepInstallImage sets machine.install.image in the machine configuration to the image that runs.
	StepInstallImage NodeStep = "install-image"
)

// The steps of one component, in order. They follow [StepPull].
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

// Progress is how far a run has got with one product.
type Progress struct {
	// Managed is true if the target names a version of this product.
	Managed bool
	// Done is the number of nodes that run the target of this product, Total the number of all managed nodes.
	Done, Total int
	// Lagging is how many of the nodes in Done have a pod of kube-proxy of another version. All of these pods follow at
	// the end of a roll, with the bootstrap manifests.
	Lagging int
	// Steps is the number of steps left for this product.
	Steps int
	// Waits says why this product waits for the other one, a sentence in the words of the annotation protocol;
	// empty if it does not wait.
	Waits string
	// Lowest is the lowest version that the cluster can be said to run; zero if that is unknown.
	Lowest version.Version
}

// Complete reports whether everything on every managed node runs the target, the pods of kube-proxy included.
func (p Progress) Complete() bool { return p.Done-p.Lagging == p.Total }

// Event is one thing that happened in a run.
type Event struct {
	Kind EventKind
	Time time.Time
	// Node is empty if the event concerns the whole cluster, as with manifests.
	Node string
	// Component is the part of Kubernetes that the event is about; empty if it is about Talos or the whole run.
	Component Component
	Step      NodeStep
	// Talos and Kubernetes are the progress of the two products as last observed; zero in events of steps.
	Talos, Kubernetes Progress
	Target            Target
	// To is the version that the node of EventNodeStarted and EventNodeDone moves to; it differs from the target
	// if the path has more than one hop.
	To version.Version
	// Returns is true if the node of EventNodeStarted only returns to service with the version that it runs.
	Returns bool
	Text    string
	Err     error
	// Asked is true in an EventRollingBack that a person asked for.
	Asked bool
	// Outline is set in [EventPlanned] only.
	Outline *Outline
}

// Outline is what a run set out to do, as planned from one observation. Receivers must not change it.
type Outline struct {
	// ClusterID is empty if the cluster did not report an ID.
	ClusterID string
	// Nodes are all nodes as they were observed, Held the names of those that are left alone.
	Nodes []Node
	Held  []string
	// Upgrades are in the order in which they are planned; empty if there is nothing to do, or nothing can be
	// done.
	Upgrades []PlannedUpgrade
	// Estimate is roughly how long all upgrades take.
	Estimate time.Duration
	// Findings are the findings of all checks.
	Findings []Finding
}

// PlannedUpgrade is the upgrade of one node, or of one component of it, from one version to another.
type PlannedUpgrade struct {
	// Node is empty for the upgrade of [Manifests].
	Node      string
	Role      Role
	Component Component
	From, To  version.Version
	// Image is the image that is installed or configured; empty for manifests.
	Image string
	// Estimate is zero if it is unknown.
	Estimate time.Duration
	// Canary is true if other upgrades wait for this one, Finish if an earlier run began it.
	Canary, Finish bool
}

// Flusher is an observer that passes events on asynchronously.
type Flusher interface {
	// Flush returns when all events are passed on, or when the context ends.
	Flush(ctx context.Context)
}

// Observer receives events in order, from one goroutine at a time. It must not block for long and cannot stop a
// run.
type Observer interface {
	Observe(event Event)
}
