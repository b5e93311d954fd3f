// SPDX-License-Identifier: MPL-2.0

// Package publish tells people and other tools how an upgrade is going, as
// upgrade.vitistack.io annotations on an object, and as phase and conditions in
// its status where its kind has them. It observes the engine and never holds it
// up: what cannot be published is retried in the background, and the last word is
// made true when the publisher is flushed or closed.
//
// Of a half that a run does not manage, and of both where nothing is to be done,
// it says what runs and what could run, and that the half is idle, unless the
// object says already that an upgrade to the very version is completed. It never
// writes a target: an operator would take that for an order.
//
// Others may write to the same object. Only keys of ours are patched; what somebody
// else makes of them is corrected with the next heartbeat and no sooner, and
// [Publisher.Notes] names it.
package publish

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

var (
	_ cluster.Observer  = (*Publisher)(nil)
	_ cluster.Flusher   = (*Publisher)(nil)
	_ cluster.Announcer = (*Publisher)(nil)
)

// The annotations of the Talos half. Versions carry no leading "v".
const (
	// KeyAvailable is the version that the cluster could be upgraded to next;
	// absent where there is none.
	KeyAvailable = "upgrade.vitistack.io/talos-available"
	// KeyCurrent is the lowest version that any managed node runs.
	KeyCurrent = "upgrade.vitistack.io/talos-current"
	// KeyStatus is one of the Status constants.
	KeyStatus = "upgrade.vitistack.io/talos-status"
	// KeyMessage is a sentence for people.
	KeyMessage = "upgrade.vitistack.io/talos-message"
	// KeyProgress is "done/total" in nodes.
	KeyProgress = "upgrade.vitistack.io/talos-progress"
)

// The annotations of the Kubernetes half.
const (
	// KeyKubernetesAvailable is the version that the cluster could be upgraded to
	// next; absent where there is none, and while Talos is being upgraded.
	KeyKubernetesAvailable = "upgrade.vitistack.io/kubernetes-available"
	// KeyKubernetesCurrent is the lowest version of any component of a managed
	// node.
	KeyKubernetesCurrent = "upgrade.vitistack.io/kubernetes-current"
	// KeyKubernetesStatus is one of the Status constants.
	KeyKubernetesStatus = "upgrade.vitistack.io/kubernetes-status"
	// KeyKubernetesMessage is a sentence for people.
	KeyKubernetesMessage = "upgrade.vitistack.io/kubernetes-message"
	// KeyKubernetesProgress is "done/total" in nodes.
	KeyKubernetesProgress = "upgrade.vitistack.io/kubernetes-progress"
)

// The annotations of a run as a whole.
const (
	// KeyFailedNodes is a comma-separated list of the nodes at which a run failed;
	// absent, and never empty, where there are none. A list of more than 8 KiB is
	// cut off between two names and ends with the entry "...", which is no name.
	KeyFailedNodes = "upgrade.vitistack.io/failed-nodes"
	// KeyLastUpdate is the heartbeat of a running upgrade, RFC 3339 in UTC. A
	// status in-progress with an old heartbeat is that of a run that died.
	KeyLastUpdate = "upgrade.vitistack.io/talosupgrade-last-update"
)

// The annotations that are an operator's or a person's to write, and are only read.
const (
	keyTarget           = "upgrade.vitistack.io/talos-target"
	keyKubernetesTarget = "upgrade.vitistack.io/kubernetes-target"
	keyHold             = "upgrade.vitistack.io/do-not-reconcile"
)

// The values of [KeyStatus] and [KeyKubernetesStatus].
const (
	// StatusIdle is a half in which nothing is going on.
	StatusIdle       = "idle"
	StatusInProgress = "in-progress"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
	// StatusRollingBack is a run that sends a node back to its old version of
	// Talos, because it did not become healthy with the new one.
	StatusRollingBack = "rolling-back"
	// StatusPending is a half of which a run has done everything, and not every
	// node shows it yet: nobody waited for kube-proxy to be rolled out.
	StatusPending = "pending"
	// StatusBlocked is a half that waits for the other one to move first.
	StatusBlocked = "blocked"
)

// The values of status.phase.
const (
	PhaseReady               = "Ready"
	PhaseUpgradingTalos      = "UpgradingTalos"
	PhaseUpgradingKubernetes = "UpgradingKubernetes"
	PhaseUpgradeFailed       = "UpgradeFailed"
)

// The types of the conditions in status.conditions, and their reasons. The status
// of a condition is "True" with [ReasonInProgress] and "False" otherwise.
const (
	ConditionTalos      = "TalosUpgrade"
	ConditionKubernetes = "KubernetesUpgrade"

	ReasonInProgress = "InProgress"
	ReasonCompleted  = "Completed"
	ReasonFailed     = "Failed"
	ReasonBlocked    = "Blocked"
)
