// SPDX-License-Identifier: MPL-2.0

package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	// managerTalos is the field manager of Talos.
	managerTalos = "talos"

	// The inventory of Talos. The packages of Talos that define it, and the names of objects in it, would bring
	// half of kustomize into the tests of the engine.
	inventoryNamespace = "kube-system"
	inventoryName      = "talos-bootstrap-manifests-inventory"

	// AnnotationInventory names the inventory of an object that was created along with its entry there.
	AnnotationInventory = "config.k8s.io/owning-inventory"
)

// Creator creates the objects that a control plane wants to exist and that do not.
type Creator struct {
	objects dynamic.Interface
	// listing is true if its version of Talos keeps an inventory.
	listing bool
}

// NewCreator returns the creator of a control plane with a version of Talos.
func NewCreator(objects dynamic.Interface, talos string) Creator {
	return Creator{objects: objects, listing: model.AtLeast(talos, 1, 13)}
}

// Create creates the objects that do not exist, from Talos 1.13 on with an inventory, and returns those that exist
// then, as far as it has checked them. What exists stays as it is, as with Talos: only an upgrade of Kubernetes
// changes it.
func (c Creator) Create(ctx context.Context, objects []*unstructured.Unstructured) (exist []*unstructured.Unstructured, err error) {
	if c.listing {
		return c.createUnlisted(ctx, objects)
	}

	for _, next := range objects {
		if err := c.createMissing(ctx, next); err != nil {
			return exist, err
		}

		exist = append(exist, next)
	}

	return exist, nil
}

// createMissing creates an object that does not exist, by server-side apply if its version of Talos does so.
func (c Creator) createMissing(ctx context.Context, next *unstructured.Unstructured) error {
	resource, _ := meta.UnsafeGuessKindToResource(next.GroupVersionKind())
	objects := c.objects.Resource(resource).Namespace(next.GetNamespace())

	_, err := objects.Get(ctx, next.GetName(), metav1.GetOptions{})

	switch {
	case !apierrors.IsNotFound(err):
	case c.listing:
		_, err = objects.Apply(ctx, next.GetName(), next, metav1.ApplyOptions{FieldManager: managerTalos})
	default:
		_, err = objects.Create(ctx, next, metav1.CreateOptions{FieldManager: managerTalos})
	}

	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %s %s: %w", next.GetKind(), next.GetName(), err)
	}

	return nil
}

// inventory is what machines, from Talos 1.13 on, and syncs have brought into the cluster: a ConfigMap with a key
// for each object and no values.
type inventory map[string]string

// createUnlisted creates the objects that neither exist nor are in the inventory, and adds all of them to it. A
// listed object is left alone even if it is gone; an object that exists and is not listed stays unmarked until a
// sync adopts it.
func (c Creator) createUnlisted(ctx context.Context, objects []*unstructured.Unstructured) (exist []*unstructured.Unstructured, err error) {
	known, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}

	var failed error

	added := inventory{}

	for _, next := range objects {
		key := keyOf(next)
		if _, listed := known[key]; listed {
			continue
		}

		mark(next)

		if failed = c.createMissing(ctx, next); failed != nil {
			break
		}

		added[key] = ""
		exist = append(exist, next)
	}

	// The entries include what was created before something failed.
	return exist, errors.Join(failed, c.addToInventory(ctx, added))
}

// keyOf returns the name of an object in an inventory.
func keyOf(of *unstructured.Unstructured) string {
	kind := of.GroupVersionKind()

	// Only names of RBAC have colons, which a key must not have.
	return strings.Join([]string{of.GetNamespace(), strings.ReplaceAll(of.GetName(), ":", "__"), kind.Group, kind.Kind}, "_")
}

// mark marks an object as part of the inventory.
func mark(object *unstructured.Unstructured) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations[AnnotationInventory] = inventoryName
	object.SetAnnotations(annotations)
}

func (c Creator) inventories() dynamic.ResourceInterface {
	return c.objects.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(inventoryNamespace)
}

// readInventory reads the inventory, and creates an empty one if there is none.
func (c Creator) readInventory(ctx context.Context) (inventory, error) {
	stored, err := c.inventories().Get(ctx, inventoryName, metav1.GetOptions{})
	if err == nil {
		known, _, err := unstructured.NestedStringMap(stored.Object, "data")
		if err != nil {
			return nil, fmt.Errorf("reading the inventory: %w", err)
		}

		return known, nil
	}

	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the inventory: %w", err)
	}

	empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	empty.SetNamespace(inventoryNamespace)
	empty.SetName(inventoryName)

	_, err = c.inventories().Create(ctx, empty, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the inventory: %w", err)
	}

	return nil, nil
}

// addToInventory writes only the new keys: other machines and syncs may have added theirs since it was read, and
// there is no lock between them.
func (c Creator) addToInventory(ctx context.Context, added inventory) error {
	if len(added) == 0 {
		return nil
	}

	patch, err := json.Marshal(map[string]any{"data": added})
	if err != nil {
		return fmt.Errorf("encoding the inventory: %w", err)
	}

	if _, err := c.inventories().Patch(ctx, inventoryName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing the inventory: %w", err)
	}

	return nil
}
