// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeGrace is how long the node controller waits, in simulated time, for a kubelet that has stopped reporting.
const nodeGrace = 40 * time.Second

const purposeGrace = "grace"

func (p *play) nodeSeen(node *corev1.Node) {
	p.ledger.observeNode(node)
	p.queue.Add(key{kind: kindNode, name: node.Name})

	// Pods that wait for a node may fit now, or not any more.
	for _, pod := range p.podsOn("") {
		p.queue.Add(podKey(pod))
	}
}

// reconcileNode does what the kubelet of a node, or the node controller if the kubelet is silent, would do now.
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

// registerNode returns the Node object of a running kubelet, created once per boot; nil if somebody has deleted it
// since.
func (p *play) registerNode(ctx context.Context, machine Machine) (*corev1.Node, error) {
	nodes := p.client.CoreV1().Nodes()

	// A write for an object that has changed since is refused, and tried again.
	known, found := p.nodes.get("", machine.Name)
	node := known.DeepCopy()

	var err error
	if !found {
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

// schedulableControlPlanes reports whether control planes take pods, as Talos clusters without workers are set up.
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

// writeNode sets the status and the taints of a node, and its annotation of the schematic. The rest of the object
// belongs to others.
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

	// The patch has the resource version, so that a cordon that arrives meanwhile is seen before its taint is
	// decided on.
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

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	// annotationSchematic is how Talos shows the schematic of a node.
	annotationSchematic = "extensions.talos.dev/schematic"
)

// newNode returns the object that a kubelet registers.
func newNode(machine Machine, schedulable bool) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: machine.Name,
		Labels: map[string]string{
			corev1.LabelHostname:   machine.Name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64",
		},
	}}

	if machine.Role == RoleControlPlane {
		node.Labels[labelControlPlane] = ""

		if !schedulable {
			node.Spec.Taints = []corev1.Taint{{Key: labelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
		}
	}

	return node
}

// liveNode returns the node as its running kubelet, and Talos beside it, report it.
func (p *play) liveNode(node *corev1.Node, machine Machine) *corev1.Node {
	wanted := node.DeepCopy()

	delete(wanted.Annotations, annotationSchematic)

	if machine.Schematic != "" {
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, annotationSchematic, machine.Schematic)
	}

	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("4"),
		corev1.ResourceMemory:           resource.MustParse("8Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("40Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}

	wanted.Status.Capacity = capacity
	wanted.Status.Allocatable = capacity
	wanted.Status.Addresses = nodeAddresses(machine)
	wanted.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: machine.MachineID,
		// A kubelet uses the machine ID if the firmware reports no UUID.
		SystemUUID:              cmp.Or(machine.UUID, machine.MachineID),
		BootID:                  machine.BootID,
		KernelVersion:           "6.18.0-talos",
		OSImage:                 "Talos (v" + machine.Talos + ")",
		ContainerRuntimeVersion: "containerd://2.1.4",
		KubeletVersion:          "v" + machine.Kubelet.Version,
		OperatingSystem:         "linux",
		Architecture:            "amd64",
	}

	now := p.now()
	setPressure(wanted, now, corev1.ConditionFalse, "", machine.Kubelet.DiskPressure)

	if machine.Kubelet.Ready {
		setCondition(wanted, now, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	} else {
		setCondition(wanted, now, corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready")
	}

	return wanted
}

// nodeAddresses returns the addresses of a machine in the order of clouds: the outer one first.
func nodeAddresses(machine Machine) []corev1.NodeAddress {
	return slices.DeleteFunc([]corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: machine.Outer},
		{Type: corev1.NodeInternalIP, Address: machine.Address},
		{Type: corev1.NodeInternalIP, Address: machine.Other},
		{Type: corev1.NodeHostName, Address: machine.Name},
	}, func(address corev1.NodeAddress) bool { return address.Address == "" })
}

// silentNode returns the node as the node controller leaves it after its kubelet has stopped reporting.
func silentNode(node *corev1.Node, now metav1.Time) *corev1.Node {
	wanted := node.DeepCopy()

	const reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."

	setPressure(wanted, now, corev1.ConditionUnknown, message, false)
	setCondition(wanted, now, corev1.NodeReady, corev1.ConditionUnknown, reason, message)

	return wanted
}

// setPressure sets the conditions about pressure. It sets each of them once: otherwise its times would change with
// every reconcile.
func setPressure(node *corev1.Node, now metav1.Time, status corev1.ConditionStatus, message string, full bool) {
	reasons := map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure: "KubeletHasSufficientMemory",
		corev1.NodeDiskPressure:   "KubeletHasNoDiskPressure",
		corev1.NodePIDPressure:    "KubeletHasSufficientPID",
	}

	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	} {
		switch {
		case status == corev1.ConditionUnknown:
			setCondition(node, now, kind, status, "NodeStatusUnknown", message)
		case full && kind == corev1.NodeDiskPressure:
			setCondition(node, now, kind, corev1.ConditionTrue, "KubeletHasDiskPressure", "kubelet has disk pressure")
		default:
			setCondition(node, now, kind, status, reasons[kind], message)
		}
	}
}

// setCondition changes a condition, and its times only if it changes: heartbeats would be writes that say nothing.
func setCondition(
	node *corev1.Node, now metav1.Time,
	kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string,
) {
	next := corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}

	index := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if index < 0 {
		node.Status.Conditions = append(node.Status.Conditions, next)

		return
	}

	known := node.Status.Conditions[index]
	if known.Status == status && known.Reason == reason && known.Message == message {
		return
	}

	if known.Status == status {
		next.LastTransitionTime = known.LastTransitionTime
	}

	node.Status.Conditions[index] = next
}

// nodeTaints returns the taints of others, and then those that the node controller derives from a node's conditions
// and its cordon.
func nodeTaints(node *corev1.Node, now metav1.Time) []corev1.Taint {
	derived := map[string][]corev1.TaintEffect{
		corev1.TaintNodeNotReady: nil, corev1.TaintNodeUnreachable: nil, corev1.TaintNodeUnschedulable: nil, corev1.TaintNodeDiskPressure: nil,
	}

	switch readyStatus(node) {
	case corev1.ConditionTrue:
	case corev1.ConditionUnknown:
		derived[corev1.TaintNodeUnreachable] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	default:
		derived[corev1.TaintNodeNotReady] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	}

	if node.Spec.Unschedulable {
		derived[corev1.TaintNodeUnschedulable] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule}
	}

	if conditionStatus(node, corev1.NodeDiskPressure) == corev1.ConditionTrue {
		derived[corev1.TaintNodeDiskPressure] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule}
	}

	var taints []corev1.Taint

	for _, taint := range node.Spec.Taints {
		if _, ours := derived[taint.Key]; ours {
			if !slices.Contains(derived[taint.Key], taint.Effect) {
				continue
			}

			derived[taint.Key] = slices.DeleteFunc(derived[taint.Key],
				func(effect corev1.TaintEffect) bool { return effect == taint.Effect })
		}

		taints = append(taints, taint)
	}

	for _, name := range slices.Sorted(maps.Keys(derived)) {
		for _, effect := range derived[name] {
			taints = append(taints, corev1.Taint{Key: name, Effect: effect, TimeAdded: &now})
		}
	}

	return taints
}

func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	return conditionStatus(node, corev1.NodeReady)
}

// conditionStatus returns the status of a condition; False if there is none.
func conditionStatus(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}

	return corev1.ConditionFalse
}

const (
	// heartbeatEvery is real time: scaled, the leases of a large cluster would be most of what the API server does.
	heartbeatEvery = 10 * time.Second
	// heartbeatShare limits the load of heartbeats: there is at most one in each such period.
	heartbeatShare = 60 * time.Millisecond
	// leasePeriods is how many heartbeats may fail before a lease expires.
	leasePeriods = 4
)

// heartbeatPeriod is the time between two heartbeats of a kubelet.
func heartbeatPeriod(machines int) time.Duration {
	return max(heartbeatEvery, time.Duration(machines)*heartbeatShare)
}

// heartbeat renews the leases of running kubelets until the server stops.
func (p *play) heartbeat() {
	for {
		machines := p.options.World.Machines()
		period := heartbeatPeriod(len(machines))

		for _, machine := range machines {
			// If a heartbeat fails, the next one follows.
			if machine.Kubelet.Running && p.ctx.Err() == nil {
				_ = p.beat(machine.Name, leasePeriods*period)
			}
		}

		timer := time.NewTimer(period)

		select {
		case <-p.ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		}
	}
}

func (p *play) beat(node string, lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()

	leases := p.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())

	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return fmt.Errorf("encoding the heartbeat of %s: %w", node, err)
	}

	_, err = leases.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(lasts.Seconds())
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &now,
			},
		}, metav1.CreateOptions{})
	}

	if err != nil {
		return fmt.Errorf("renewing the lease of %s: %w", node, err)
	}

	return nil
}
