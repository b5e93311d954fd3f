// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	// annotationSchematic is how Talos shows the schematic of a node.
	annotationSchematic = "extensions.talos.dev/schematic"
)

// newNode is the object that a kubelet registers.
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

// liveNode is the node as its running kubelet, and Talos beside it, report it.
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
		// A kubelet takes the machine ID where the firmware tells no UUID.
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

// nodeAddresses are those of a machine, as a cloud orders them: the outer one first.
func nodeAddresses(machine Machine) []corev1.NodeAddress {
	return slices.DeleteFunc([]corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: machine.Outer},
		{Type: corev1.NodeInternalIP, Address: machine.Address},
		{Type: corev1.NodeInternalIP, Address: machine.Other},
		{Type: corev1.NodeHostName, Address: machine.Name},
	}, func(address corev1.NodeAddress) bool { return address.Address == "" })
}

// silentNode is the node as the node controller leaves it when its kubelet has
// stopped reporting.
func silentNode(node *corev1.Node, now metav1.Time) *corev1.Node {
	wanted := node.DeepCopy()

	const reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."

	setPressure(wanted, now, corev1.ConditionUnknown, message, false)
	setCondition(wanted, now, corev1.NodeReady, corev1.ConditionUnknown, reason, message)

	return wanted
}

// setPressure sets the conditions by which a kubelet complains. Each of them is
// set once: its times would change with every look at the node otherwise.
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

// setCondition changes a condition, and its times only where it does change:
// heartbeats would be writes that say nothing.
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

// nodeTaints are the taints that the node controller derives from a node's
// conditions and its cordon, after those of others.
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

// conditionStatus is the status of a condition, False where there is none.
func conditionStatus(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}

	return corev1.ConditionFalse
}
