// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/contract"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// The adapter keeps the contract over a real kube-apiserver, which is what the
// simulated ones are held to.
func TestContract(t *testing.T) {
	contract.Test(t, func(t *testing.T) contract.Fixture {
		t.Helper()

		return openFixture(t)
	})
}

// So does the protocol itself: the clauses are about the API server.
func TestWireContract(t *testing.T) {
	for _, clause := range contract.WireCases() {
		t.Run(clause.Name, func(t *testing.T) { clause.Run(t, openFixture(t)) })
	}
}

func openFixture(t *testing.T) *liveFixture {
	t.Helper()

	api, other := live(t)
	api.Identify(suite.World.ClusterID())

	made := &liveFixture{api: api, other: other, covered: map[string]int{}}

	// The context of a test is over when it is cleaned up.
	t.Cleanup(func() { made.dropAll(context.WithoutCancel(t.Context()), t) })

	return made
}

// liveFixture arranges things in the cluster that all tests share.
type liveFixture struct {
	api   *kubeapi.Client
	other kubernetes.Interface
	// started counts the pods, covered those of each app.
	started int
	covered map[string]int
}

func (f *liveFixture) API() contract.API          { return f.api }
func (f *liveFixture) Wire() kubernetes.Interface { return f.other }
func (f *liveFixture) World() *model.World        { return suite.World }
func (f *liveFixture) ClusterID() string          { return suite.World.ClusterID() }

func (f *liveFixture) CordonAsPerson(t *testing.T, node string, on bool) {
	t.Helper()

	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)

	if _, err := f.other.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *liveFixture) Pod(t *testing.T, app, node string) cluster.Pod {
	t.Helper()

	f.started++
	f.covered[app]++
	name := fmt.Sprintf("%s-%d", app, f.started)

	added := addPod(t, f.other, name, node)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"app":%q}}}`, app)

	// The simulated kubelet writes to the pod at the same time.
	if _, err := f.other.CoreV1().Pods("default").Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	f.Eventually(t, "pod "+name+" to be ready", func() (bool, error) {
		found, err := f.other.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		return slices.ContainsFunc(found.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}), nil
	})

	return cluster.Pod{Namespace: "default", Name: name, UID: string(added.UID)}
}

func (f *liveFixture) Budget(t *testing.T, app, name string, minAvailable int) {
	t.Helper()

	least := intstr.FromInt(minAvailable)
	budgets := f.other.PolicyV1().PodDisruptionBudgets("default")

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

	err := f.other.CoordinationV1().Leases(kubeapi.Namespace).Delete(t.Context(), kubeapi.LeaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (f *liveFixture) DropJournal(t *testing.T) {
	t.Helper()

	err := f.other.CoreV1().ConfigMaps(kubeapi.Namespace).Delete(t.Context(), kubeapi.JournalName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (f *liveFixture) Eventually(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()

	eventually(t, what, holds)
}

// dropAll takes the records of an upgrade, and what is left of cordons, away.
func (f *liveFixture) dropAll(ctx context.Context, t *testing.T) {
	t.Helper()

	for _, err := range []error{
		f.other.CoordinationV1().Leases(kubeapi.Namespace).Delete(ctx, kubeapi.LeaseName, metav1.DeleteOptions{}),
		f.other.CoreV1().ConfigMaps(kubeapi.Namespace).Delete(ctx, kubeapi.JournalName, metav1.DeleteOptions{}),
		f.other.CoreV1().ConfigMaps(kubeapi.Namespace).Delete(ctx, kubeapi.PublishedName, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}

	nodes, err := f.api.Nodes(ctx)
	if err != nil {
		t.Error(err)
	}

	for _, node := range nodes {
		if !node.Unschedulable {
			continue
		}

		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}},"spec":{"unschedulable":null}}`, kubeapi.CordonAnnotation)
		if _, err := f.other.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
}
