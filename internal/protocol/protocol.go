// SPDX-License-Identifier: MPL-2.0

// Package protocol is the annotation protocol upgrade.vitistack.io: the keys of the
// annotations, the words that stand in them, and the same in status.phase and in
// conditions. Runs write it, operators and people read and write it. Versions in it
// carry no leading "v".
package protocol

import "github.com/vitistack/terraform-provider-talosupgrade/internal/version"

const prefix = "upgrade.vitistack.io/"

// The annotations about Talos.
const (
	// KeyTalosAvailable is the version that the cluster could be upgraded to next;
	// absent where there is none.
	KeyTalosAvailable = prefix + "talos-available"
	// KeyTalosCurrent is the lowest version that any managed node runs.
	KeyTalosCurrent = prefix + "talos-current"
	// KeyTalosStatus is a [Status].
	KeyTalosStatus = prefix + "talos-status"
	// KeyTalosMessage is a sentence for people.
	KeyTalosMessage = prefix + "talos-message"
	// KeyTalosProgress is "done/total" in nodes.
	KeyTalosProgress = prefix + "talos-progress"
)

// The annotations about Kubernetes.
const (
	// KeyKubernetesAvailable is the version that the cluster could be upgraded to
	// next; absent where there is none, and while Talos is being upgraded.
	KeyKubernetesAvailable = prefix + "kubernetes-available"
	// KeyKubernetesCurrent is the lowest version of any component of a managed
	// node.
	KeyKubernetesCurrent = prefix + "kubernetes-current"
	// KeyKubernetesStatus is a [Status].
	KeyKubernetesStatus = prefix + "kubernetes-status"
	// KeyKubernetesMessage is a sentence for people.
	KeyKubernetesMessage = prefix + "kubernetes-message"
	// KeyKubernetesProgress is "done/total" in nodes.
	KeyKubernetesProgress = prefix + "kubernetes-progress"
)

// The annotations about a run as a whole.
const (
	// KeyFailedNodes is a comma-separated list of the nodes at which a run failed;
	// absent, and never empty, where there are none. A list of more than 8 KiB is
	// cut off between two names and ends with the entry "...", which is no name.
	KeyFailedNodes = prefix + "failed-nodes"
	// KeyLastUpdate is the heartbeat of a running upgrade, RFC 3339 in UTC. A
	// status in-progress with an old heartbeat is that of a run that died.
	KeyLastUpdate = prefix + "talosupgrade-last-update"
)

// KeySuspend, on the lease kube-system/talosupgrade, suspends the upgrades of the cluster:
// no run starts anything new. Its value says who did that and why; [SuspendNot] is as good as
// no annotation.
const (
	KeySuspend = prefix + "suspend"
	SuspendNot = "false"
)

// The annotations that ask an operator for something.
const (
	// KeyTalosTarget and KeyKubernetesTarget are the versions that an operator is
	// asked for.
	KeyTalosTarget      = prefix + "talos-target"
	KeyKubernetesTarget = prefix + "kubernetes-target"
	// KeyHold keeps an operator from acting, whatever its value is. A run of ours
	// writes its ID.
	KeyHold = prefix + "do-not-reconcile"
	// KeyReset has the operator of a KubernetesCluster forget an upgrade of Talos.
	KeyReset = prefix + "talos-reset-upgrade-state"
)

// Field is what an annotation says about a product.
type Field string

// The fields.
const (
	FieldTarget   Field = "target"
	FieldStatus   Field = "status"
	FieldMessage  Field = "message"
	FieldProgress Field = "progress"
	FieldCurrent  Field = "current"
)

// Key is the annotation with the field of the product.
func Key(product version.Product, field Field) string {
	return prefix + string(product) + "-" + string(field)
}

// Status is how far a product is: the value of [KeyTalosStatus] and
// [KeyKubernetesStatus], of a run as of an operator.
type Status string

// The statuses. They are untyped, so that they are the values of annotations too.
const (
	// StatusIdle: nothing is going on. Of an operator: it was asked for nothing, or
	// has not noticed yet.
	StatusIdle = "idle"
	// StatusPending: a run has done everything, and not every node shows it yet,
	// because nobody waited for kube-proxy to be rolled out. Of an operator: it has
	// noticed what it is asked for, and has not begun.
	StatusPending = "pending"
	// StatusInProgress: it is being upgraded.
	StatusInProgress = "in-progress"
	// StatusRollingBack: a node is sent back to its old version of Talos, because it
	// did not become healthy with the new one.
	StatusRollingBack = "rolling-back"
	// StatusCompleted: every node is where it is to be. An operator may speak of an
	// earlier time.
	StatusCompleted = "completed"
	// StatusFailed: the last upgrade did not get to its end. An operator may speak of
	// an earlier time, and may try again for as long as it is asked.
	StatusFailed = "failed"
	// StatusBlocked: it waits for the other product to move first.
	StatusBlocked = "blocked"
)

// Busy tells whether the cluster is being changed.
func (s Status) Busy() bool { return s == StatusInProgress || s == StatusRollingBack }

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
