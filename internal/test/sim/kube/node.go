// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeGrace is how long the node controller waits, in simulated time, for a
// kubelet that has fallen silent.
const nodeGrace = 40 * time.Second

const purposeGrace = "grace"

func (p *play) nodeSeen(node *corev1.Node) {
	p.ledger.observeNode(node)
	p.queue.Add(key{kind: kindNode, name: node.Name})

	// Room may have come up, or gone, for pods that wait for a node.
	for _, pod := range p.podsOn("") {
		p.queue.Add(podKey(pod))
	}
}

// reconcileNode does what the kubelet of a node, or the node controller where
// the kubelet is silent, would do now.
func (p *play) reconcileNode(ctx context.Context, k key) error {
	machine, found := p.options.World.Machine(k.name)
	if !found || !machine.Kubelet.Running {
		return p.loseNode(ctx, k)
	}

	p.timers.forget(k, purposeGrace)

	node, err := p.registerNode(ctx, machine)
	if err != nil || node == nil {
		return err
	}

	if node, err = p.writeNode(ctx, node, p.liveNode(node, machine)); err != nil {
		return err
	}

	if err := p.writeStaticPods(ctx, node, machine); err != nil {
		return err
	}

	if err := p.writeManifests(ctx, machine); err != nil {
		return err
	}

	p.wakePods(k.name)

	return nil
}

// registerNode is the Node object of a running kubelet, created once per boot;
// nil when somebody has deleted it since.
func (p *play) registerNode(ctx context.Context, machine Machine) (*corev1.Node, error) {
	nodes := p.client.CoreV1().Nodes()

	// What is written for an object that has changed since is refused, and tried again.
	known, err := p.informers.Core().V1().Nodes().Lister().Get(machine.Name)
	node := known.DeepCopy()

	if err != nil {
		node, err = nodes.Get(ctx, machine.Name, metav1.GetOptions{})
	}

	if apierrors.IsNotFound(err) {
		if p.registration(machine.Name) == machine.BootID {
			return nil, nil
		}

		node, err = nodes.Create(ctx, newNode(machine, p.schedulableControlPlanes()), metav1.CreateOptions{})
	}

	if err != nil {
		return nil, fmt.Errorf("registering node %s: %w", machine.Name, err)
	}

	p.mutex.Lock()
	p.registered[machine.Name] = machine.BootID
	p.mutex.Unlock()

	return node, nil
}

func (p *play) registration(node string) string {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	return p.registered[node]
}

// schedulableControlPlanes is how Talos clusters without workers are set up.
func (p *play) schedulableControlPlanes() bool {
	for _, machine := range p.options.World.Machines() {
		if machine.Role == RoleWorker {
			return false
		}
	}

	return true
}

// loseNode marks a node whose kubelet has been silent for too long.
func (p *play) loseNode(ctx context.Context, k key) error {
	p.mutex.Lock()
	delete(p.registered, k.name)
	p.mutex.Unlock()

	if !p.timers.due(k, purposeGrace, nodeGrace) {
		return nil
	}

	node, err := p.client.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("reading node %s: %w", k.name, err)
	}

	if _, err := p.writeNode(ctx, node, silentNode(node, p.now())); err != nil {
		return err
	}

	p.wakePods(k.name)

	return nil
}

// writeNode brings the status and the taints of a node to what is wanted. The
// rest of the object belongs to others.
func (p *play) writeNode(ctx context.Context, node, wanted *corev1.Node) (*corev1.Node, error) {
	wanted.Spec.Taints = nodeTaints(wanted, p.now())
	nodes := p.client.CoreV1().Nodes()

	if !equality.Semantic.DeepEqual(node.Status, wanted.Status) {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": node.UID},
			"status":   wanted.Status,
		})
		if err != nil {
			return nil, fmt.Errorf("encoding the status of node %s: %w", node.Name, err)
		}

		written, err := nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return nil, fmt.Errorf("writing the status of node %s: %w", node.Name, err)
		}

		node.ResourceVersion, node.Status = written.ResourceVersion, written.Status
	}

	schematic, extended := wanted.Annotations[annotationSchematic]
	if equality.Semantic.DeepEqual(node.Spec.Taints, wanted.Spec.Taints) &&
		schematic == node.Annotations[annotationSchematic] {
		return node, nil
	}

	annotations := map[string]any{annotationSchematic: nil}
	if extended {
		annotations[annotationSchematic] = schematic
	}

	// With the resource version, so that a cordon that arrives meanwhile is
	// seen before its taint is decided on.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": annotations},
		"spec":     map[string]any{"taints": wanted.Spec.Taints},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the taints of node %s: %w", node.Name, err)
	}

	written, err := nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("writing the taints of node %s: %w", node.Name, err)
	}

	return written, nil
}
