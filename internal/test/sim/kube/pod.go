// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How long a pod takes to become Ready on a node, and to end after it was told to, in simulated time.
const (
	podStartLow, podStartHigh = 2 * time.Second, 6 * time.Second
	podStopLow, podStopHigh   = 1 * time.Second, 4 * time.Second
)

func podKey(pod *corev1.Pod) key {
	return key{kind: kindPod, namespace: pod.Namespace, name: pod.Name}
}

func (p *play) podSeen(pod *corev1.Pod) {
	p.ledger.observePod(pod)
	p.queue.Add(podKey(pod))
	p.proxySeen(pod)
}

func (p *play) podGone(pod *corev1.Pod) {
	p.timers.forget(podKey(pod))

	p.mutex.Lock()
	delete(p.assumed, string(pod.UID))
	p.mutex.Unlock()

	p.proxySeen(pod)

	switch {
	case mirrors(pod):
		p.queue.Add(key{kind: kindNode, name: pod.Spec.NodeName})
	case pod.Labels[labelBlocked] != "":
		p.queue.Add(key{kind: kindBlock, name: pod.Labels[labelBlocked]})
	}
}

// podsOn lists the pods of a node; with an empty name, those without one.
func (p *play) podsOn(node string) []*corev1.Pod {
	return p.pods.by(indexNodeName, node)
}

func (p *play) wakePods(node string) {
	for _, pod := range p.podsOn(node) {
		p.queue.Add(podKey(pod))
	}
}

func (p *play) pod(k key) (*corev1.Pod, bool) {
	return p.pods.get(k.namespace, k.name)
}

// reconcilePod does what the scheduler, the kubelet or, for a lost node, the node controller would do with a pod
// now.
func (p *play) reconcilePod(ctx context.Context, k key) error {
	pod, found := p.pod(k)

	switch {
	case !found:
		return nil
	case pod.Spec.NodeName == "":
		return p.schedule(ctx, pod)
	}

	machine, exists := p.options.World.Machine(pod.Spec.NodeName)

	switch {
	case !exists || !machine.Kubelet.Running:
		return p.losePod(ctx, pod)
	case mirrors(pod) && pod.DeletionTimestamp == nil:
		// It is reconciled as a part of its node.
		return nil
	case pod.DeletionTimestamp != nil && !machine.Kubelet.Ready && !mirrors(pod):
		// Its kubelet does not delete it; the pod is reconciled again with the node.
		return p.losePod(ctx, pod)
	case pod.DeletionTimestamp != nil:
		return p.finishPod(ctx, k, pod, machine)
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return nil
	case !machine.Kubelet.Ready && startedAs(pod) == containerID(pod, machine.BootID):
		return p.losePod(ctx, pod)
	default:
		return p.runPod(ctx, k, pod, machine)
	}
}

// runPod makes a pod's container run in the present boot of its node.
func (p *play) runPod(ctx context.Context, k key, pod *corev1.Pod, machine Machine) error {
	running := containerID(pod, machine.BootID)

	if startedAs(pod) == running && podReady(pod) {
		return nil
	}

	// A container of an earlier boot is gone.
	if startedAs(pod) != running && podReady(pod) {
		return p.writePod(ctx, pod, unreadyStatus(pod, p.now(), "ContainersNotReady", "the node has restarted"))
	}

	delay := spread(p.options.Seed, "start "+k.name, podStartLow, podStartHigh)
	if !machine.Kubelet.Ready || !p.timers.due(k, "start "+machine.BootID, delay) {
		return nil
	}

	return p.writePod(ctx, pod, runningStatus(pod, p.now(), machine, running))
}

// finishPod removes a pod that is being deleted once its processes have ended.
func (p *play) finishPod(ctx context.Context, k key, pod *corev1.Pod, machine Machine) error {
	delay := spread(p.options.Seed, "stop "+k.name, podStopLow, podStopHigh)
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		delay = min(delay, time.Duration(*grace)*time.Second)
	}

	if delay > 0 && !p.timers.due(k, "stop "+machine.BootID, delay) {
		return nil
	}

	return p.removePod(ctx, pod)
}

// removePod deletes a pod for good.
func (p *play) removePod(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)

	err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}

	return nil
}

// losePod marks a pod of a node that the node controller finds not ready, and removes one whose node was deleted.
func (p *play) losePod(ctx context.Context, pod *corev1.Pod) error {
	node, found := p.nodes.get("", pod.Spec.NodeName)

	switch {
	case !found:
		return p.removePod(ctx, pod)
	case readyStatus(node) == corev1.ConditionTrue, !podReady(pod):
		return nil
	}

	return p.writePod(ctx, pod, unreadyStatus(pod, p.now(), "NodeNotReady", "the node is not ready"))
}

// writePod replaces the status of a pod, unless the name belongs to another pod by now.
func (p *play) writePod(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encoding the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}

	_, err = p.client.CoreV1().Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")

	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("writing the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	default:
		return nil
	}
}

// containerID returns the name of a container by its pod and the boot in which it runs.
func containerID(pod *corev1.Pod, bootID string) string {
	sum := sha256.Sum256([]byte(string(pod.UID) + bootID))

	return "containerd://" + hex.EncodeToString(sum[:])
}

// startedAs returns the container in the status of a pod.
func startedAs(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 {
		return ""
	}

	return pod.Status.ContainerStatuses[0].ContainerID
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// runningStatus returns the status of a pod all of whose containers run.
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

// unreadyStatus returns the status of a pod whose containers do not answer.
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

// podAddress returns an address in the pod network that depends on the pod's UID; pods of the host network have the
// host's.
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
