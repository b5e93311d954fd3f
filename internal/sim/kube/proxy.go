// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// proxies tells whether a pod belongs to kube-proxy.
func proxies(pod *corev1.Pod) bool {
	return pod.Namespace == namespaceSystem && pod.Labels["k8s-app"] == nameProxy
}

// reconcileProxies is the DaemonSet controller for the one DaemonSet there is:
// a pod on each node, in the version the machine runs.
func (p *play) reconcileProxies(ctx context.Context) error {
	machines := p.options.World.Machines()

	set, err := p.writeProxySet(ctx, machines)
	if err != nil || set == nil {
		return err
	}

	for _, machine := range machines {
		if err := p.writeProxy(ctx, set, machine); err != nil {
			return err
		}
	}

	return p.countProxies(ctx, set, len(machines))
}

// writeProxySet is the DaemonSet, whose template follows the control planes;
// nil where no machine runs kube-proxy.
func (p *play) writeProxySet(ctx context.Context, machines []Machine) (*appsv1.DaemonSet, error) {
	version := ""

	for _, machine := range machines {
		if machine.Role == RoleControlPlane && version == "" {
			version = machine.Components[nameProxy]
		}
	}

	if version == "" {
		return nil, nil
	}

	sets := p.client.AppsV1().DaemonSets(namespaceSystem)
	wanted := newProxySet(version)

	set, err := sets.Get(ctx, nameProxy, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		set, err = sets.Create(ctx, wanted, metav1.CreateOptions{})
	}

	if err == nil && set.Spec.Template.Spec.Containers[0].Image != wanted.Spec.Template.Spec.Containers[0].Image {
		set.Spec.Template = wanted.Spec.Template
		set, err = sets.Update(ctx, set, metav1.UpdateOptions{})
	}

	if err != nil {
		return nil, fmt.Errorf("keeping the DaemonSet of kube-proxy: %w", err)
	}

	return set, nil
}

// writeProxy replaces the pod of a machine that runs another version than the
// pod shows.
func (p *play) writeProxy(ctx context.Context, set *appsv1.DaemonSet, machine Machine) error {
	version := machine.Components[nameProxy]
	if version == "" || !machine.Kubelet.Running {
		return nil
	}

	sum := sha256.Sum256([]byte(machine.Name + version))
	name := nameProxy + "-" + hex.EncodeToString(sum[:])[:5]

	for _, pod := range p.podsOn(machine.Name) {
		if !proxies(pod) {
			continue
		}

		if pod.Name == name {
			return nil
		}

		if err := p.removePod(ctx, pod); err != nil {
			return err
		}
	}

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceSystem, Name: name, Labels: set.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
			},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = machine.Name
	pod.Spec.Containers[0].Image = image(nameProxy, version)

	_, err := p.client.CoreV1().Pods(namespaceSystem).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("starting kube-proxy on %s: %w", machine.Name, err)
	}

	return nil
}

// countProxies keeps the numbers by which people see that a DaemonSet is well.
func (p *play) countProxies(ctx context.Context, set *appsv1.DaemonSet, desired int) error {
	status := appsv1.DaemonSetStatus{
		ObservedGeneration:     set.Generation,
		DesiredNumberScheduled: int32(desired),
	}

	for _, object := range p.pods.List() {
		pod, ok := object.(*corev1.Pod)
		if !ok || !proxies(pod) || pod.DeletionTimestamp != nil {
			continue
		}

		status.CurrentNumberScheduled++

		if podReady(pod) {
			status.NumberReady++
			status.NumberAvailable++
		}

		if pod.Spec.Containers[0].Image == set.Spec.Template.Spec.Containers[0].Image {
			status.UpdatedNumberScheduled++
		}
	}

	status.NumberUnavailable = max(0, status.DesiredNumberScheduled-status.NumberAvailable)

	if equality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}

	set.Status = status

	_, err := p.client.AppsV1().DaemonSets(namespaceSystem).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("counting the pods of kube-proxy: %w", err)
	}

	return nil
}

func newProxySet(version string) *appsv1.DaemonSet {
	set := labels.Set{"k8s-app": nameProxy, "tier": "node"}

	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceSystem, Name: nameProxy, Labels: set},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: set},
				Spec: corev1.PodSpec{
					HostNetwork:       true,
					PriorityClassName: "system-node-critical",
					Containers:        []corev1.Container{{Name: nameProxy, Image: image(nameProxy, version)}},
					Tolerations:       []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
}
