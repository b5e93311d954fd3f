// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

var _ cluster.BootstrapManifests = (*Client)(nil)

// AddOldObject adds an object, as "Kind/namespace/name", that an earlier sync
// applied and that Talos does not render any more.
func (c *Cluster) AddOldObject(object string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.workloads.old = append(c.workloads.old, object)
}

// Objects are the images of the objects in the cluster that Talos renders, by
// their names; those that it does not render any more have none.
func (c *Cluster) Objects() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()

	objects := map[string]string{}
	for _, old := range c.workloads.old {
		objects[old] = ""
	}

	for name, image := range map[string]string{objectProxy: c.workloads.proxy, objectCoreDNS: c.workloads.coreDNS} {
		if image != "" {
			objects[name] = image
		}
	}

	return objects
}

// Diff implements [cluster.BootstrapManifests].
func (c *Client) Diff(
	ctx context.Context, address string, options cluster.ManifestOptions,
) (changes []cluster.ManifestChange, err error) {
	err = c.look(ctx, "Diff", address, func() error {
		rendering, err := c.rendering(ctx, address)
		if err == nil {
			changes = c.cluster.manifestChanges(rendering, options)
		}

		return err
	})

	return changes, err
}

// Apply implements [cluster.BootstrapManifests].
func (c *Client) Apply(
	ctx context.Context, address string, options cluster.ManifestOptions,
) (changes []cluster.ManifestChange, err error) {
	err = c.request(ctx, "Apply", address, func(ctx context.Context) error {
		rendering, err := c.rendering(ctx, address)
		if err == nil {
			changes = c.cluster.applyManifests(c.name, rendering, options)
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	return changes, nil
}

// Unready implements [cluster.BootstrapManifests].
func (c *Client) Unready(ctx context.Context, address string) (lacking []string, err error) {
	err = c.look(ctx, "Unready", address, func() error {
		rendering, err := c.rendering(ctx, address)
		if err == nil {
			lacking = c.cluster.unready(rendering)
		}

		return err
	})

	return lacking, err
}

// rendering is the state of the control plane whose manifests count.
func (c *Client) rendering(ctx context.Context, address string) (state model.NodeState, err error) {
	what := "read the manifests of " + address

	err = c.ask(ctx, what, func(ctx context.Context) error {
		state, err = c.cluster.world.Observe(ctx, address, "resources")
		if err == nil && state.Role != model.ControlPlane {
			return fmt.Errorf("%w: workers render no manifests", cluster.ErrNotFound)
		}

		return err
	})

	return state, err
}

// manifestChanges is what a sync changes.
func (c *Cluster) manifestChanges(rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.changes(rendering, options)
}

func (c *Cluster) changes(rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	var changes []cluster.ManifestChange

	// Only the inventory of server-side apply knows what an earlier sync did.
	prune := options.Prune && options.ServerSide

	for _, object := range []struct{ name, has, wants string }{
		{objectProxy, c.workloads.proxy, rendering.ProxyImage},
		{objectCoreDNS, c.workloads.coreDNS, rendering.CoreDNSImage},
	} {
		change := cluster.ManifestChange{Object: object.name, Diff: imageDiff(object.has, object.wants)}

		switch {
		case object.has == object.wants:
			continue
		case object.wants == "" && !prune:
			continue
		case object.wants == "":
			change.Action = cluster.ManifestPruned
		case object.has == "":
			change.Action = cluster.ManifestCreated
		default:
			change.Action = cluster.ManifestConfigured
		}

		changes = append(changes, change)
	}

	if prune {
		for _, old := range c.workloads.old {
			changes = append(changes, cluster.ManifestChange{Object: old, Action: cluster.ManifestPruned})
		}
	}

	return changes
}

func imageDiff(before, after string) string {
	var diff strings.Builder

	if before != "" {
		diff.WriteString("-        image: " + before + "\n")
	}

	if after != "" {
		diff.WriteString("+        image: " + after + "\n")
	}

	return diff.String()
}

// applyManifests brings the objects to what a control plane renders.
func (c *Cluster) applyManifests(client string, rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	c.mu.Lock()
	defer c.mu.Unlock()

	changes := c.changes(rendering, options)

	for _, change := range changes {
		c.recordObject(client, change, options)

		switch change.Object {
		case objectProxy:
			c.setProxy(rendering.ProxyImage)
		case objectCoreDNS:
			c.workloads.coreDNS, c.workloads.coreDNSReady = rendering.CoreDNSImage, c.now().Add(coreDNSTime)
		default:
			c.workloads.old = slices.DeleteFunc(c.workloads.old, func(old string) bool { return old == change.Object })
		}
	}

	return changes
}

// recordObject adds to the history the request that changed an object.
func (c *Cluster) recordObject(client string, change cluster.ManifestChange, options cluster.ManifestOptions) {
	parts := strings.Split(change.Object, "/")
	namespace := ""

	if len(parts) > 2 {
		namespace = parts[1]
	}

	verb := "update"

	switch {
	case change.Action == cluster.ManifestPruned:
		verb = "delete"
	case options.ServerSide:
		verb = "patch"
	case change.Action == cluster.ManifestCreated:
		verb = "create"
	}

	c.record("", history.KindWrite, map[string]string{
		"verb": verb, "resource": strings.ToLower(parts[0]) + "s", "namespace": namespace, "name": parts[len(parts)-1],
		"by": "client", "client": client, "code": "200",
	})
}
