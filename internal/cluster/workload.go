// SPDX-License-Identifier: MPL-2.0

package cluster

import "context"

// Workloads are the pods of a cluster, as far as draining nodes is concerned.
type Workloads struct {
	Pods    []WorkloadPod
	Budgets []Budget
	Rooms   []Room
}

// WorkloadReader lists workloads.
type WorkloadReader interface {
	// Workloads lists all pods that have not finished, all budgets and all nodes.
	Workloads(ctx context.Context) (Workloads, error)
}

// WorkloadPod is a pod with what matters if its node is drained.
type WorkloadPod struct {
	Pod
	// Node is empty while the pod is not scheduled.
	Node string
	// Stays is true if a drain leaves the pod alone: a mirror pod, or a pod of a DaemonSet.
	Stays bool
	Ready bool
	// Owner is its controller as "ReplicaSet/web-7d4b"; empty for a pod without a controller.
	Owner string
	// Replicas is how many pods the controller wants; 0 if that is unknown.
	Replicas int
	// LocalData names the volumes whose content is lost with the pod: emptyDir.
	LocalData []string
	// CPU is what the pod requests in thousandths of a core, Memory in bytes.
	CPU, Memory int64
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Namespace, Name string
	// Allowed is how many of its pods may be evicted now.
	Allowed int
	// Healthy is how many of its pods are healthy, Desired how many have to be, Expected how many there should
	// be.
	Healthy, Desired, Expected int
	// Stale is true if the numbers describe an earlier state of the budget, or were never computed.
	Stale bool
	// Unsynced is why the numbers could not be computed, in the words of the disruption controller (condition
	// DisruptionAllowed, reason SyncFailed); the budget then allows no eviction, whatever the other numbers say.
	// Empty otherwise.
	Unsynced string
	// AlwaysAllow is true if a pod that is not Ready may be evicted whatever the numbers say.
	AlwaysAllow bool
	// Pods are the UIDs of the pods that it covers.
	Pods []string
}

// String is "namespace/name".
func (b Budget) String() string { return b.Namespace + "/" + b.Name }

// Room is what a node can hold.
type Room struct {
	Node string
	// CPU is in thousandths of a core, Memory in bytes, Pods a number: what is allocatable, whatever is running.
	CPU, Memory, Pods int64
}
