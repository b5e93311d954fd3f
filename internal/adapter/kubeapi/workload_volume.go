// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// volumes are those that only some of the nodes reach.
type volumes struct {
	// claimed are, by claim as "namespace/name", the names of volumes.
	claimed map[string]string
	// bound are, by name, the nodes of volumes that are bound to some.
	bound map[string]nodeBinding
}

// nodeBinding is which nodes reach a volume.
type nodeBinding struct {
	// key is the same for volumes that the same nodes reach.
	key      string
	selector *nodeaffinity.LazyErrorNodeSelector
}

// pair is one entry of a map.
type pair[V any] struct {
	key   string
	value V
}

// volumes reads claims and volumes if a pod has one. Nothing is known of them
// where the credentials may not list them.
func (c *Client) volumes(ctx context.Context, drafts []*draft) (*volumes, error) {
	if !slices.ContainsFunc(drafts, func(one *draft) bool { return len(one.claims) > 0 }) {
		return &volumes{}, nil
	}

	var (
		claims []pair[string]
		bound  []pair[nodeBinding]
	)

	group, groupCtx := errgroup.WithContext(ctx)

	group.Go(func() (err error) {
		claims, err = listOf(groupCtx, "list the PersistentVolumeClaims of the cluster", c.all("/api/v1", "persistentvolumeclaims"),
			func() *corev1.PersistentVolumeClaimList { return &corev1.PersistentVolumeClaimList{} },
			func(page *corev1.PersistentVolumeClaimList) []pair[string] {
				return each(page.Items, func(o *corev1.PersistentVolumeClaim) pair[string] {
					return pair[string]{o.Namespace + "/" + o.Name, o.Spec.VolumeName}
				})
			})

		return err
	})

	group.Go(func() (err error) {
		bound, err = listOf(groupCtx, "list the PersistentVolumes of the cluster", c.all("/api/v1", "persistentvolumes"),
			func() *corev1.PersistentVolumeList { return &corev1.PersistentVolumeList{} }, boundVolumes)

		return err
	})

	err := group.Wait()
	if errors.Is(err, cluster.ErrDenied) {
		return &volumes{}, nil
	}

	return &volumes{claimed: mapOf(claims), bound: mapOf(bound)}, err
}

func boundVolumes(page *corev1.PersistentVolumeList) []pair[nodeBinding] {
	var bound []pair[nodeBinding]

	for i := range page.Items {
		volume := &page.Items[i]
		if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
			continue
		}

		key, err := json.Marshal(volume.Spec.NodeAffinity.Required)
		if err != nil {
			key = []byte(volume.Name)
		}

		bound = append(bound, pair[nodeBinding]{volume.Name, nodeBinding{
			key: string(key), selector: nodeaffinity.NewLazyErrorNodeSelector(volume.Spec.NodeAffinity.Required),
		}})
	}

	return bound
}

func mapOf[V any](pairs []pair[V]) map[string]V {
	made := make(map[string]V, len(pairs))
	for _, one := range pairs {
		made[one.key] = one.value
	}

	return made
}

// of are the bindings of a pod's volumes.
func (v *volumes) of(one *draft) []nodeBinding {
	var bindings []nodeBinding

	for _, claim := range one.claims {
		if binding, ok := v.bound[v.claimed[one.meta.Namespace+"/"+claim]]; ok {
			bindings = append(bindings, binding)
		}
	}

	return bindings
}
