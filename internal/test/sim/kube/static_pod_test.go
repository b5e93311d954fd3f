// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mirror is what people see of a static pod.
type mirror struct {
	image, version  string
	ready           bool
	phase           corev1.PodPhase
	reason, message string
	crashed         bool
	host            string
	restarts        int32
}

func mirrorOf(pod *corev1.Pod) mirror {
	seen := mirror{
		image: pod.Spec.Containers[0].Image, version: pod.Annotations["talos.dev/config-version"],
		ready: podReady(pod), phase: pod.Status.Phase, host: pod.Status.HostIP,
	}

	for _, container := range pod.Status.ContainerStatuses {
		seen.crashed = container.LastTerminationState.Terminated != nil
		seen.restarts = container.RestartCount

		if waiting := container.State.Waiting; waiting != nil {
			seen.reason, seen.message = waiting.Reason, waiting.Message
		}
	}

	return seen
}

type staticStep struct {
	name  string
	state StaticPod
	want  mirror
}

// staticSteps returns the steps of a scheduler through a change of its image that fails in every way before it
// succeeds.
func staticSteps() []staticStep {
	const before, after = "registry.k8s.io/kube-scheduler:v1.34.2", "mirror.example:5000/kube-scheduler:v1.35.0"

	started := time.Unix(1, 0)
	host := "10.5.0.4"

	return []staticStep{
		{
			"runs",
			StaticPod{Image: before, ConfigVersion: 1, Ready: true, Started: started},
			mirror{image: before, version: "1", ready: true, phase: corev1.PodRunning, host: host},
		},
		{
			"does not answer",
			StaticPod{Image: before, ConfigVersion: 1, Started: started},
			mirror{image: before, version: "1", phase: corev1.PodRunning, host: host},
		},
		{
			"is made anew",
			StaticPod{Image: after, ConfigVersion: 2},
			mirror{image: after, version: "2", phase: corev1.PodPending, host: host, reason: "ContainerCreating"},
		},
		{
			"finds no image",
			StaticPod{Image: after, ConfigVersion: 2, Trouble: "ImagePullBackOff: Back-off pulling image: not found"},
			mirror{
				image: after, version: "2", phase: corev1.PodPending, host: host,
				reason: "ImagePullBackOff", message: "Back-off pulling image: not found",
			},
		},
		{
			"starts",
			StaticPod{Image: after, ConfigVersion: 2, Started: started.Add(time.Minute)},
			mirror{image: after, version: "2", phase: corev1.PodRunning, host: host},
		},
		{
			"crashes",
			StaticPod{Image: after, ConfigVersion: 2, Trouble: "CrashLoopBackOff: back-off 10s"},
			mirror{
				image: after, version: "2", phase: corev1.PodRunning, host: host,
				reason: "CrashLoopBackOff", message: "back-off 10s", crashed: true, restarts: 1,
			},
		},
		{
			"runs the new image",
			StaticPod{Image: after, ConfigVersion: 2, Ready: true, Started: started.Add(time.Hour)},
			mirror{image: after, version: "2", ready: true, phase: corev1.PodRunning, host: host, restarts: 1},
		},
		{
			"has another version of its configuration",
			StaticPod{Image: after, ConfigVersion: 3, Ready: true, Started: started.Add(2 * time.Hour)},
			mirror{image: after, version: "3", ready: true, phase: corev1.PodRunning, host: host},
		},
	}
}

func TestStaticPod_MirrorFollowsIt(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	for _, step := range staticSteps() {
		t.Run(step.name, func(t *testing.T) {
			s.world.setStaticPod("cp-2", nameScheduler, step.state)

			var seen mirror

			t.Cleanup(func() {
				if t.Failed() {
					t.Errorf("last seen %+v, want %+v", seen, step.want)
				}
			})

			until(t, "the mirror pod", func() bool {
				pod, err := client.CoreV1().Pods(namespaceSystem).Get(t.Context(), nameScheduler+"-cp-2", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return false
				}

				if err != nil {
					t.Fatal(err)
				}

				seen = mirrorOf(pod)

				return seen == step.want
			})
		})
	}

	s.world.setStaticPod("cp-2", nameScheduler, StaticPod{})
	until(t, "the mirror pod of a scheduler that was switched off to be gone", func() bool {
		_, err := client.CoreV1().Pods(namespaceSystem).Get(t.Context(), nameScheduler+"-cp-2", metav1.GetOptions{})

		return apierrors.IsNotFound(err)
	})
	s.world.setStaticPod("cp-2", nameScheduler, staticSteps()[0].state)
}

func TestStaticPod_APIServerWithoutQuorumIsNotReady(t *testing.T) {
	machine := newFakeMachine("cp-0", RoleControlPlane, 0)

	for name, test := range map[string]struct {
		up        bool
		component string
		want      bool
	}{
		"an API server that serves":         {true, nameAPIServer, true},
		"an API server without quorum":      {false, nameAPIServer, false},
		"the scheduler beside it":           {false, nameScheduler, true},
		"what is no static pod of the node": {true, nameProxy, false},
	} {
		t.Run(name, func(t *testing.T) {
			machine.APIServerUp = test.up

			if ready := staticReady(machine, test.component); ready != test.want {
				t.Errorf("ready: %t, want %t", ready, test.want)
			}
		})
	}
}

func TestStaticPod_KubeletOfAnotherVersionShowsOnItsNode(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	readySince := func() metav1.Time {
		for _, condition := range getNode(t, client, "worker-0").Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return condition.LastTransitionTime
			}
		}

		t.Fatal("worker-0 is not ready")

		return metav1.Time{}
	}

	before := readySince()

	restart := func(version string) {
		s.world.change("worker-0", func(_ *fakeWorld, m *Machine) { m.Kubelet.Running = false })

		if err := s.clock.Sleep(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}

		s.world.change("worker-0", func(_ *fakeWorld, m *Machine) { m.Kubelet.Running, m.Kubelet.Version = true, version })
		until(t, "worker-0 to report kubelet "+version, func() bool {
			return getNode(t, client, "worker-0").Status.NodeInfo.KubeletVersion == "v"+version
		})
	}

	restart("1.35.0")
	restart("1.34.2")

	if after := readySince(); !after.Equal(&before) {
		t.Errorf("the node was not ready in between: ready since %s, before %s", after, before)
	}

	// Version and readiness are reported separately.
	s.world.change("worker-0", func(_ *fakeWorld, m *Machine) { m.Kubelet.Ready, m.Kubelet.Version = false, "1.35.0" })
	until(t, "worker-0 to report the new kubelet as not ready", func() bool {
		node := getNode(t, client, "worker-0")

		return node.Status.NodeInfo.KubeletVersion == "v1.35.0" && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady"
		})
	})

	s.world.change("worker-0", func(_ *fakeWorld, m *Machine) { m.Kubelet.Ready, m.Kubelet.Version = true, "1.34.2" })
	until(t, "worker-0 to be ready", func() bool { return readyStatus(getNode(t, client, "worker-0")) == corev1.ConditionTrue })
}

// setStaticPod replaces one static pod of a machine.
func (w *fakeWorld) setStaticPod(node, component string, state StaticPod) {
	w.change(node, func(_ *fakeWorld, m *Machine) {
		m.StaticPods = maps.Clone(m.StaticPods)
		m.StaticPods[component] = state
	})
}
