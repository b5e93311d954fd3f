// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa/object"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	inventoryNamespace = constants.KubernetesInventoryNamespace
	inventoryName      = constants.KubernetesBootstrapManifestsInventoryName

	// annotationInventory names the inventory of an object that was created
	// along with its entry there.
	annotationInventory = "config.k8s.io/owning-inventory"
)

// inventory is what machines, from Talos 1.13 on, and syncs have brought into the
// cluster: a ConfigMap with a key for each object and no values.
type inventory map[string]string

// createUnlisted creates the objects that neither exist nor are in the inventory
// and lists all of them there. What is listed is left alone even where it is
// gone; what exists and is not listed stays unmarked until a sync adopts it.
func (p *play) createUnlisted(ctx context.Context, objects []*unstructured.Unstructured, machine Machine) error {
	known, err := p.readInventory(ctx)
	if err != nil {
		return err
	}

	var failed error

	added := inventory{}

	for _, next := range objects {
		reference, err := object.RuntimeToObjMeta(next)
		if err != nil {
			failed = fmt.Errorf("naming %s %s for the inventory: %w", next.GetKind(), next.GetName(), err)

			break
		}

		if _, listed := known[reference.String()]; listed {
			continue
		}

		mark(next)

		if failed = p.createMissing(ctx, next, machine); failed != nil {
			break
		}

		added[reference.String()] = ""
	}

	// Also what was created before something failed.
	return errors.Join(failed, p.addToInventory(ctx, added))
}

// mark makes an object one of the inventory.
func mark(object *unstructured.Unstructured) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations[annotationInventory] = inventoryName
	object.SetAnnotations(annotations)
}

// readInventory creates an empty one where there is none.
func (p *play) readInventory(ctx context.Context) (inventory, error) {
	stored, err := p.client.CoreV1().ConfigMaps(inventoryNamespace).Get(ctx, inventoryName, metav1.GetOptions{})
	if err == nil {
		return stored.Data, nil
	}

	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the inventory: %w", err)
	}

	empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: inventoryNamespace, Name: inventoryName}}

	_, err = p.client.CoreV1().ConfigMaps(inventoryNamespace).Create(ctx, empty, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the inventory: %w", err)
	}

	return nil, nil
}

// addToInventory writes nothing but the new keys: other machines and syncs may
// have added theirs since it was read, and there is no lock between them.
func (p *play) addToInventory(ctx context.Context, added inventory) error {
	if len(added) == 0 {
		return nil
	}

	patch, err := json.Marshal(map[string]any{"data": added})
	if err != nil {
		return fmt.Errorf("encoding the inventory: %w", err)
	}

	_, err = p.client.CoreV1().ConfigMaps(inventoryNamespace).
		Patch(ctx, inventoryName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("writing the inventory: %w", err)
	}

	return nil
}
