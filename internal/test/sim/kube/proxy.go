// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nameProxy is the DaemonSet whose pods count as a component of Kubernetes.
const nameProxy = "kube-proxy"

// proxySeen has the world told which kube-proxy its node runs.
func (p *play) proxySeen(pod *corev1.Pod) {
	if isProxy(pod) && pod.Spec.NodeName != "" {
		p.queue.Add(key{kind: kindProxy, name: pod.Spec.NodeName})
	}
}

func (p *play) daemonsGone(set *appsv1.DaemonSet) {
	if set.Namespace != namespaceSystem || set.Name != nameProxy {
		return
	}

	for _, machine := range p.options.World.Machines() {
		p.queue.Add(key{kind: kindProxy, name: machine.Name})
	}
}

func isProxy(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)

	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == nameProxy && pod.Namespace == namespaceSystem
}

// reconcileProxy tells the world which kube-proxy runs on a node: the one that was
// started last in the present boot; none once the DaemonSet and its pod are gone.
func (p *play) reconcileProxy(k key) {
	machine, found := p.options.World.Machine(k.name)
	if !found {
		return
	}

	pods := slices.DeleteFunc(p.podsOn(k.name), func(pod *corev1.Pod) bool { return !isProxy(pod) })
	if len(pods) == 0 {
		_, err := p.informers.Apps().V1().DaemonSets().Lister().DaemonSets(namespaceSystem).Get(nameProxy)
		if err != nil && machine.Proxy != "" {
			p.tells(k.name, "")
			p.options.World.SetProxy(k.name, "")
		}

		return
	}

	for _, pod := range pods {
		if !podReady(pod) || startedAs(pod) != containerID(pod, machine.BootID) || !p.tells(k.name, startedAs(pod)) {
			continue
		}

		if version := imageVersion(proxyImage(pod)); version != "" && version != machine.Proxy {
			p.options.World.SetProxy(k.name, version)
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
