// SPDX-License-Identifier: MPL-2.0

// Package protocol is the annotation protocol upgrade.vitistack.io: the keys of the annotations, their values, and
// the matching values of status.phase and of conditions. Runs write it; operators and people read and write it.
// Versions in it have no leading "v".
package protocol

import "github.com/vitistack/terraform-provider-talosupgrade/internal/version"

const prefix = "upgrade.vitistack.io/"

// The annotations about Talos.
const (
	// KeyTalosAvailable is the version that the cluster could be upgraded to next; absent if there is none.
	KeyTalosAvailable = prefix + "talos-available"
	// KeyTalosCurrent is the lowest version that any managed node runs.
	KeyTalosCurrent = prefix + "talos-current"
	// KeyTalosStatus is a [Status].
	KeyTalosStatus = prefix + "talos-status"
	// KeyTalosMessage is a sentence for people to read.
	KeyTalosMessage = prefix + "talos-message"
	// KeyTalosProgress is "done/total", counted in nodes.
	KeyTalosProgress = prefix + "talos-progress"
)

// The annotations about Kubernetes.
const (
	// KeyKubernetesAvailable is the version that the cluster could be upgraded to next; absent if there is none, and
	// while Talos is being upgraded.
	KeyKubernetesAvailable = prefix + "kubernetes-available"
	// KeyKubernetesCurrent is the lowest version of any component on any managed node.
	KeyKubernetesCurrent = prefix + "kubernetes-current"
	// KeyKubernetesStatus is a [Status].
	KeyKubernetesStatus = prefix + "kubernetes-status"
	// KeyKubernetesMessage is a sentence for people to read.
	KeyKubernetesMessage = prefix + "kubernetes-message"
	// KeyKubernetesProgress is "done/total", counted in nodes.
	KeyKubernetesProgress = prefix + "kubernetes-progress"
)

// The annotations about a run as a whole.
const (
	// KeyFailedNodes is a comma-separated list of the nodes at which a run failed; absent, never empty, if there are
	// none. A list of more than 8 KiB is cut between two names and ends with the entry "...", which is not a name.
	KeyFailedNodes = prefix + "failed-nodes"
	// KeyLastUpdate is the heartbeat of a running upgrade, in RFC 3339 and UTC. If it is old while the status is
	// in-progress, the run died.
	KeyLastUpdate = prefix + "talosupgrade-last-update"
)

// KeySuspend, on the lease kube-system/talosupgrade, suspends the upgrades of the cluster: no run starts anything
// new. Its value says who suspended them and why. [SuspendNot] is the same as no annotation.
const (
	KeySuspend = prefix + "suspend"
	SuspendNot = "false"
)

// The annotations that request something from an operator.
const (
	// KeyTalosTarget and KeyKubernetesTarget are the versions that an operator is asked to install.
	KeyTalosTarget      = prefix + "talos-target"
	KeyKubernetesTarget = prefix + "kubernetes-target"
	// KeyHold keeps an operator from acting, whatever its value. Our runs set it to their ID.
	KeyHold = prefix + "do-not-reconcile"
	// KeyReset makes the operator of a KubernetesCluster forget an upgrade of Talos.
	KeyReset = prefix + "talos-reset-upgrade-state"
)

// Field is the part of an annotation key that follows the product.
type Field string

// The fields.
const (
	FieldTarget   Field = "target"
	FieldStatus   Field = "status"
	FieldMessage  Field = "message"
	FieldProgress Field = "progress"
	FieldCurrent  Field = "current"
)

// Key returns the key of the annotation for the field of the product.
func Key(product version.Product, field Field) string {
	return prefix + string(product) + "-" + string(field)
}

// Status is the progress of a product: the value of [KeyTalosStatus] and [KeyKubernetesStatus], as written by runs
// and by operators.
type Status string

// The statuses. They are untyped, so that they can be used as values of annotations too.
const (
	// StatusIdle: no upgrade is running. An operator has no request, or has not noticed it yet.
	StatusIdle = "idle"
	// StatusPending: a run has completed, but not every node shows the result yet, because the run did not wait for
	// the rollout of kube-proxy. An operator has noticed its request, but has not begun.
	StatusPending = "pending"
	// StatusInProgress: the product is being upgraded.
	StatusInProgress = "in-progress"
	// StatusRollingBack: a node is being rolled back to its old version of Talos, because it did not become healthy
	// with the new one.
	StatusRollingBack = "rolling-back"
	// StatusCompleted: every node is at its target. The status of an operator may be of an earlier upgrade.
	StatusCompleted = "completed"
	// StatusFailed: the last upgrade did not complete. The status of an operator may be of an earlier upgrade, and
	// the operator may retry while the request stands.
	StatusFailed = "failed"
	// StatusBlocked: the upgrade waits for the other product.
	StatusBlocked = "blocked"
)

// Busy reports whether the cluster is being changed.
func (s Status) Busy() bool { return s == StatusInProgress || s == StatusRollingBack }

// The values of status.phase.
const (
	PhaseReady               = "Ready"
	PhaseUpgradingTalos      = "UpgradingTalos"
	PhaseUpgradingKubernetes = "UpgradingKubernetes"
	PhaseUpgradeFailed       = "UpgradeFailed"
)

// The types of the conditions in status.conditions, and their reasons. The status of a condition is "True" with
// [ReasonInProgress], and "False" otherwise.
const (
	ConditionTalos      = "TalosUpgrade"
	ConditionKubernetes = "KubernetesUpgrade"

	ReasonInProgress = "InProgress"
	ReasonCompleted  = "Completed"
	ReasonFailed     = "Failed"
	ReasonBlocked    = "Blocked"
)
