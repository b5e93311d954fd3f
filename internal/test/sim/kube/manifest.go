// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
)

// found lets the control planes create their manifests. Earlier, before all nodes exist, the pods would gather on
// the first ones.
func (p *play) found() {
	p.mutex.Lock()
	p.founded = true
	p.mutex.Unlock()

	p.changed("")
}

// manifestsDue reports whether a control plane has manifests that it has not created yet.
func (p *play) manifestsDue(machine Machine) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	return machine.Role == RoleControlPlane && machine.APIServerUp && p.founded &&
		p.rendered[machine.Name] != renderedFrom(machine)
}

// renderedFrom names what the manifests of a control plane depend on.
func renderedFrom(machine Machine) string {
	return machine.BootID + "/" + strconv.Itoa(machine.ConfigVersion)
}

// writeManifests creates what a control plane wants to exist and does not, once per boot and configuration, from
// Talos 1.13 on with an inventory. What exists stays as it is, as with Talos: only an upgrade of Kubernetes changes
// it.
func (p *play) writeManifests(ctx context.Context, machine Machine) error {
	if !p.manifestsDue(machine) {
		return nil
	}

	var objects []*unstructured.Unstructured
	for _, object := range p.options.World.Manifests(machine.Name) {
		objects = append(objects, &unstructured.Unstructured{Object: object})
	}

	exist, err := bootstrap.NewCreator(p.client.objects, machine.Talos).Create(ctx, objects)

	p.mutex.Lock()
	defer p.mutex.Unlock()

	for _, object := range exist {
		if made := kind(object.GetKind()); made == kindDaemonSet || made == kindDeployment {
			p.workloads[key{kind: made, namespace: object.GetNamespace(), name: object.GetName()}] = true
		}
	}

	if err == nil {
		p.rendered[machine.Name] = renderedFrom(machine)
	}

	return err
}

// unsettledManifests names a part of the manifests that is not as it should be when a cluster starts.
func (p *play) unsettledManifests() string {
	for _, machine := range p.options.World.Machines() {
		if machine.Kubelet.Running && p.manifestsDue(machine) {
			return "the manifests of " + machine.Name
		}
	}

	p.mutex.Lock()
	defer p.mutex.Unlock()

	for workload := range p.workloads {
		if !p.rolledOut(workload) {
			return string(workload.kind) + " " + workload.name
		}
	}

	return ""
}

// rolledOut reports whether a workload of the manifests has its pods. Those of a DaemonSet need not be ready,
// because their nodes may not be.
func (p *play) rolledOut(k key) bool {
	if k.kind == kindDaemonSet {
		set, found := p.daemonSets.get(k.namespace, k.name)

		return found && set.Status.ObservedGeneration == set.Generation &&
			set.Status.CurrentNumberScheduled == set.Status.DesiredNumberScheduled
	}

	deployment, found := p.deployments.get(k.namespace, k.name)
	if !found || deployment.Status.ObservedGeneration != deployment.Generation {
		return false
	}

	return deployment.Status.AvailableReplicas >= replicasOf(deployment) || !p.anyKubeletReady()
}

func (p *play) anyKubeletReady() bool {
	for _, machine := range p.options.World.Machines() {
		if machine.Kubelet.Running && machine.Kubelet.Ready {
			return true
		}
	}

	return false
}

func replicasOf(deployment *appsv1.Deployment) int32 {
	if deployment.Spec.Replicas == nil {
		return 1
	}

	return *deployment.Spec.Replicas
}

// nameProxy is the DaemonSet whose pods count as a component of Kubernetes.
const nameProxy = "kube-proxy"

// proxySeen queues a node of which a pod of kube-proxy was seen.
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

// reconcileProxy sets in the world which kube-proxy runs on a node: the one that was started last in the present
// boot; none once the DaemonSet and its pod are gone.
func (p *play) reconcileProxy(k key) {
	machine, found := p.options.World.Machine(k.name)
	if !found {
		return
	}

	pods := slices.DeleteFunc(p.podsOn(k.name), func(pod *corev1.Pod) bool { return !isProxy(pod) })
	if len(pods) == 0 {
		_, found := p.daemonSets.get(namespaceSystem, nameProxy)
		if !found && machine.Proxy != "" {
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

// tells notes the container of the kube-proxy that the world knows on a node. It returns false if that is the known
// one.
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

// imageVersion returns the tag of an image without its v; empty if it has none.
func imageVersion(image string) string {
	name, _, _ := strings.Cut(image, "@")

	colon := strings.LastIndex(name, ":")
	if colon < 0 || colon < strings.LastIndex(name, "/") {
		return ""
	}

	return strings.TrimPrefix(name[colon+1:], "v")
}
