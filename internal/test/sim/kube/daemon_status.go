// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// countDaemons keeps the numbers by which people see that a DaemonSet is well.
func (p *play) countDaemons(ctx context.Context, state daemons) error {
	status := appsv1.DaemonSetStatus{
		ObservedGeneration:     state.set.Generation,
		DesiredNumberScheduled: int32(len(state.nodes)),
		CollisionCount:         state.set.Status.CollisionCount,
		Conditions:             state.set.Status.Conditions,
	}

	for _, pod := range state.pods {
		status.CurrentNumberScheduled++

		if podReady(pod) {
			status.NumberReady++
			status.NumberAvailable++
		}

		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == state.revision {
			status.UpdatedNumberScheduled++
		}
	}

	status.NumberUnavailable = max(0, status.DesiredNumberScheduled-status.NumberAvailable)

	if equality.Semantic.DeepEqual(state.set.Status, status) {
		return nil
	}

	set := state.set.DeepCopy()
	set.Status = status

	_, err := p.client.AppsV1().DaemonSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("counting the pods of %s: %w", set.Name, err)
	}

	return nil
}

// tellProxies tells the world which kube-proxy runs on each node.
func (p *play) tellProxies(state daemons) {
	if state.set.Name != nameProxy {
		return
	}

	for _, node := range state.nodes {
		pod := state.pods[node]
		if pod == nil || !podReady(pod) || !p.tells(node, startedAs(pod)) {
			continue
		}

		machine, found := p.options.World.Machine(node)
		if !found || startedAs(pod) != containerID(pod, machine.BootID) {
			p.tells(node, "")

			continue
		}

		if version := imageVersion(proxyImage(pod)); version != "" && version != machine.Proxy {
			p.options.World.SetProxy(node, version)
		}
	}
}

// tells notes the container by which the world is told of the kube-proxy of a node;
// false where that is the one by which it knows already.
func (p *play) tells(node, container string) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	known := p.proxies[node] == container
	p.proxies[node] = container

	return !known
}

// tellNoProxies tells the world on which nodes no kube-proxy runs any more, its
// DaemonSet being gone.
func (p *play) tellNoProxies(k key) {
	if k.name != nameProxy {
		return
	}

	pods := p.podsOf(k, "DaemonSet")

	for _, machine := range p.options.World.Machines() {
		runs := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == machine.Name })
		if !runs && machine.Proxy != "" {
			p.tells(machine.Name, "")
			p.options.World.SetProxy(machine.Name, "")
		}
	}
}

func proxyImage(pod *corev1.Pod) string {
	index := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == nameProxy })
	if index < 0 {
		return ""
	}

	return pod.Spec.Containers[index].Image
}

// imageVersion is the tag of an image without its v; empty where it has none.
func imageVersion(image string) string {
	name, _, _ := strings.Cut(image, "@")

	colon := strings.LastIndex(name, ":")
	if colon < 0 || colon < strings.LastIndex(name, "/") {
		return ""
	}

	return strings.TrimPrefix(name[colon+1:], "v")
}

// releaseDaemons lets a DaemonSet go that waited for its pods to end.
func (p *play) releaseDaemons(ctx context.Context, set *appsv1.DaemonSet) error {
	if !slices.Contains(set.Finalizers, metav1.FinalizerDeleteDependents) {
		return nil
	}

	released := set.DeepCopy()
	released.Finalizers = withoutDependents(set.Finalizers)

	_, err := p.client.AppsV1().DaemonSets(set.Namespace).Update(ctx, released, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("letting DaemonSet %s go: %w", set.Name, err)
	}

	return nil
}

// withoutDependents are the finalizers but the one for which the garbage
// collector is responsible.
func withoutDependents(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
}
