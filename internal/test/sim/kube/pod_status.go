// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// runningStatus is that of a pod all of whose containers run.
func runningStatus(pod *corev1.Pod, now metav1.Time, machine Machine, container string) corev1.PodStatus {
	status := *pod.Status.DeepCopy()

	status.Phase = corev1.PodRunning
	status.HostIP = machine.Address
	status.HostIPs = []corev1.HostIP{{IP: machine.Address}}
	status.PodIP = podAddress(pod, machine)
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}

	if status.StartTime == nil {
		status.StartTime = &now
	}

	restarts := int32(0)
	if len(status.ContainerStatuses) > 0 {
		restarts = status.ContainerStatuses[0].RestartCount

		if last := status.ContainerStatuses[0].ContainerID; last != "" && last != container {
			restarts++
		}
	}

	started := true
	status.ContainerStatuses = nil

	for _, spec := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: spec.Name, Image: spec.Image, ImageID: spec.Image, ContainerID: container,
			Ready: true, Started: &started, RestartCount: restarts,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}

	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		setPodCondition(&status, now, kind, corev1.ConditionTrue, "", "")
	}

	return status
}

// unreadyStatus is that of a pod whose containers do not answer.
func unreadyStatus(pod *corev1.Pod, now metav1.Time, reason, message string) corev1.PodStatus {
	status := *pod.Status.DeepCopy()

	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
	}

	setPodCondition(&status, now, corev1.PodReady, corev1.ConditionFalse, reason, message)
	setPodCondition(&status, now, corev1.ContainersReady, corev1.ConditionFalse, reason, message)

	return status
}

func setPodCondition(
	status *corev1.PodStatus, now metav1.Time,
	kind corev1.PodConditionType, value corev1.ConditionStatus, reason, message string,
) {
	next := corev1.PodCondition{
		Type: kind, Status: value, Reason: reason, Message: message,
		LastTransitionTime: now,
	}

	index := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })

	switch {
	case index < 0:
		status.Conditions = append(status.Conditions, next)
	case status.Conditions[index].Status != value:
		status.Conditions[index] = next
	}
}

// podAddress is an address in the pod network that follows from the pod's
// identity; pods of the host network have the host's.
func podAddress(pod *corev1.Pod, machine Machine) string {
	if pod.Spec.HostNetwork {
		return machine.Address
	}

	hash := fnv.New32a()
	// Writing to a hash does not fail.
	_, _ = hash.Write([]byte(pod.UID))
	sum := hash.Sum32()

	return fmt.Sprintf("10.244.%d.%d", sum>>8&0xff, 1+sum%254)
}
