// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	// annotationTalosCordon is the annotation by which a machine records that it cordoned its own node, whatever
	// the value: constants.AnnotationCordonedKey of Talos. It outlives the cordon if somebody else uncordons the
	// node.
	annotationTalosCordon = "talos.dev/cordoned"
)

// UID returns the UID of the namespace kube-system.
func (c *Client) UID(ctx context.Context) (string, error) {
	var namespace corev1.Namespace

	err := read(ctx, "read the namespace "+Namespace, c.core.Get().Resource("namespaces").Name(Namespace), &namespace)

	return string(namespace.UID), err
}

const listNodes = "list the nodes of the cluster"

// Nodes lists the nodes of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	var list corev1.NodeList
	if err := read(ctx, listNodes, c.core.Get().Resource("nodes"), &list); err != nil {
		return nil, err
	}

	nodes := make([]cluster.KubeNode, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, c.kubeNode(&list.Items[i]))
	}

	return nodes, nil
}

// Node reads one node.
func (c *Client) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	var node corev1.Node
	if err := read(ctx, "read node "+name, c.core.Get().Resource("nodes").Name(name), &node); err != nil {
		return cluster.KubeNode{}, err
	}

	return c.kubeNode(&node), nil
}

func (c *Client) kubeNode(node *corev1.Node) cluster.KubeNode {
	found := kubeNode(node)
	found.LastWriter = lastWriter(node.ManagedFields, c.manager())

	if found.Unschedulable {
		run, ours := c.ownCordon(node)
		_, machine := node.Annotations[annotationTalosCordon]
		found.CordonedBy, found.CordonedByTalos = run, machine && !ours
	}

	return found
}

// ownCordon reports whether the cordon of a node is ours, and of which run. kubectl uncordon leaves our annotation, so
// the next cordon of somebody else has it too: then the API server has recorded that another manager wrote the field. An
// entry with our annotation is our own, under whatever name.
func (c *Client) ownCordon(node *corev1.Node) (run string, ours bool) {
	run, marked := node.Annotations[CordonAnnotation]
	if !marked || slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager != c.manager() && ownsCordon(entry) && !ownsAnnotation(entry, CordonAnnotation)
	}) {
		return "", false
	}

	return run, true
}

// ownsCordon reports whether the manager of the entry has written whether the node is cordoned.
func ownsCordon(entry metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}

	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}

	_, owns := fields.Spec["f:unschedulable"]

	return owns
}

// manager returns the name under which the API server records what the client wrote.
func (c *Client) manager() string {
	name, _, _ := strings.Cut(c.config.UserAgent, "/")

	return name
}

// lastWriter returns the newest manager in the fields of an object that is not older than our own; empty if there
// is none.
func lastWriter(fields []metav1.ManagedFieldsEntry, own string) string {
	ours := slices.IndexFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == own && f.Time != nil })
	if ours < 0 {
		return ""
	}

	name, since := "", fields[ours].Time

	for _, field := range fields {
		if field.Manager == own || field.Manager == claimManager || field.Manager == "kubelet" || field.Manager == "kube-controller-manager" || field.Subresource != "" {
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
		Labels:            node.Labels,
		Unschedulable:     node.Spec.Unschedulable,
		Kubelet:           kubeletVersion(node.Status.NodeInfo.KubeletVersion),
		MachineID:         node.Status.NodeInfo.MachineID,
		SystemUUID:        node.Status.NodeInfo.SystemUUID,
		BootID:            node.Status.NodeInfo.BootID,
		Talos:             strings.HasPrefix(node.Status.NodeInfo.OSImage, "Talos"),
		ExcludesWorkloads: excludesWorkloads(node.Spec.Taints),
	}

	// Talos reaches a node by its internal address. A cloud may list the external one first, on which often nothing
	// answers.
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

// pressure returns the pressure conditions of a node that are true, in a fixed order.
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

// kubeletVersion returns zero if the version cannot be parsed: the nodes of another distribution may print
// anything.
func kubeletVersion(text string) version.Version {
	core, _, _ := strings.Cut(text, "+")
	parsed, _ := image.TagVersion(core)

	return parsed
}

// excludesWorkloads reports whether the taints dedicate a node to something else than ordinary pods. Taints that
// come and go with the condition of the node do not count: a node with a full disk is not a dedicated one.
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

// keepsAway reports whether pods that do not tolerate the taint are not scheduled to the node.
func keepsAway(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}

// toldApart reports whether the taint only repeats what the node says elsewhere: that it is cordoned or not ready.
func toldApart(taint corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return true
	default:
		return false
	}
}

// patchAttempts bounds how often a patch is tried if somebody else writes the node first. Kubelets write to their
// nodes only every few minutes.
const patchAttempts = 5

// Cordon makes the node unschedulable and records the run in our annotation. It also reports true for a cordon that
// an earlier run of ours left behind. The annotation by which the machine would take the cordon for its own is
// removed: kubectl uncordon leaves it in place, and with it the machine would lift our cordon at its next boot
// (NodeApplyController.ApplyCordoned of Talos).
func (c *Client) Cordon(ctx context.Context, node, run string) (ours bool, err error) {
	err = c.patchNode(ctx, "cordon node "+node, node, func(current *corev1.Node) *nodePatch {
		if current.Spec.Unschedulable {
			_, ours = c.ownCordon(current)

			return nil
		}

		ours = true

		patch := newNodePatch(current, true, run)
		if _, left := current.Annotations[annotationTalosCordon]; left {
			patch.Metadata.Annotations[annotationTalosCordon] = nil
		}

		return patch
	})

	return ours && err == nil, err
}

// Uncordon makes the node schedulable again if the cordon is ours. If our annotation outlived its cordon, only the
// annotation is removed. A node that does not exist is no error.
func (c *Client) Uncordon(ctx context.Context, node string) error {
	err := c.patchNode(ctx, "uncordon node "+node, node, func(current *corev1.Node) *nodePatch {
		if _, marked := current.Annotations[CordonAnnotation]; !marked {
			return nil
		}

		patch := newNodePatch(current, nil, nil)
		if _, ours := c.ownCordon(current); !ours && current.Spec.Unschedulable {
			patch.Spec.Unschedulable = true
		}

		patch.Metadata.Annotations[ClaimAnnotation] = nil

		return patch
	})
	if errors.Is(err, cluster.ErrNotFound) {
		return nil
	}

	return err
}

// nodePatch is a JSON merge patch. With the resource version, the API server refuses it if the node was written
// since it was read; null removes a field.
type nodePatch struct {
	Metadata struct {
		UID             types.UID      `json:"uid"`
		ResourceVersion string         `json:"resourceVersion"`
		Annotations     map[string]any `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable any `json:"unschedulable"`
	} `json:"spec"`
}

func newNodePatch(current *corev1.Node, unschedulable, run any) *nodePatch {
	patch := &nodePatch{}
	patch.Metadata.UID = current.UID
	patch.Metadata.ResourceVersion = current.ResourceVersion
	patch.Metadata.Annotations = map[string]any{CordonAnnotation: run}
	patch.Spec.Unschedulable = unschedulable

	return patch
}

// patchNode reads the node, calls decide and sends the patch. If somebody else wrote the node in between, it starts
// over.
func (c *Client) patchNode(ctx context.Context, what, name string, decide func(*corev1.Node) *nodePatch) error {
	for attempt := 1; ; attempt++ {
		var current corev1.Node
		if err := read(ctx, what, c.core.Get().Resource("nodes").Name(name), &current); err != nil {
			return err
		}

		patch := decide(&current)
		if patch == nil {
			return nil
		}

		body, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("unable to %s: %w", what, err)
		}

		err = change(ctx, what, c.core.Patch(types.MergePatchType).Resource("nodes").Name(name).Param("fieldManager", c.manager()).Body(body), nil)
		if !errors.Is(err, cluster.ErrConflict) || attempt == patchAttempts {
			return err
		}
	}
}
