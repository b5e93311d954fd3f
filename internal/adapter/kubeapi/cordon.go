// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// patchAttempts bounds how often a patch that somebody else's write got ahead
// of is tried again. Kubelets write to their nodes only every few minutes.
const patchAttempts = 5

// Cordon makes the node unschedulable and marks the cordon with the run. It
// reports true as well for a cordon that an earlier run of ours left behind. An
// annotation by which the machine would take the cordon for its own goes: kubectl
// uncordon leaves it, and with it the machine would lift our cordon at its next
// boot (NodeApplyController.ApplyCordoned of Talos).
func (c *Client) Cordon(ctx context.Context, node, run string) (ours bool, err error) {
	err = c.patchNode(ctx, "cordon node "+node, node, func(current *corev1.Node) *nodePatch {
		if current.Spec.Unschedulable {
			_, ours = current.Annotations[CordonAnnotation]

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

// Uncordon makes the node schedulable again if the cordon is one of ours. A
// mark that outlived its cordon is taken away, so that it cannot claim the next
// person's cordon.
func (c *Client) Uncordon(ctx context.Context, node string) error {
	err := c.patchNode(ctx, "uncordon node "+node, node, func(current *corev1.Node) *nodePatch {
		if _, ours := current.Annotations[CordonAnnotation]; !ours {
			return nil
		}

		return newNodePatch(current, nil, nil)
	})
	if errors.Is(err, cluster.ErrNotFound) {
		return nil
	}

	return err
}

// nodePatch is a JSON merge patch. Naming the resource version makes the API
// server refuse it when the node was written since it was read; null takes a
// field away.
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

// patchNode reads the node, asks what to change, and changes it unless somebody
// else wrote the node in between; then it starts over.
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

		err = change(ctx, what, c.core.Patch(types.MergePatchType).Resource("nodes").Name(name).Body(body), nil)
		if !errors.Is(err, cluster.ErrConflict) || attempt == patchAttempts {
			return err
		}
	}
}
