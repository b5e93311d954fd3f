// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"

	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa/object"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// sync updates objects as Talos did before 1.13: what differs is replaced, what is missing is created, nothing is
// deleted, and there is no inventory.
func (c *Client) sync(ctx context.Context, objects []*unstructured.Unstructured, dryRun bool) ([]cluster.ManifestChange, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	results := make(chan manifests.SyncResult)
	ended := make(chan error, 1)

	go func() { ended <- manifests.Sync(ctx, objects, c.config, dryRun, results) }()

	var (
		changes []cluster.ManifestChange
		done    int
	)

	for {
		select {
		case result := <-results:
			if change, ok := synced(objects[done], result); ok {
				changes = append(changes, change)
			}

			done++
		case err := <-ended:
			// Results come in the order of the objects, so the next one failed.
			if done < len(objects) {
				err = failed(nameOf(objects[done]), !dryRun, err)
			}

			return changes, err
		}
	}
}

// synced returns what was done to an object; false if nothing.
func synced(subject *unstructured.Unstructured, result manifests.SyncResult) (cluster.ManifestChange, bool) {
	if result.Skipped {
		return cluster.ManifestChange{}, false
	}

	// The library sets the resource version of an object that exists.
	action := cluster.ManifestConfigured
	if subject.GetResourceVersion() == "" {
		action = cluster.ManifestCreated
	}

	return newChange(object.ObjMetadata{
		Namespace: subject.GetNamespace(), Name: subject.GetName(), GroupKind: subject.GroupVersionKind().GroupKind(),
	}, action, result.Diff), true
}
