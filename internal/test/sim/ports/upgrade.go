// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Upgrade implements [cluster.Talos].
func (c *Client) Upgrade(
	ctx context.Context, address, image string, mode cluster.RebootMode, accept func(),
) (result cluster.Installation, err error) {
	what := "upgrade " + address + " to " + image

	err = c.change(ctx, "Upgrade", address, func(ctx context.Context) error {
		var actor string

		accepted := c.order(ctx, address, what, methodUpgrade, func(ctx context.Context) error {
			var err error

			actor, err = c.cluster.world.LegacyUpgrade(ctx, address, model.LegacyOptions{Image: image, Mode: model.RebootMode(mode)})

			return err
		})
		if accepted != nil {
			return accepted
		}

		if accept != nil {
			accept()
		}

		var followed error
		if result, followed = c.follow(ctx, address, actor); followed != nil {
			return fmt.Errorf("unable to %s: %w: its events broke off: %w", what, cluster.ErrOutcomeUnknown, followed)
		}

		return nil
	})

	return result, err
}

// errFollowed ends the events of an upgrade whose installer has ended.
var errFollowed = errors.New("the installer has ended")

// follow reads the machine's events until those of the actor tell how the
// installer ended.
func (c *Client) follow(ctx context.Context, address, actor string) (cluster.Installation, error) {
	var (
		result     cluster.Installation
		installing bool
	)

	err := c.cluster.world.Follow(ctx, address, model.Tail{Count: -1}, func(event model.Event) error {
		switch {
		case event.Actor != actor:
			return nil
		case event.Kind == model.EventSequence && event.Error != "":
			result = cluster.Installation{Exit: 1, Output: []string{event.Error}}

			return errFollowed
		case event.Kind != model.EventPhase:
			return nil
		case installing:
			return errFollowed
		}

		installing = event.Name == "upgrade"

		return nil
	})
	if errors.Is(err, errFollowed) {
		return result, nil
	}

	return cluster.Installation{}, err
}
