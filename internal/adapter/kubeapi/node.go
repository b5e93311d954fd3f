// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	// annotationTalosCordon is where a machine writes that it cordoned its own node:
	// constants.AnnotationCordonedKey of Talos, whatever its value. It outlives the
	// cordon when somebody else lifts that.
	annotationTalosCordon = "talos.dev/cordoned"
)

// UID is the UID of the namespace kube-system.
func (c *Client) UID(ctx context.Context) (string, error) {
	var namespace corev1.Namespace

	err := read(ctx, "read the namespace "+Namespace, c.core.Get().Resource("namespaces").Name(Namespace), &namespace)

	return string(namespace.UID), err
}

// Nodes lists the nodes of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	var list corev1.NodeList
	if err := read(ctx, "list the nodes of the cluster", c.core.Get().Resource("nodes"), &list); err != nil {
		return nil, err
	}

	nodes := make([]cluster.KubeNode, 0, len(list.Items))
	for i := range list.Items {
		node := kubeNode(&list.Items[i])
		node.LastWriter = lastWriter(list.Items[i].ManagedFields, c.manager())
		nodes = append(nodes, node)
	}

	return nodes, nil
}

// manager is the name under which the API server remembers what the client wrote.
func (c *Client) manager() string {
	name, _, _ := strings.Cut(c.config.UserAgent, "/")

	return name
}

// lastWriter is the newest manager in the fields of an object that is not older than
// our own; empty where there is none.
func lastWriter(fields []metav1.ManagedFieldsEntry, own string) string {
	ours := slices.IndexFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == own && f.Time != nil })
	if ours < 0 {
		return ""
	}

	name, since := "", fields[ours].Time

	for _, field := range fields {
		if field.Manager == own || field.Manager == "kubelet" || field.Manager == "kube-controller-manager" || field.Subresource != "" {
			continue
		}

		if field.Time != nil && !field.Time.Before(since) {
			name, since = field.Manager, field.Time
		}
	}

	return name
}

func kubeNode(node *corev1.Node) cluster.KubeNode {
	_, controlPlane := node.Labels[labelControlPlane]

	found := cluster.KubeNode{
		Name:              node.Name,
		ControlPlane:      controlPlane,
		Unschedulable:     node.Spec.Unschedulable,
		Kubelet:           kubeletVersion(node.Status.NodeInfo.KubeletVersion),
		MachineID:         node.Status.NodeInfo.MachineID,
		SystemUUID:        node.Status.NodeInfo.SystemUUID,
		BootID:            node.Status.NodeInfo.BootID,
		Talos:             strings.HasPrefix(node.Status.NodeInfo.OSImage, "Talos"),
		ExcludesWorkloads: excludesWorkloads(node.Spec.Taints),
	}

	if found.Unschedulable {
		by, ours := node.Annotations[CordonAnnotation]
		_, machine := node.Annotations[annotationTalosCordon]
		found.CordonedBy, found.CordonedByTalos = by, machine && !ours
	}

	// Talos reaches a node by its internal address; a cloud may name the other one
	// first, under which often nothing answers.
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, address := range node.Status.Addresses {
			if address.Type == kind {
				found.Addresses = append(found.Addresses, address.Address)
			}
		}
	}

	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			found.Ready = condition.Status == corev1.ConditionTrue
			found.ReadyReason = condition.Reason
			found.ReadySince = condition.LastTransitionTime.Time
		}
	}

	found.Pressure = pressure(node.Status.Conditions)

	return found
}

// pressure are the conditions by which a kubelet complains, in a fixed order.
func pressure(conditions []corev1.NodeCondition) []string {
	var complaints []string

	for _, kind := range []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure} {
		if slices.ContainsFunc(conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == kind && condition.Status == corev1.ConditionTrue
		}) {
			complaints = append(complaints, string(kind))
		}
	}

	return complaints
}

// kubeletVersion is zero for what cannot be read, as the nodes of another
// distribution may print anything.
func kubeletVersion(text string) version.Version {
	core, _, _ := strings.Cut(text, "+")
	parsed, _ := image.TagVersion(core)

	return parsed
}

// excludesWorkloads leaves out the taints that come and go with the condition of
// a node: a node that is full tonight is no dedicated one.
func excludesWorkloads(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		switch taint.Key {
		case corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable:
			return false
		default:
			return keepsAway(taint) && !toldApart(taint)
		}
	})
}

// keepsAway tells whether pods that do not tolerate the taint are not scheduled.
func keepsAway(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}

// toldApart tells a taint that stands for what a node says elsewhere: that it is
// cordoned, or not ready.
func toldApart(taint corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return true
	default:
		return false
	}
}
