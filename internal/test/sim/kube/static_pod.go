// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	nameAPIServer = "kube-apiserver"
	// labelComponent names the component that a pod is part of.
	labelComponent = "k8s-app"
	// annotationConfigVersion is the version of the configuration that Talos
	// made a static pod from.
	annotationConfigVersion = "talos.dev/config-version"
	// annotationFilesVersion is the version of the files of an API server.
	annotationFilesVersion = "talos.dev/config-file-version"

	reasonCreating  = "ContainerCreating"
	reasonCrashLoop = "CrashLoopBackOff"
	// reasonOther is for a trouble without a reason.
	reasonOther = "CreateContainerError"
)

// mirrors reports whether a pod is the mirror of a static pod of a kubelet.
func mirrors(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]

	return mirror
}

func componentOf(pod *corev1.Pod) string { return pod.Labels[labelComponent] }

// staticReady reports whether a static pod serves. An API server without a quorum of etcd does not.
func staticReady(machine Machine, component string) bool {
	return machine.StaticPods[component].Ready && (component != nameAPIServer || machine.APIServerUp)
}

// writeStaticPods writes the mirror pods of a control plane, once its kubelet has reported how its static pods are.
func (p *play) writeStaticPods(ctx context.Context, node *corev1.Node, machine Machine) error {
	if !machine.PodsReported {
		return nil
	}

	if err := p.dropStaticPods(ctx, machine); err != nil {
		return err
	}

	for _, component := range slices.Sorted(maps.Keys(machine.StaticPods)) {
		if machine.StaticPods[component].Image == "" {
			continue
		}

		if err := p.writeStaticPod(ctx, newStaticPod(node, component, machine.StaticPods[component]), machine); err != nil {
			return err
		}
	}

	return nil
}

// dropStaticPods removes the mirror pods of what the machine does not run any more.
func (p *play) dropStaticPods(ctx context.Context, machine Machine) error {
	for _, pod := range p.podsOn(machine.Name) {
		if !mirrors(pod) || machine.StaticPods[componentOf(pod)].Image != "" {
			continue
		}

		if err := p.removePod(ctx, pod); err != nil {
			return err
		}
	}

	return nil
}

// writeStaticPod replaces a mirror pod whose manifest has changed, as kubelets do.
func (p *play) writeStaticPod(ctx context.Context, wanted *corev1.Pod, machine Machine) error {
	pods := p.client.CoreV1().Pods(wanted.Namespace)

	pod, err := pods.Get(ctx, wanted.Name, metav1.GetOptions{})

	if err == nil && pod.Annotations[corev1.MirrorPodAnnotationKey] != wanted.Annotations[corev1.MirrorPodAnnotationKey] {
		if err := p.removePod(ctx, pod); err != nil {
			return err
		}

		err = apierrors.NewNotFound(corev1.Resource("pods"), wanted.Name)
	}

	if apierrors.IsNotFound(err) {
		pod, err = pods.Create(ctx, wanted, metav1.CreateOptions{})
	}

	if err != nil {
		return fmt.Errorf("showing static pod %s: %w", wanted.Name, err)
	}

	status := p.staticStatus(pod, machine)
	if sightOf(pod.Status) == sightOf(status) {
		return nil
	}

	return p.writePod(ctx, pod, status)
}

// staticStatus returns what the kubelet of a machine says about a static pod.
func (p *play) staticStatus(pod *corev1.Pod, machine Machine) corev1.PodStatus {
	state, now := machine.StaticPods[componentOf(pod)], p.now()
	reason, message := waitingFor(state)

	switch {
	case staticReady(machine, componentOf(pod)):
		return startedAt(runningStatus(pod, now, machine, staticContainer(pod, machine, state)), state.Started)
	case reason != "":
		return waitingStatus(pod, now, machine, reason, message)
	default:
		running := pod.DeepCopy()
		running.Status = startedAt(runningStatus(pod, now, machine, staticContainer(pod, machine, state)), state.Started)

		return unreadyStatus(running, now, "ContainersNotReady", "the container does not answer")
	}
}

// startedAt returns the status of a static pod whose container started at that time, by the clock of its machine.
func startedAt(status corev1.PodStatus, started time.Time) corev1.PodStatus {
	for i := range status.ContainerStatuses {
		if running := status.ContainerStatuses[i].State.Running; running != nil {
			running.StartedAt = metav1.NewTime(started.Truncate(time.Second))
		}
	}

	return status
}

// waitingFor returns why the container of a static pod does not run; the reason is empty if it does.
func waitingFor(state StaticPod) (reason, message string) {
	reason, message, found := strings.Cut(state.Trouble, ": ")

	switch {
	case state.Trouble == "" && state.Started.IsZero():
		return reasonCreating, ""
	case strings.ContainsRune(reason, ' '):
		return reasonOther, state.Trouble
	case !found:
		return reason, ""
	default:
		return reason, message
	}
}

// waitingStatus returns the status of a pod whose containers do not run.
func waitingStatus(pod *corev1.Pod, now metav1.Time, machine Machine, reason, message string) corev1.PodStatus {
	waiting := pod.DeepCopy()
	waiting.Status = runningStatus(pod, now, machine, "")

	for i := range waiting.Status.ContainerStatuses {
		container := &waiting.Status.ContainerStatuses[i]
		stopped := false
		container.Started = &stopped
		container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}

		if reason == reasonCrashLoop {
			container.LastTerminationState = corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: now},
			}
		}
	}

	status := unreadyStatus(waiting, now, "ContainersNotReady", "containers with unready status: ["+componentOf(pod)+"]")
	if reason != reasonCrashLoop {
		status.Phase = corev1.PodPending
	}

	return status
}

// sight is the part of a pod's status that decides whether another one is written.
type sight struct {
	container, reason, message, host string
	ready                            bool
}

func sightOf(status corev1.PodStatus) sight {
	seen := sight{host: status.HostIP, ready: podReady(&corev1.Pod{Status: status})}

	for _, container := range status.ContainerStatuses {
		seen.container = container.ContainerID

		if waiting := container.State.Waiting; waiting != nil {
			seen.reason, seen.message = waiting.Reason, waiting.Message
		}
	}

	return seen
}

// staticContainer returns the name of the container of a static pod: another one after each start.
func staticContainer(pod *corev1.Pod, machine Machine, state StaticPod) string {
	return containerID(pod, machine.BootID+state.Started.UTC().Format(time.RFC3339Nano))
}

func newStaticPod(node *corev1.Node, component string, state StaticPod) *corev1.Pod {
	version, files := strconv.Itoa(state.ConfigVersion), strconv.Itoa(state.FilesVersion)
	sum := sha256.Sum256([]byte(strings.Join([]string{component, state.Image, version, files}, "\n")))
	manifest := hex.EncodeToString(sum[:16])
	yes := true

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceSystem,
			Name:      component + "-" + node.Name,
			Labels:    map[string]string{labelComponent: component, "component": component, "tier": "control-plane"},
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey: manifest,
				"kubernetes.io/config.hash":   manifest,
				"kubernetes.io/config.source": "file",
				annotationConfigVersion:       version,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:          node.Name,
			HostNetwork:       true,
			PriorityClassName: "system-cluster-critical",
			Containers:        []corev1.Container{{Name: component, Image: state.Image}},
			Tolerations:       []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}

	if state.FilesVersion > 0 {
		pod.Annotations[annotationFilesVersion] = files
	}

	return pod
}
