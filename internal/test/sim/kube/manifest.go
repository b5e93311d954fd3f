// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// managerTalos is who Talos says it is when it writes an object.
const managerTalos = "talos"

// found lets the control planes create their manifests. Before all nodes are
// there their pods would crowd on the first ones.
func (p *play) found() {
	p.mutex.Lock()
	p.founded = true
	p.mutex.Unlock()

	p.changed("")
}

// manifestsDue tells whether a control plane has manifests that it did not look
// after yet.
func (p *play) manifestsDue(machine Machine) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	return machine.Role == RoleControlPlane && machine.APIServerUp && p.founded &&
		p.rendered[machine.Name] != renderedFrom(machine)
}

// renderedFrom names what the manifests of a control plane follow from.
func renderedFrom(machine Machine) string {
	return machine.BootID + "/" + strconv.Itoa(machine.ConfigVersion)
}

// writeManifests creates what a control plane wants to exist and does not, once
// per boot and configuration, from Talos 1.13 on with the help of an inventory.
// What exists stays as it is, as with Talos: only an upgrade of Kubernetes
// changes it.
func (p *play) writeManifests(ctx context.Context, machine Machine) error {
	if !p.manifestsDue(machine) {
		return nil
	}

	var objects []*unstructured.Unstructured
	for _, object := range p.options.World.Manifests(machine.Name) {
		objects = append(objects, &unstructured.Unstructured{Object: object})
	}

	create := p.createAll
	if model.AtLeast(machine.Talos, 1, 13) {
		create = p.createUnlisted
	}

	if err := create(ctx, objects, machine); err != nil {
		return err
	}

	p.mutex.Lock()
	defer p.mutex.Unlock()

	p.rendered[machine.Name] = renderedFrom(machine)

	return nil
}

// createAll creates the objects that do not exist.
func (p *play) createAll(ctx context.Context, objects []*unstructured.Unstructured, machine Machine) error {
	for _, object := range objects {
		if err := p.createMissing(ctx, object, machine); err != nil {
			return err
		}
	}

	return nil
}

// createMissing creates an object that does not exist, by server-side apply
// where the machine's Talos does.
func (p *play) createMissing(ctx context.Context, object *unstructured.Unstructured, machine Machine) error {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	objects := p.client.objects.Resource(resource).Namespace(object.GetNamespace())

	_, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{})

	switch {
	case !apierrors.IsNotFound(err):
	case model.AtLeast(machine.Talos, 1, 13):
		_, err = objects.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: managerTalos})
	default:
		_, err = objects.Create(ctx, object, metav1.CreateOptions{FieldManager: managerTalos})
	}

	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}

	p.mutex.Lock()
	defer p.mutex.Unlock()

	if made := kind(object.GetKind()); made == kindDaemonSet || made == kindDeployment {
		p.workloads[key{kind: made, namespace: object.GetNamespace(), name: object.GetName()}] = true
	}

	return nil
}

// unsettledManifests names something of the manifests that is not as it should
// be when a cluster starts.
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

// rolledOut tells whether a workload of the manifests has its pods. Those of a
// DaemonSet need not be ready: their nodes may not be.
func (p *play) rolledOut(k key) bool {
	if k.kind == kindDaemonSet {
		set, err := p.informers.Apps().V1().DaemonSets().Lister().DaemonSets(k.namespace).Get(k.name)

		return err == nil && set.Status.ObservedGeneration == set.Generation &&
			set.Status.CurrentNumberScheduled == set.Status.DesiredNumberScheduled
	}

	deployment, err := p.informers.Apps().V1().Deployments().Lister().Deployments(k.namespace).Get(k.name)
	if err != nil || deployment.Status.ObservedGeneration != deployment.Generation {
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
