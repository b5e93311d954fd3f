// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// drainTimeout is short: what keeps these drains from ending does not go away.
const drainTimeout = 20 * time.Second

// onMetal is a Talos that reports that it is not in a container. The provider itself begins no upgrade in a
// container.
type onMetal struct{ cluster.Talos }

func (m onMetal) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	found, err := m.Talos.Machine(ctx, address, known, extent)
	found.Platform = "metal"

	return found, err
}

// steps logs what a run does.
type steps struct{ t *testing.T }

// Observe logs an event.
func (s steps) Observe(event cluster.Event) {
	if event.Kind != cluster.EventWaiting {
		s.t.Logf("%s %s %s %s %v", event.Kind, event.Node, event.Step, event.Text, event.Err)
	}
}

// upgradeTalos has the engine of the provider upgrade Talos, which real Talos refuses once the first node, a worker,
// is drained. It returns the failure.
func (w *world) upgradeTalos(ctx context.Context, t *testing.T, policy cluster.Policy) string {
	t.Helper()

	talos, kube := w.adapters(ctx, t)
	policy.Drain.Timeout = drainTimeout
	policy.Kubernetes.Manifests = cluster.ManifestPolicy{}

	_, err := engine.New(engine.Options{
		Talos: onMetal{talos}, Kubernetes: kube, Workloads: kube, Observers: []cluster.Observer{steps{t}}, Run: newUUID(), Owner: agent, ClusterName: clusterName,
	}).Upgrade(ctx, engine.Request{Target: cluster.Target{Talos: version.MustParse(nextTalos)}, Policy: policy})
	if err == nil {
		t.Fatal("Talos was upgraded, in container mode")
	}

	t.Log(err)

	return err.Error()
}

// mustSay fails the test unless a failure has all of the texts.
func mustSay(t *testing.T, failure string, texts ...string) {
	t.Helper()

	for _, text := range texts {
		if !strings.Contains(failure, text) {
			t.Errorf("it does not say %q: %s", text, failure)
		}
	}
}

// drains drains a node that cannot be drained, and one that somebody else has cordoned. In container mode an upgrade
// of Talos ends after that, and Kubernetes is upgraded without a drain.
func (w *world) drains(ctx context.Context, t *testing.T) {
	first := w.machines[1].name

	t.Run("a budget that never gives is named before anything is touched", func(t *testing.T) {
		w.runApp(ctx, t, "guarded", first)
		w.guard(ctx, t, "guarded")

		before := w.touched(ctx, t)

		mustSay(t, w.upgradeTalos(ctx, t, cluster.DefaultPolicy()), "default/guarded")

		if after := w.touched(ctx, t); after != before {
			t.Errorf("before it was\n%s\nand then\n%s", before, after)
		}

		w.mustRunApp(ctx, t, "guarded")
	})

	t.Run("a pod that does not go stops the upgrade", func(t *testing.T) {
		w.runStubborn(ctx, t, "stubborn", first)

		mustSay(t, w.upgradeTalos(ctx, t, cluster.DefaultPolicy()), "default/stubborn", first, drainTimeout.String())
		w.mustBeAsBefore(ctx, t)
	})

	t.Run("a drained node is put back", func(t *testing.T) {
		w.runApp(ctx, t, "movable", first)

		mustSay(t, w.upgradeTalos(ctx, t, cluster.DefaultPolicy()), first, "method is not supported in container mode")
		w.mustBeAsBefore(ctx, t)
		w.mustRunApp(ctx, t, "movable")
		w.mustHaveLeft(ctx, t, "movable", first)
	})

	t.Run("a cordon of somebody else stays", func(t *testing.T) {
		w.cordonAsPerson(ctx, t, first, true)
		t.Cleanup(func() { w.cordonAsPerson(context.WithoutCancel(ctx), t, first, false) })

		before := w.touched(ctx, t)

		mustSay(t, w.upgradeTalos(ctx, t, cluster.DefaultPolicy()), first+" (cordoned)")

		if after := w.touched(ctx, t); after != before {
			t.Errorf("before it was\n%s\nand then\n%s", before, after)
		}

		// If that is allowed, and another node takes the Pods, it is drained with its cordon.
		both, err := cluster.ParseShare("2")
		if err != nil {
			t.Fatal(err)
		}

		policy := cluster.DefaultPolicy()
		policy.MaxUnavailable = both
		policy.Hold = map[string]bool{w.machines[2].name: true}

		mustSay(t, w.upgradeTalos(ctx, t, policy), "method is not supported in container mode")

		nodes, err := w.client(t).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		for _, node := range nodes.Items {
			if node.Spec.Unschedulable != (node.Name == first) || node.Annotations["talosupgrade.vitistack.io/cordoned-by"] != "" {
				t.Errorf("%s is cordoned: %t, with the annotations %v; want nobody's cordon but that of %s", node.Name, node.Spec.Unschedulable, node.Annotations, first)
			}
		}

		w.mustHaveNoJournal(ctx, t)
	})
}

// mustBeAsBefore fails the test unless no node is cordoned, no machine has a journal entry, and the lease is
// released.
func (w *world) mustBeAsBefore(ctx context.Context, t *testing.T) {
	t.Helper()

	client := w.client(t)

	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, node := range nodes.Items {
		if node.Spec.Unschedulable {
			t.Errorf("%s is left cordoned", node.Name)
		}
	}

	w.mustHaveNoJournal(ctx, t)

	lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "talosupgrade", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the lease is held by %s", *holder)
	}
}

// labelled returns the labels of the objects of an app.
func labelled(app string) map[string]string { return map[string]string{"app": app} }

// runApp runs one Pod of a Deployment, at first on the given node. It is removed when the test ends.
func (w *world) runApp(ctx context.Context, t *testing.T, app, node string) {
	t.Helper()

	one, grace, token := int32(1), int64(1), false
	client := w.client(t)
	deployments := client.AppsV1().Deployments(metav1.NamespaceDefault)

	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labelled(app)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labelled(app)},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "pause", Image: podImage}}, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &token,
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
						Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
						}},
					}}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := deployments.Delete(context.WithoutCancel(ctx), app, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	w.until(ctx, t, app+" runs on "+node, podPatience, func(ctx context.Context) error {
		pods, err := w.readyPods(ctx, client, app)
		if err == nil && (len(pods) != 1 || pods[0].Spec.NodeName != node) {
			err = errors.New("it does not yet")
		}

		return err
	})
}

// readyPods returns the Pods of an app that are ready and not being deleted.
func (w *world) readyPods(ctx context.Context, client kubernetes.Interface, app string) ([]corev1.Pod, error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}

	var ready []corev1.Pod

	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				ready = append(ready, pod)
			}
		}
	}

	return ready, nil
}

// mustRunApp waits until the app runs again, on any node.
func (w *world) mustRunApp(ctx context.Context, t *testing.T, app string) {
	t.Helper()

	client := w.client(t)

	w.until(ctx, t, app+" runs", podPatience, func(ctx context.Context) error {
		pods, err := w.readyPods(ctx, client, app)
		if err == nil && len(pods) != 1 {
			err = fmt.Errorf("%d pods are ready", len(pods))
		}

		return err
	})
}

// mustHaveLeft fails the test if the app still runs on a node.
func (w *world) mustHaveLeft(ctx context.Context, t *testing.T, app, node string) {
	t.Helper()

	pods, err := w.readyPods(ctx, w.client(t), app)
	if err != nil {
		t.Fatal(err)
	}

	for _, pod := range pods {
		if pod.Spec.NodeName == node {
			t.Errorf("%s runs on %s still, which was to be drained", pod.Name, node)
		}
	}
}

// guard creates a budget for the app that allows no eviction.
func (w *world) guard(ctx context.Context, t *testing.T, app string) {
	t.Helper()

	one := intstr.FromInt32(1)
	budgets := w.client(t).PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)

	_, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labelled(app)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := budgets.Delete(context.WithoutCancel(ctx), app, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	w.until(ctx, t, "the numbers of the budget are worked out", podPatience, func(ctx context.Context) error {
		found, err := budgets.Get(ctx, app, metav1.GetOptions{})
		if err == nil && found.Status.CurrentHealthy != 1 {
			err = fmt.Errorf("%d pods are healthy", found.Status.CurrentHealthy)
		}

		return err
	})
}

// runStubborn runs a Pod on a node that does not end when it is stopped. It is removed when the test ends.
func (w *world) runStubborn(ctx context.Context, t *testing.T, name, node string) {
	t.Helper()

	grace, none, token := int64(3600), int64(0), false
	client := w.client(t)
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)

	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelled(name)},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "pause", Image: podImage, Args: []string{"stubborn"}}},
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &token,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		err := pods.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{GracePeriodSeconds: &none})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})

	w.until(ctx, t, name+" runs", podPatience, func(ctx context.Context) error {
		ready, err := w.readyPods(ctx, client, name)
		if err == nil && len(ready) != 1 {
			err = errors.New("it does not yet")
		}

		return err
	})
}

// cordonAsPerson cordons or uncordons a node, without any mark.
func (w *world) cordonAsPerson(ctx context.Context, t *testing.T, node string, on bool) {
	t.Helper()

	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)

	if _, err := w.client(t).CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}
