// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa/object"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	inventoryNamespace = constants.KubernetesInventoryNamespace
	inventoryName      = constants.KubernetesBootstrapManifestsInventoryName
)

// writeInventory returns the inventory of talosctl, which is created if there is none.
func writeInventory(client *kubernetes.Clientset) ssa.InventoryFactory {
	return func(ctx context.Context) (ssa.Inventory, error) {
		return ssa.GetInventory(ctx, client, inventoryNamespace, inventoryName)
	}
}

// readInventory returns the same inventory for a comparison, which must not create it.
func readInventory(client *kubernetes.Clientset) ssa.InventoryFactory {
	return func(ctx context.Context) (ssa.Inventory, error) {
		stored, err := client.CoreV1().ConfigMaps(inventoryNamespace).Get(ctx, inventoryName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return &snapshot{}, nil
		}

		if err != nil {
			return nil, fmt.Errorf("reading the inventory: %w", err)
		}

		found := &snapshot{}

		for key := range stored.Data {
			reference, err := object.ParseObjMetadata(key)
			if err != nil {
				return nil, fmt.Errorf("the inventory %s/%s has a key that names no object: %w", inventoryNamespace, inventoryName, err)
			}

			found.objects = append(found.objects, reference)
		}

		return found, nil
	}
}

// snapshot is an inventory as it was read.
type snapshot struct {
	objects object.ObjMetadataSet
}

var errReadOnly = errors.New("a comparison does not write the inventory")

func (s *snapshot) ID() string { return inventoryName }

func (s *snapshot) Get() object.ObjMetadataSet { return s.objects }

func (s *snapshot) Update(object.ObjMetadataSet) {}

func (s *snapshot) Write(context.Context) error { return errReadOnly }

func (s *snapshot) Delete(context.Context) error { return errReadOnly }

// sparing hides from the libraries the objects of an inventory that must not be pruned: those that other control
// planes still render, and those that are excluded, whether they are rendered or not. They stay in the inventory.
func sparing(inventory ssa.InventoryFactory, others []*unstructured.Unstructured, options cluster.ManifestOptions) ssa.InventoryFactory {
	return func(ctx context.Context) (ssa.Inventory, error) {
		found, err := inventory(ctx)
		if err != nil {
			return found, err
		}

		kept := &sparingInventory{Inventory: found}

		for _, reference := range found.Get() {
			rendered := slices.ContainsFunc(others, func(object *unstructured.Unstructured) bool { return refers(reference, object) })
			if rendered || options.Excludes(ssa.FormatMetaPath(reference)) {
				kept.spared = append(kept.spared, reference)
			}
		}

		return kept, nil
	}
}

// refers reports whether the reference is to the object. A manifest of a cluster-scoped object may still have a
// namespace.
func refers(reference object.ObjMetadata, to *unstructured.Unstructured) bool {
	return to.GroupVersionKind().GroupKind() == reference.GroupKind && to.GetName() == reference.Name &&
		(reference.Namespace == "" || to.GetNamespace() == reference.Namespace)
}

type sparingInventory struct {
	ssa.Inventory

	spared object.ObjMetadataSet
}

func (s *sparingInventory) Get() object.ObjMetadataSet { return s.Inventory.Get().Diff(s.spared) }

func (s *sparingInventory) Update(references object.ObjMetadataSet) {
	s.Inventory.Update(references.Union(s.spared))
}
