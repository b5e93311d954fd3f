// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// lonely is a pod of a Deployment that has its node for itself. An earlier test
// may have left all of them on one node.
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

func TestKubeletOfANodeThatIsNotReadyConfirmsNoDeletion(t *testing.T) {
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

	// It does not serve, so its budget lets it go.
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
