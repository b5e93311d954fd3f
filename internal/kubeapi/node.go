// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const labelControlPlane = "node-role.kubernetes.io/control-plane"

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
		nodes = append(nodes, kubeNode(&list.Items[i]))
	}

	return nodes, nil
}

func kubeNode(node *corev1.Node) cluster.KubeNode {
	_, controlPlane := node.Labels[labelControlPlane]

	found := cluster.KubeNode{
		Name:              node.Name,
		ControlPlane:      controlPlane,
		Unschedulable:     node.Spec.Unschedulable,
		Kubelet:           kubeletVersion(node.Status.NodeInfo.KubeletVersion),
		SystemUUID:        node.Status.NodeInfo.SystemUUID,
		BootID:            node.Status.NodeInfo.BootID,
		Talos:             strings.HasPrefix(node.Status.NodeInfo.OSImage, "Talos"),
		ExcludesWorkloads: excludesWorkloads(node.Spec.Taints),
	}

	if found.Unschedulable {
		found.CordonedBy = node.Annotations[CordonAnnotation]
	}

	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP {
			found.Addresses = append(found.Addresses, address.Address)
		}
	}

	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			found.Ready = condition.Status == corev1.ConditionTrue
			found.ReadyReason = condition.Reason
			found.ReadySince = condition.LastTransitionTime.Time
		}
	}

	return found
}

// kubeletVersion is zero for what cannot be read, as the nodes of another
// distribution may print anything.
func kubeletVersion(text string) version.Version {
	core, _, _ := strings.Cut(text, "+")
	parsed, _ := image.TagVersion(core)

	return parsed
}

// excludesWorkloads leaves out the taint of a cordon, which is told apart, and
// those of a node that is not ready, which come and go with its condition.
func excludesWorkloads(taints []corev1.Taint) bool {
	for _, taint := range taints {
		switch taint.Key {
		case corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
			continue
		}

		if taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute {
			return true
		}
	}

	return false
}
