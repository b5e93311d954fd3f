// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ cluster.BootstrapManifests = (*Client)(nil)

// Diff implements [cluster.BootstrapManifests].
func (c *Client) Diff(
	ctx context.Context, address string, options cluster.ManifestOptions,
) (changes []cluster.ManifestChange, err error) {
	err = c.look(ctx, "Diff", address, func() error {
		rendering, err := c.rendering(ctx, address)
		if err == nil {
			changes = c.cluster.ManifestChanges(rendering, options)
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
			changes = c.cluster.ApplyManifests(c.name, rendering, options)
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
			lacking = c.cluster.Unready(rendering)
		}

		return err
	})

	return lacking, err
}

// rendering returns the state of the control plane that renders the manifests.
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

var _ cluster.Removals = (*Client)(nil)

// Removals implements [cluster.Removals]: those between the two versions, of the API and of the given nodes.
func (c *Client) Removals(
	ctx context.Context, from, to version.Version, controlPlanes, workers []string,
) (removals []cluster.Removal, err error) {
	nodes := slices.Concat(controlPlanes, workers)

	err = c.look(ctx, "Removals", "", func() error {
		if err := c.allAnswer(nodes); err != nil {
			return err
		}

		c.cluster.mu.Lock()
		defer c.cluster.mu.Unlock()

		for _, removal := range c.cluster.removals {
			passed := removal.In.Minor().Compare(from.Minor()) > 0 && removal.In.Minor().Compare(to.Minor()) <= 0
			asked := removal.Address == "" || slices.Contains(nodes, removal.Address)

			if passed && asked {
				removals = append(removals, removal)
			}
		}

		return nil
	})

	return removals, err
}

// allAnswer returns an error unless all machines answer.
func (c *Client) allAnswer(addresses []string) error {
	for _, address := range addresses {
		if err := c.answers(address); err != nil {
			return err
		}
	}

	return nil
}

// answers returns an error unless the machine at the address answers.
func (c *Client) answers(address string) error {
	if err := c.route(); err != nil {
		return err
	}

	if state, err := c.cluster.world.Node(address); err != nil || !state.Reachable {
		return fmt.Errorf("unable to ask %s: %w", address, cluster.ErrUnreachable)
	}

	return nil
}
