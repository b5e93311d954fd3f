// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func getNode(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()

	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return node
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

func TestNode_SilentKubeletIsNoticedAfterTheGracePeriodOnly(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	started := time.Now()

	s.world.takeDown("worker-1")
	t.Cleanup(func() { s.world.bringUp("worker-1", "worker-1-boot-0", "1.12.6") })

	until(t, "worker-1 to become unknown", func() bool {
		return readyStatus(getNode(t, client, "worker-1")) == corev1.ConditionUnknown
	})

	if waited := time.Since(started); waited < nodeGrace/clockFactor {
		t.Errorf("the node was lost after %s, before %s of simulated time", waited, nodeGrace)
	}

	until(t, "the taint of worker-1", func() bool {
		return hasTaint(getNode(t, client, "worker-1"), corev1.TaintNodeUnreachable)
	})

	s.world.bringUp("worker-1", "worker-1-boot-1", "1.13.4")

	until(t, "worker-1 to be ready in its new boot", func() bool {
		node := getNode(t, client, "worker-1")

		return readyStatus(node) == corev1.ConditionTrue && len(node.Spec.Taints) == 0 &&
			node.Status.NodeInfo.BootID == "worker-1-boot-1" && node.Status.NodeInfo.OSImage == "Talos (v1.13.4)"
	})
}

// TestNode_LookingAtAFullDiskAgainChangesNothing: otherwise each observation would cause a write, and each write an
// observation.
func TestNode_LookingAtAFullDiskAgainChangesNothing(t *testing.T) {
	t.Parallel()

	node := &corev1.Node{}
	setPressure(node, metav1.NewTime(time.Unix(1, 0)), corev1.ConditionFalse, "", true)

	again := node.DeepCopy()
	setPressure(again, metav1.NewTime(time.Unix(2, 0)), corev1.ConditionFalse, "", true)

	if !equality.Semantic.DeepEqual(node, again) {
		t.Errorf("the conditions went from %v to %v", node.Status.Conditions, again.Status.Conditions)
	}
}

func TestNode_FullDiskIsReportedWhileItIsFull(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	full := func(full bool) {
		s.world.change("worker-1", func(_ *fakeWorld, m *Machine) { m.Kubelet.DiskPressure = full })
	}

	full(true)
	t.Cleanup(func() { full(false) })

	until(t, "the taint of worker-1", func() bool {
		node := getNode(t, client, "worker-1")

		return hasTaint(node, corev1.TaintNodeDiskPressure) && conditionStatus(node, corev1.NodeDiskPressure) == corev1.ConditionTrue &&
			readyStatus(node) == corev1.ConditionTrue
	})

	full(false)

	until(t, "the taint of worker-1 to go", func() bool {
		node := getNode(t, client, "worker-1")

		return len(node.Spec.Taints) == 0 && conditionStatus(node, corev1.NodeDiskPressure) == corev1.ConditionFalse
	})
}

func TestNode_ShortAbsenceOfAKubeletGoesUnnoticed(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")
	before := getNode(t, client, "worker-0").Status.Conditions

	s.world.takeDown("worker-0")
	s.world.bringUp("worker-0", "worker-0-boot-0", "1.12.6")

	// Longer than the grace period, in simulated time.
	if err := s.clock.Sleep(t.Context(), 2*nodeGrace); err != nil {
		t.Fatal(err)
	}

	after := getNode(t, client, "worker-0").Status.Conditions
	if !slices.Equal(before, after) {
		t.Errorf("conditions changed from %v to %v", before, after)
	}
}

func TestNode_DeletedByAPersonReturnsWithTheNextBootOnly(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	s.world.change("late", func(w *fakeWorld, _ *Machine) {
		w.machines = append(w.machines, newFakeMachine("late", RoleWorker, 9))
	})
	t.Cleanup(func() {
		s.world.change("late", func(w *fakeWorld, _ *Machine) {
			w.machines = slices.DeleteFunc(w.machines, func(m Machine) bool { return m.Name == "late" })
		})
	})

	exists := func() bool {
		_, err := client.CoreV1().Nodes().Get(t.Context(), "late", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}

		return err == nil
	}

	until(t, "a machine that joins to register", exists)

	if err := client.CoreV1().Nodes().Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	s.world.change("late", func(_ *fakeWorld, m *Machine) { m.Kubelet.Ready = false })

	if err := s.clock.Sleep(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}

	if exists() {
		t.Fatal("the kubelet registered again without a restart")
	}

	s.world.bringUp("late", "late-boot-1", "1.12.6")
	until(t, "the node to register after a boot", exists)

	if err := client.CoreV1().Nodes().Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestNode_WithoutAUUIDReportsItsMachineID(t *testing.T) {
	p := &play{options: Options{Stamp: time.Now}}

	for uuid, want := range map[string]string{"": "machine", "uuid": "uuid"} {
		if found := p.liveNode(&corev1.Node{}, Machine{MachineID: "machine", UUID: uuid}).Status.NodeInfo.SystemUUID; found != want {
			t.Errorf("with the UUID %q it reports %q, want %q", uuid, found, want)
		}
	}
}

// lonely returns a pod of a Deployment that is the only one of it on its node. An earlier test may have left all of
// them on one node.
func lonely(t *testing.T, client kubernetes.Interface, app string) corev1.Pod {
	t.Helper()

	for range 2 {
		pods := whole(t, client, app)
		count := map[string]int{}

		for _, pod := range pods {
			count[pod.Spec.NodeName]++
		}

		for _, pod := range pods {
			if count[pod.Spec.NodeName] == 1 {
				return pod
			}
		}

		if err := evict(t, client, pods[0]); err != nil {
			t.Fatal(err)
		}

		until(t, pods[0].Name+" to be gone", func() bool {
			_, err := client.CoreV1().Pods(pods[0].Namespace).Get(t.Context(), pods[0].Name, metav1.GetOptions{})

			return apierrors.IsNotFound(err)
		})
	}

	t.Fatalf("the pods of %s stay on one node", app)

	return corev1.Pod{}
}

func TestNode_KubeletThatIsNotReadyConfirmsNoDeletion(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")
	pod := lonely(t, client, "app-0")
	node := pod.Spec.NodeName

	s.world.change(node, func(_ *fakeWorld, m *Machine) { m.Kubelet.Ready = false })
	t.Cleanup(func() { s.world.change(node, func(_ *fakeWorld, m *Machine) { m.Kubelet.Ready = true }) })

	find := func() (*corev1.Pod, bool) {
		found, err := client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}

		return found, err == nil && found.UID == pod.UID
	}

	until(t, node+" to be not ready", func() bool {
		return readyStatus(getNode(t, client, node)) == corev1.ConditionFalse && hasTaint(getNode(t, client, node), corev1.TaintNodeNotReady)
	})
	until(t, "the pod to be not ready with it", func() bool {
		found, exists := find()

		return exists && !podReady(found)
	})

	// It is not ready, so its budget allows the eviction.
	until(t, "the eviction", func() bool {
		err := evict(t, client, pod)
		if err != nil && !apierrors.IsTooManyRequests(err) {
			t.Fatal(err)
		}

		return err == nil
	})

	// Far longer than a pod takes to stop, in simulated time.
	if err := s.clock.Sleep(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}

	if found, exists := find(); !exists || found.DeletionTimestamp == nil {
		t.Fatalf("the pod is there: %t; want it on its way out", exists)
	}

	s.world.change(node, func(_ *fakeWorld, m *Machine) { m.Kubelet.Ready = true })
	until(t, "the pod to be gone", func() bool {
		_, exists := find()

		return !exists
	})
	until(t, node+" to be ready", func() bool {
		return readyStatus(getNode(t, client, node)) == corev1.ConditionTrue
	})
}
