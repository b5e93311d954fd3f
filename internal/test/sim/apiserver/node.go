// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	// annotationCordon marks a cordon of ours with the run that set it.
	annotationCordon = "talosupgrade.vitistack.io/cordoned-by"
	// annotationTalosCordon is where a machine writes that it cordoned its own
	// node.
	annotationTalosCordon = "talos.dev/cordoned"
	// annotationClaim is what a client writes that follows the nodes.
	annotationClaim = "talosupgrade.vitistack.io/claim"
)

func (s *Server) nodes() ([]object, error) {
	var objects []object

	for _, view := range s.cluster.NodeViews() {
		state, err := s.cluster.World().Node(view.Name)
		if err != nil {
			// It was removed just now.
			continue
		}

		node := newNode(view, state)
		if claim := s.claims[node.Name]; claim != "" {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotationClaim, claim)
		}

		objects = append(objects, node)
	}

	return objects, nil
}

func newNode(view ports.NodeView, state model.NodeState) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: view.Name, UID: types.UID("uid-of-node-" + view.Name),
			Labels: maps.Clone(view.Labels),
		},
		Spec: corev1.NodeSpec{Unschedulable: view.Cordoning.Unschedulable, Taints: taints(view)},
	}

	if view.Cordoning.Run != "" {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotationCordon, view.Cordoning.Run)
	}

	if view.Cordoning.ByMachine {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotationTalosCordon, "true")
	}

	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    *apiresource.NewMilliQuantity(view.Room.CPU, apiresource.DecimalSI),
		corev1.ResourceMemory: *apiresource.NewQuantity(view.Room.Memory, apiresource.BinarySI),
		corev1.ResourcePods:   *apiresource.NewQuantity(view.Room.Pods, apiresource.DecimalSI),
	}
	node.Status.Capacity = node.Status.Allocatable.DeepCopy()

	for _, address := range state.Addresses {
		kind := corev1.NodeInternalIP
		if address == state.Outer {
			kind = corev1.NodeExternalIP
		}

		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: address})
	}

	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: view.Name})
	node.Status.Conditions = conditions(view)
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: view.MachineID, SystemUUID: view.SystemUUID, BootID: view.BootID, OSImage: "Talos (v" + state.Talos + ")",
		KubeletVersion: "v" + view.Kubelet.String(), OperatingSystem: "linux", Architecture: "amd64",
	}

	return node
}

// conditions are the pressures and Ready.
func conditions(view ports.NodeView) []corev1.NodeCondition {
	unknown := view.ReadyReason == "NodeStatusUnknown"

	var list []corev1.NodeCondition

	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		condition := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient"}

		if slices.Contains(view.Pressure, string(kind)) {
			condition.Status, condition.Reason = corev1.ConditionTrue, "KubeletHas"+string(kind)
		}

		list = append(list, condition)
	}

	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: view.ReadyReason, LastTransitionTime: metav1.NewTime(view.ReadySince),
	}

	switch {
	case view.Ready:
		ready.Status = corev1.ConditionTrue
	case unknown:
		ready.Status = corev1.ConditionUnknown
	}

	return append(list, ready)
}

// taints are those of control planes, and what the node controller derives.
func taints(view ports.NodeView) []corev1.Taint {
	var list []corev1.Taint

	if view.ExcludesWorkloads {
		list = append(list, corev1.Taint{Key: labelControlPlane, Effect: corev1.TaintEffectNoSchedule})
	}

	if !view.Ready {
		key := corev1.TaintNodeNotReady
		if view.ReadyReason == "NodeStatusUnknown" {
			key = corev1.TaintNodeUnreachable
		}

		list = append(list, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}

	if view.Cordoning.Unschedulable {
		list = append(list, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}

	if slices.Contains(view.Pressure, string(corev1.NodeDiskPressure)) {
		list = append(list, corev1.Taint{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule})
	}

	return list
}

// updateNode changes what a node says about its cordon. The simulated cluster
// keeps nothing else that somebody could write.
func (s *Server) updateNode(asked *call, current, wanted object) error {
	before, isNode := current.(*corev1.Node)
	after, alsoNode := wanted.(*corev1.Node)

	if !isNode || !alsoNode {
		return apierrors.NewInternalError(errors.New("a node is expected"))
	}

	read, write := cordoningOf(before), cordoningOf(after)

	rest := after.DeepCopy()
	rest.Spec.Unschedulable, rest.Annotations = before.Spec.Unschedulable, before.Annotations

	if same, err := alike(before, rest); err != nil || !same || foreignAnnotations(after) {
		return invalid(s.find(asked.target), asked.Name, "the simulated cluster keeps nothing of a node but its cordon")
	}

	err := s.cluster.SwapCordoning(asked.Client, asked.Name, read, write)
	asked.told = read.Unschedulable != write.Unschedulable

	if err == nil {
		s.claims[asked.Name] = after.Annotations[annotationClaim]
	}

	switch {
	case errors.Is(err, cluster.ErrConflict):
		return stale(s.find(asked.target), asked.Name)
	case errors.Is(err, cluster.ErrNotFound):
		return apierrors.NewNotFound(asked.group(), asked.Name)
	default:
		return err
	}
}

func cordoningOf(node *corev1.Node) ports.Cordoning {
	_, byMachine := node.Annotations[annotationTalosCordon]

	return ports.Cordoning{Unschedulable: node.Spec.Unschedulable, Run: node.Annotations[annotationCordon], ByMachine: byMachine}
}

func foreignAnnotations(node *corev1.Node) bool {
	for key := range node.Annotations {
		if key != annotationCordon && key != annotationTalosCordon && key != annotationClaim {
			return true
		}
	}

	return false
}

// alike tells whether two objects say the same.
func alike(one, other object) (bool, error) {
	first, err := json.Marshal(one)
	if err != nil {
		return false, err
	}

	second, err := json.Marshal(other)

	return bytes.Equal(first, second), err
}
