// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ cluster.Removals = (*Client)(nil)

// SetRemovals says what is in use in the cluster that some version of
// Kubernetes does without.
func (c *Cluster) SetRemovals(removals []cluster.Removal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.removals = slices.Clone(removals)
}

// Removals implements [cluster.Removals]: those that go on the way from the one
// version to the other, of the API and of the nodes asked about.
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

// allAnswer is an error unless every one of the machines does.
func (c *Client) allAnswer(addresses []string) error {
	for _, address := range addresses {
		if err := c.answers(address); err != nil {
			return err
		}
	}

	return nil
}

// answers is an error unless the machine at the address does.
func (c *Client) answers(address string) error {
	if err := c.route(); err != nil {
		return err
	}

	if state, err := c.cluster.world.Node(address); err != nil || !state.Reachable {
		return fmt.Errorf("unable to ask %s: %w", address, cluster.ErrUnreachable)
	}

	return nil
}
