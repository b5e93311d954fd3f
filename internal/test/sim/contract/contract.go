// SPDX-License-Identifier: MPL-2.0

// Package contract says what every implementation of [cluster.Kubernetes] has to
// do, be it the ports of the simulator, the real adapter over the API server in
// memory, or the same over a real kube-apiserver: what holds for one of them and
// not for another would make the tests of the engine worthless. The clauses about
// [cluster.Talos] that only read are here as well. All of them hold for a cluster
// of real machines, too.
package contract

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// API is what is held to the contract.
type API interface {
	cluster.Kubernetes
	cluster.WorkloadReader
}

// Fixture is an implementation with a cluster behind it, of at least one control
// plane and two workers, which a case arranges as other people and controllers
// would. What a case adds is taken away when it ends.
type Fixture interface {
	API() API
	// Machines are the machines behind the cluster, from another source than the
	// API that is held to the contract.
	Machines() []Machine
	// ClusterID is which cluster the objects of an upgrade are about.
	ClusterID() string
	// CordonAsPerson cordons a node, or lifts its cordon, without any mark.
	CordonAsPerson(t *testing.T, node string, on bool)
	// Pod starts a pod of an app on a node, and returns when it is ready. Nobody
	// brings it back.
	Pod(t *testing.T, app, node string) cluster.Pod
	// Budget puts a budget over the pods of an app, and returns when its numbers
	// are worked out.
	Budget(t *testing.T, app, name string, minAvailable int)
	// DropLease and DropJournal delete these objects, if they exist.
	DropLease(t *testing.T)
	DropJournal(t *testing.T)
	// Eventually waits until a condition holds.
	Eventually(t *testing.T, what string, holds func() (bool, error))
}

// Case is one clause of the contract.
type Case struct {
	Name string
	Run  func(t *testing.T, f Fixture)
}

// Cases lists all clauses.
func Cases() []Case {
	return []Case{
		{"nodes are as their machines report them", nodesAreReported},
		{"the cluster has one UID", oneUID},
		{"nodes are read one by one, and as they are now", nodesAreRead},
		{"nodes that are followed are never older than the question", followedNodesAreNew},
		{"the pods of the control plane and of kube-proxy are listed", componentPodsAreListed},
		{"the pods of the control plane are listed alone", staticPodsAreListed},

		{"a cordon is marked with its run and lifted", cordonIsMarked},
		{"a cordon of an earlier run of ours stays its", cordonOfAnEarlierRun},
		{"a person's cordon is left alone", foreignCordon},
		{"a mark that outlived its cordon claims no other", markWithoutCordon},
		{"a node that is gone cannot be cordoned and need not be uncordoned", goneNode},
		{"a call that was given up has no effect", givenUp},

		{"the lease is created once and read back whole", leaseIsCreatedOnce},
		{"a suspension changes nothing else in the lease", leaseIsSuspended},
		{"the lease is updated as it was read", leaseIsUpdatedAsRead},
		{"a lease that was deleted is not updated", leaseThatWasDeleted},
		{"the journal is created once and read back whole", journalIsCreatedOnce},
		{"the journal is updated as it was read", journalIsUpdatedAsRead},
		{"a journal that was deleted is not updated", journalThatWasDeleted},

		{"a drain takes the pods of its node", drainTakesPods},
		{"an evicted pod leaves", evictedPodLeaves},
		{"another pod of the same name is not evicted", otherUIDIsNotEvicted},
		{"an exhausted budget keeps its pod", exhaustedBudget},
		{"a budget with something to give lets one pod go", givingBudget},
		{"two budgets keep a pod for good", twoBudgets},
		{"a deleted pod leaves whatever its budget says", deletedPodLeaves},
		{"another pod of the same name is not deleted", otherUIDIsNotDeleted},
		{"workloads tell what a drain meets", workloadsAreTold},

		{"forgetting nothing keeps nothing", forgetNothing},
		{"forgetting removes what is finished", forgetFinished},
		{"forgetting keeps what is unfinished", forgetUnfinished},
		{"forgetting keeps manifests that are due", forgetManifests},
		{"forgetting keeps what is another cluster's", forgetForeign},
	}
}

// Test runs all clauses, each with a fixture of its own.
func Test(t *testing.T, open func(t *testing.T) Fixture) {
	t.Helper()

	for _, one := range Cases() {
		t.Run(one.Name, func(t *testing.T) { one.Run(t, open(t)) })
	}
}
