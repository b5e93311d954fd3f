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
	// Workloads lists all pods that have not finished, all budgets and all
	// nodes.
	Workloads(ctx context.Context) (Workloads, error)
}

// WorkloadPod is a pod, and what a drain of its node would mean to it.
type WorkloadPod struct {
	Pod
	// Node is empty while the pod is not scheduled.
	Node string
	// Stays tells that a drain leaves it alone: a mirror pod, or one of a
	// DaemonSet.
	Stays bool
	Ready bool
	// Owner is its controller as "ReplicaSet/web-7d4b"; empty for a pod that
	// nobody brings back.
	Owner string
	// Replicas is how many pods the controller wants; 0 where that is not known.
	Replicas int
	// LocalData names the volumes whose content is lost with the pod: emptyDir.
	LocalData []string
	// Fits are the nodes that its selectors, affinities, tolerations and volumes
	// let it run on, cordons and room aside, in order; its own is one of them.
	Fits []string
	// CPU is what it requests in thousandths of a core, Memory in bytes.
	CPU, Memory int64
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Namespace, Name string
	// Allowed is how many of its pods may be evicted now.
	Allowed int
	// Healthy is how many of its pods are, Desired how many have to be, Expected
	// how many there are to be.
	Healthy, Desired, Expected int
	// Stale tells that its numbers are of an earlier state of the budget, or were
	// never worked out.
	Stale bool
	// Unsynced is why the numbers could not be worked out, in the words of the
	// disruption controller (condition DisruptionAllowed, reason SyncFailed); the
	// budget then gives nothing, whatever the other numbers say. Empty otherwise.
	Unsynced string
	// AlwaysAllow tells that a pod which is not Ready may be evicted whatever the
	// numbers say.
	AlwaysAllow bool
	// Pods are the UIDs of the pods that it covers.
	Pods []string
}

// String is "namespace/name".
func (b Budget) String() string { return b.Namespace + "/" + b.Name }

// Room is what a node has for pods.
type Room struct {
	Node string
	// CPU is in thousandths of a core, Memory in bytes, Pods a number: what is
	// allocatable, whatever runs there.
	CPU, Memory, Pods int64
}
