// SPDX-License-Identifier: MPL-2.0

// Package publish tells people and other tools how an upgrade is going, as
// upgrade.vitistack.io annotations on an object in the cluster. It observes the
// engine and never holds it up: what cannot be published is retried in the
// background, and the last word is made true when the publisher is closed.
package publish

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

var _ cluster.Observer = (*Publisher)(nil)

// The annotations of the Talos half. Versions carry no leading "v".
const (
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
	// absent, and never empty, where there are none.
	KeyFailedNodes = "upgrade.vitistack.io/failed-nodes"
	// KeyLastUpdate is the heartbeat of a running upgrade, RFC 3339 in UTC. A
	// status in-progress with an old heartbeat is that of a run that died.
	KeyLastUpdate = "upgrade.vitistack.io/talosupgrade-last-update"
)

// The values of [KeyStatus] and [KeyKubernetesStatus] that a run takes.
const (
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
