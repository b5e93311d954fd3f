// SPDX-License-Identifier: MPL-2.0

// Package contract specifies what the adapter has to find, over the API server in memory as well as over a real
// kube-apiserver: what holds for only one of them would make the tests of the engine worthless. The clauses about
// [cluster.Talos] that only read are here as well; the ports of the simulator have to keep them. All of them hold
// for a cluster of real machines, too.
package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// API is the interface that has to keep the contract.
type API interface {
	cluster.Kubernetes
	cluster.WorkloadReader
}

// Fixture is an implementation with a cluster behind it, of at least one control plane and two workers, which a
// case arranges as other people and controllers would. What a case adds is removed when it ends.
type Fixture interface {
	API() API
	// Machines returns the machines behind the cluster, from another source than the API under test.
	Machines() []Machine
	// ClusterID returns the ID of the cluster that the objects of an upgrade are about.
	ClusterID() string
	// CordonAsPerson cordons a node, or lifts its cordon, without any mark.
	CordonAsPerson(t *testing.T, node string, on bool)
	// Pod starts a pod of an app on a node, and returns it once it is ready. Nothing replaces it.
	Pod(t *testing.T, app, node string) cluster.Pod
	// Budget puts a budget over the pods of an app, and returns once its numbers are computed.
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
		{"a person's cordon under a mark that outlived ours is left alone", foreignCordonUnderMark},
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

const (
	// workloads is where the pods of the clauses run.
	workloads = "default"
	// cordonMark is the annotation that a cordon of a run leaves on a node.
	cordonMark = "talosupgrade.vitistack.io/cordoned-by"
	// livePoll is the time between two checks of what the cluster does by itself.
	livePoll = 100 * time.Millisecond
)

// Live is a cluster with a real API server, which the clauses share with everything else that runs there: each one
// leaves it as it was, except for the records of an upgrade, which are gone after the first.
type Live struct {
	// Adapter is the implementation under test.
	Adapter API
	// Other arranges and reads things.
	Other kubernetes.Interface
	// ID is the cluster's ID, Known are the machines behind it.
	ID    string
	Known []Machine
	// Image is what the pods of the clauses run: something small that starts and stays.
	Image string
	// Patience bounds the wait for what the cluster does by itself.
	Patience time.Duration
}

// Open returns a fixture for one clause. What the clause leaves behind is removed when it ends.
func (l *Live) Open(t *testing.T) WireFixture {
	t.Helper()

	// The context of a test has ended when its cleanup runs.
	t.Cleanup(func() { l.sweep(context.WithoutCancel(t.Context()), t) })

	return &liveFixture{Live: l, covered: map[string]int{}}
}

// Sweep removes the records of an upgrade, and what is left of cordons.
func (l *Live) Sweep(t *testing.T) {
	t.Helper()
	l.sweep(t.Context(), t)
}

func (l *Live) sweep(ctx context.Context, t *testing.T) {
	t.Helper()

	for _, err := range []error{
		l.Other.CoordinationV1().Leases(namespace).Delete(ctx, leaseName, metav1.DeleteOptions{}),
		l.Other.CoreV1().ConfigMaps(namespace).Delete(ctx, journalName, metav1.DeleteOptions{}),
		l.Other.CoreV1().ConfigMaps(namespace).Delete(ctx, publishedName, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}

	nodes, err := l.Adapter.Nodes(ctx)
	if err != nil {
		t.Error(err)
	}

	for _, node := range nodes {
		if !node.Unschedulable {
			continue
		}

		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}},"spec":{"unschedulable":null}}`, cordonMark)
		if _, err := l.Other.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// liveFixture arranges things for one clause.
type liveFixture struct {
	*Live

	// covered counts the pods of each app.
	covered map[string]int
}

func (f *liveFixture) API() API                   { return f.Adapter }
func (f *liveFixture) Wire() kubernetes.Interface { return f.Other }
func (f *liveFixture) Machines() []Machine        { return f.Known }
func (f *liveFixture) ClusterID() string          { return f.ID }

func (f *liveFixture) CordonAsPerson(t *testing.T, node string, on bool) {
	t.Helper()

	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)

	if _, err := f.Other.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
}

func (f *liveFixture) Pod(t *testing.T, app, node string) cluster.Pod {
	t.Helper()

	f.covered[app]++

	pods := f.Other.CoreV1().Pods(workloads)
	grace, token, none := int64(1), false, int64(0)

	added, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: app + "-", Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: f.Image}},
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &token,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	name := added.Name

	t.Cleanup(func() {
		err := pods.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: &none})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})

	f.Eventually(t, "pod "+name+" to be ready", func() (bool, error) {
		found, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		return slices.ContainsFunc(found.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}), nil
	})

	return cluster.Pod{Namespace: workloads, Name: name, UID: string(added.UID)}
}

func (f *liveFixture) Budget(t *testing.T, app, name string, minAvailable int) {
	t.Helper()

	least := intstr.FromInt(minAvailable)
	budgets := f.Other.PolicyV1().PodDisruptionBudgets(workloads)

	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := budgets.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	f.Eventually(t, "the numbers of budget "+name, func() (bool, error) {
		found, err := budgets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		return found.Status.ObservedGeneration == found.Generation && int(found.Status.CurrentHealthy) == f.covered[app], nil
	})
}

func (f *liveFixture) DropLease(t *testing.T) {
	t.Helper()

	err := f.Other.CoordinationV1().Leases(namespace).Delete(t.Context(), leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (f *liveFixture) DropJournal(t *testing.T) {
	t.Helper()

	err := f.Other.CoreV1().ConfigMaps(namespace).Delete(t.Context(), journalName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (f *liveFixture) Eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()

	ticker := time.NewTicker(livePoll)
	defer ticker.Stop()

	var err error

	for deadline := time.Now().Add(f.Patience); time.Now().Before(deadline); <-ticker.C {
		var held bool
		if held, err = holds(); err == nil && held {
			return
		}
	}

	t.Fatal(errors.Join(fmt.Errorf("waited in vain for %s", what), err))
}
