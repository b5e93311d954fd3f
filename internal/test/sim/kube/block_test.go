// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func TestScriptedBudgetBlocksTheDrainUntilTheScriptChanges(t *testing.T) {
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
