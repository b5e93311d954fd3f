// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	fluxssa "github.com/fluxcd/pkg/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa/object"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// stageInterval and stageTimeout are how often and how long it is checked whether definitions that later
	// objects need are established.
	stageInterval = time.Second
	stageTimeout  = 30 * time.Second
	// learnInterval is how often the API server is asked for new kinds.
	learnInterval = 200 * time.Millisecond
)

func (c *Client) diffServerSide(
	ctx context.Context, objects, spared []*unstructured.Unstructured, options cluster.ManifestOptions,
) ([]cluster.ManifestChange, error) {
	manager, resources, err := c.manager(readInventory, spared, options)
	if err != nil {
		return nil, err
	}

	results, err := manager.Diff(ctx, objects, ssa.DiffOptions{
		InventoryPolicy: ssa.InventoryPolicyAdoptIfNoInventory,
		NoPrune:         !options.Prune,
		Force:           options.Force,
	})
	if err != nil {
		return nil, err
	}

	var changes []cluster.ManifestChange

	for _, result := range results {
		if action, ok := actionOf(string(result.Action)); ok {
			changes = append(changes, resources.change(result.ObjMetadata, action, result.Diff))
		}
	}

	return changes, nil
}

func (c *Client) applyServerSide(
	ctx context.Context, objects, spared []*unstructured.Unstructured, options cluster.ManifestOptions,
) ([]cluster.ManifestChange, error) {
	manager, resources, err := c.manager(writeInventory, spared, options)
	if err != nil {
		return nil, err
	}

	results, err := manager.Apply(ctx, objects, ssa.ApplyOptions{
		InventoryPolicy: ssa.InventoryPolicyAdoptIfNoInventory,
		NoPrune:         !options.Prune,
		Force:           options.Force,
		WaitInterval:    stageInterval,
		WaitTimeout:     stageTimeout,
		// As in talosctl from 1.14 on: what workloads mount is applied before them.
		CustomStageKinds: map[schema.GroupKind]struct{}{{Kind: "ConfigMap"}: {}, {Kind: "Secret"}: {}},
	})

	var changes []cluster.ManifestChange

	for _, result := range results {
		if action, ok := actionOf(string(result.Action)); ok {
			changes = append(changes, resources.change(result.ObjMetadata, action, result.Diff))
		}
	}

	return changes, err
}

// manager returns the manager that talosctl uses, but with the existing connections, the given inventory and no
// rate limit. It prunes neither spared objects nor excluded ones.
func (c *Client) manager(
	inventory func(*kubernetes.Clientset) ssa.InventoryFactory, spared []*unstructured.Unstructured, options cluster.ManifestOptions,
) (*ssa.Manager, *resourceManager, error) {
	found, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, nil, err
	}

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))

	kube, err := client.New(c.config, client.Options{HTTPClient: c.http, Mapper: mapper})
	if err != nil {
		return nil, nil, err
	}

	typed, err := kubernetes.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, nil, err
	}

	resources := &resourceManager{
		ResourceManager: fluxssa.NewResourceManager(kube, polling.NewStatusPoller(kube, mapper, polling.Options{}),
			fluxssa.Owner{Field: constants.KubernetesFieldManagerName}),
		client: kube,
		mapper: mapper,
		marked: map[object.ObjMetadata]string{},
	}

	return ssa.NewCustomManager(resources, sparing(inventory(typed), spared, options), c.http, mapper), resources, nil
}
