// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The components that run as containers, and where their images come from.
const (
	nameAPIServer         = "kube-apiserver"
	nameControllerManager = "kube-controller-manager"
	nameScheduler         = "kube-scheduler"
	nameProxy             = "kube-proxy"

	imageRegistry = "registry.k8s.io/"
)

// mirrors tells whether a pod shows a static pod of a kubelet.
func mirrors(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]

	return mirror
}

func image(component, version string) string { return imageRegistry + component + ":v" + version }

// writeStaticPods shows the static pods of a control plane.
func (p *play) writeStaticPods(ctx context.Context, node *corev1.Node, machine Machine) error {
	if machine.Role != RoleControlPlane {
		return nil
	}

	for _, component := range []string{nameAPIServer, nameControllerManager, nameScheduler} {
		version := machine.Components[component]
		if version == "" {
			continue
		}

		if err := p.writeStaticPod(ctx, newStaticPod(node, component, version), machine); err != nil {
			return err
		}
	}

	return nil
}

// writeStaticPod replaces a mirror pod whose manifest has changed, as kubelets
// do, and keeps its status.
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

	return p.writeStaticStatus(ctx, pod, machine)
}

// writeStaticStatus follows the API server of the machine: the other two can do
// nothing without it.
func (p *play) writeStaticStatus(ctx context.Context, pod *corev1.Pod, machine Machine) error {
	running := containerID(pod, machine.BootID)

	switch {
	case machine.APIServerUp && (!podReady(pod) || startedAs(pod) != running):
		return p.writePod(ctx, pod, runningStatus(pod, p.now(), machine, running))
	case !machine.APIServerUp && podReady(pod):
		return p.writePod(ctx, pod, unreadyStatus(pod, p.now(), "ContainersNotReady", "the container does not answer"))
	default:
		return nil
	}
}

func newStaticPod(node *corev1.Node, component, version string) *corev1.Pod {
	sum := sha256.Sum256([]byte(component + version))
	manifest := hex.EncodeToString(sum[:16])
	yes := true

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceSystem,
			Name:      component + "-" + node.Name,
			Labels:    map[string]string{"k8s-app": component, "component": component, "tier": "control-plane"},
			Annotations: map[string]string{
				corev1.MirrorPodAnnotationKey: manifest,
				"kubernetes.io/config.hash":   manifest,
				"kubernetes.io/config.source": "file",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:          node.Name,
			HostNetwork:       true,
			PriorityClassName: "system-cluster-critical",
			Containers:        []corev1.Container{{Name: component, Image: image(component, version)}},
			Tolerations:       []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}
