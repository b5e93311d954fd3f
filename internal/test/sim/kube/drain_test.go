// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func readyPods(t *testing.T, client kubernetes.Interface, app string) []corev1.Pod {
	t.Helper()

	list, err := client.CoreV1().Pods(namespaceWorkload).List(t.Context(), metav1.ListOptions{LabelSelector: labelApp + "=" + app})
	if err != nil {
		t.Fatal(err)
	}

	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !podReady(&pod)
	})
}

// whole waits until all pods of a Deployment run and its budget has counted them, and returns them.
func whole(t *testing.T, client kubernetes.Interface, app string) []corev1.Pod {
	t.Helper()

	until(t, app+" to be whole", func() bool {
		budget, err := client.PolicyV1().PodDisruptionBudgets(namespaceWorkload).Get(t.Context(), app, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return len(readyPods(t, client, app)) == replicas && budget.Status.DisruptionsAllowed == 1
	})

	return readyPods(t, client, app)
}

func evict(t *testing.T, client kubernetes.Interface, pod corev1.Pod, dryRun ...string) error {
	t.Helper()

	return client.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
	})
}

func evictEvent(pod corev1.Pod, outcome, budget string) history.Event {
	detail := map[string]string{"namespace": pod.Namespace, "pod": pod.Name, "by": "client", "outcome": outcome}
	if budget != "" {
		detail["budget"] = budget
	}

	return history.Event{Node: pod.Spec.NodeName, Kind: history.KindEvict, Detail: detail}
}

// cordonWorkers leaves no room for pods, or makes room again, and waits until the scheduler has noticed.
func cordonWorkers(t *testing.T, client kubernetes.Interface, patch string) {
	t.Helper()

	for _, node := range []string{"worker-0", "worker-1"} {
		patchNode(t, client, node, patch, metav1.PatchOptions{})
		until(t, "the cordon of "+node+" to be known", func() bool {
			return hasTaint(getNode(t, client, node), corev1.TaintNodeUnschedulable) == (patch == cordonPatch)
		})
	}
}

func TestDrain_WorkloadsAreSpreadOverTheWorkers(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	for _, pod := range whole(t, client, "app-0") {
		if err := client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	nodes := map[string]int{}

	for _, pod := range whole(t, client, "app-0") {
		nodes[pod.Spec.NodeName]++
	}

	if len(nodes) != 2 || nodes["worker-0"] == 0 || nodes["worker-1"] == 0 {
		t.Errorf("the pods of app-0 run on %v, want both workers", nodes)
	}
}

func TestDrain_BudgetBlocksTheSecondEviction(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent)
	pods := whole(t, client, "app-0")

	// Without room for a replacement the budget stays spent.
	cordonWorkers(t, client, cordonPatch)

	events := told(t, s, func() {
		if err := evict(t, client, pods[0], metav1.DryRunAll); err != nil {
			t.Fatal("dry run:", err)
		}

		if err := evict(t, client, pods[0]); err != nil {
			t.Fatal("first eviction:", err)
		}

		if err := evict(t, client, pods[1]); !apierrors.IsTooManyRequests(err) {
			t.Fatalf("second eviction: %v, want 429", err)
		}
	})

	expect(t, events,
		evictEvent(pods[0], outcomeDryRun, ""),
		evictEvent(pods[0], outcomeEvicted, ""),
		evictEvent(pods[1], outcomeBlocked, "workload/app-0"))

	cordonWorkers(t, client, uncordonPatch)
	whole(t, client, "app-0")

	if err := evict(t, client, pods[0]); !apierrors.IsNotFound(err) {
		t.Errorf("evicting a pod that is gone: %v, want not found", err)
	}
}

func TestDrain_DeletionNamesTheExhaustedBudget(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent)
	pods := whole(t, client, "app-1")

	cordonWorkers(t, client, cordonPatch)

	events := told(t, s, func() {
		for _, pod := range pods[:2] {
			if err := client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}

			// The budget is updated a few milliseconds later, and so is what the ledger knows of it.
			until(t, "the budget to be spent", func() bool {
				budget, err := client.PolicyV1().PodDisruptionBudgets(namespaceWorkload).Get(t.Context(), "app-1", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}

				known := s.server.auditor.budgets.exhausted(pod.Namespace, pod.Labels, time.Now())

				return budget.Status.DisruptionsAllowed == 0 && len(known) > 0
			})
		}
	})

	expect(t, events,
		history.Event{Node: pods[0].Spec.NodeName, Kind: history.KindDelete, Detail: map[string]string{
			"namespace": namespaceWorkload, "pod": pods[0].Name, "by": "client",
		}},
		history.Event{Node: pods[1].Spec.NodeName, Kind: history.KindDelete, Detail: map[string]string{
			"namespace": namespaceWorkload, "pod": pods[1].Name, "by": "client", "budget": "workload/app-1",
		}})

	cordonWorkers(t, client, uncordonPatch)
	whole(t, client, "app-1")
}

func TestDrain_MachineDrainsItselfAndKeepsForeignCordons(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	for _, app := range []string{"app-0", "app-1"} {
		whole(t, client, app)
	}

	cordons := func(events []history.Event) []history.Event {
		return slices.DeleteFunc(events, func(e history.Event) bool { return e.Kind != history.KindCordon })
	}

	events := told(t, s, func() {
		if err := s.server.Cordon(t.Context(), "worker-0", true); err != nil {
			t.Fatal(err)
		}

		if err := s.server.Drain(t.Context(), "worker-0", time.Hour); err != nil {
			t.Fatal(err)
		}

		left, err := client.CoreV1().Pods(namespaceWorkload).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=worker-0"})
		if err != nil || len(left.Items) != 0 {
			t.Errorf("%d pods left on the drained node (%v)", len(left.Items), err)
		}

		if err := s.server.Cordon(t.Context(), "worker-0", false); err != nil {
			t.Fatal(err)
		}
	})

	if slices.ContainsFunc(events, func(e history.Event) bool { return e.Detail["by"] != byMachine }) {
		t.Errorf("not only the machine acted: %+v", events)
	}

	expect(t, cordons(events),
		history.Event{Node: "worker-0", Kind: history.KindCordon, Detail: map[string]string{"unschedulable": "true", "by": "machine"}},
		history.Event{Node: "worker-0", Kind: history.KindCordon, Detail: map[string]string{"unschedulable": "false", "by": "machine"}})

	patchNode(t, client, "worker-0", cordonPatch, metav1.PatchOptions{})

	events = told(t, s, func() {
		for _, on := range []bool{true, false} {
			if err := s.server.Cordon(t.Context(), "worker-0", on); err != nil {
				t.Fatal(err)
			}
		}
	})
	expect(t, cordons(events))

	patchNode(t, client, "worker-0", uncordonPatch, metav1.PatchOptions{})
}

// TestDrain_MachineLiftsAnyCordonThatHasItsAnnotation: only the annotation matters, and it stays on a node that
// somebody else uncordoned.
func TestDrain_MachineLiftsAnyCordonThatHasItsAnnotation(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	const clean = `{"metadata":{"annotations":{"` + annotationCordoned + `":null}},"spec":{"unschedulable":null}}`
	defer patchNode(t, client, "worker-0", clean, metav1.PatchOptions{})

	for name, test := range map[string]struct {
		patch         string
		cordoned, own bool
	}{
		"uncordoned by a person":     {patch: uncordonPatch, own: true},
		"cordoned by a person again": {patch: cordonPatch},
		"without the annotation":     {patch: `{"metadata":{"annotations":{"` + annotationCordoned + `":null}}}`, cordoned: true},
		"with an empty annotation":   {patch: `{"metadata":{"annotations":{"` + annotationCordoned + `":""}}}`},
	} {
		patchNode(t, client, "worker-0", uncordonPatch, metav1.PatchOptions{})

		if err := s.server.Cordon(t.Context(), "worker-0", true); err != nil {
			t.Fatal(err)
		}

		patchNode(t, client, "worker-0", test.patch, metav1.PatchOptions{})

		if err := s.server.Cordon(t.Context(), "worker-0", false); err != nil {
			t.Fatal(err)
		}

		node := getNode(t, client, "worker-0")
		if _, own := node.Annotations[annotationCordoned]; own != test.own || node.Spec.Unschedulable != test.cordoned {
			t.Errorf("%s: annotated %t, cordoned %t; want %t, %t", name, own, node.Spec.Unschedulable, test.own, test.cordoned)
		}
	}
}

func TestDrain_EndsWithItsContext(t *testing.T) {
	s := need(t)

	s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = true })
	t.Cleanup(func() { s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = false }) })

	if err := s.server.Cordon(t.Context(), "worker-1", true); err == nil {
		t.Error("a machine cordons its node while no API server answers")
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if err := s.server.Drain(ctx, "worker-1", time.Hour); err == nil {
		t.Error("a drain without an API server succeeds")
	}
}

func TestDrain_ScriptedBudgetBlocksUntilTheScriptChanges(t *testing.T) {
	s := need(t)
	client := s.as(t, providerAgent)

	blocker := func() (corev1.Pod, bool) {
		list, err := client.CoreV1().Pods(namespaceWorkload).List(t.Context(), metav1.ListOptions{LabelSelector: labelBlocked + "=worker-1"})
		if err != nil {
			t.Fatal(err)
		}

		if len(list.Items) == 0 {
			return corev1.Pod{}, false
		}

		return list.Items[0], true
	}

	s.world.change("worker-1", func(w *fakeWorld, _ *Machine) { w.blocked = []string{"worker-1"} })
	t.Cleanup(func() { s.world.change("worker-1", func(w *fakeWorld, _ *Machine) { w.blocked = nil }) })

	until(t, "the pod that blocks", func() bool {
		pod, found := blocker()

		return found && podReady(&pod) && pod.Spec.NodeName == "worker-1" && s.server.play.blockStands("worker-1")
	})

	pod, _ := blocker()
	events := told(t, s, func() {
		for range 2 {
			if err := evict(t, client, pod); !apierrors.IsTooManyRequests(err) {
				t.Fatalf("evicting it: %v, want 429", err)
			}
		}
	})

	expect(t, events,
		history.Event{Node: "worker-1", Kind: history.KindFault, Detail: map[string]string{
			"step": "drain", "effect": "blocked-by-budget", "info": "workload/blocks-drain-of-worker-1",
		}},
		evictEvent(pod, outcomeBlocked, "workload/blocks-drain-of-worker-1"),
		evictEvent(pod, outcomeBlocked, "workload/blocks-drain-of-worker-1"))

	err := s.server.Drain(t.Context(), "worker-1", 30*time.Second)
	if err == nil || !strings.Contains(err.Error(), pod.Name) {
		t.Errorf("draining a blocked node: %v, want the name of the pod", err)
	}

	s.world.change("worker-1", func(w *fakeWorld, _ *Machine) { w.blocked = nil })
	until(t, "the pod to be taken away", func() bool { _, found := blocker(); return !found })

	if err := s.server.Cordon(t.Context(), "worker-1", true); err != nil {
		t.Fatal(err)
	}

	if err := s.server.Drain(t.Context(), "worker-1", time.Hour); err != nil {
		t.Errorf("draining the node afterwards: %v", err)
	}

	if err := s.server.Cordon(t.Context(), "worker-1", false); err != nil {
		t.Fatal(err)
	}

	for _, app := range []string{"app-0", "app-1"} {
		whole(t, client, app)
	}
}
