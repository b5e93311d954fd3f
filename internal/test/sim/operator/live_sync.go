// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// LiveSync brings what a control plane renders into the upgraded cluster, whose
// API server the configuration is of: see [Options.Sync].
func LiveSync(config *rest.Config, world *model.World) (func(ctx context.Context, controlPlane string) error, error) {
	live, err := NewLive(config)
	if err != nil {
		return nil, err
	}

	return func(ctx context.Context, controlPlane string) error {
		state, err := world.Node(controlPlane)
		if err != nil {
			return err
		}

		for _, manifest := range bootstrap.Render(state) {
			for _, object := range manifest.Objects {
				if err := live.ensure(ctx, object); err != nil {
					return fmt.Errorf("manifest %s: %w", manifest.ID, err)
				}
			}
		}

		return nil
	}, nil
}

// ensure brings an object to what is wanted of it.
func (l *Live) ensure(ctx context.Context, object map[string]any) error {
	err := l.Patch(ctx, referenceOf(object), "", object)
	if errors.Is(err, cluster.ErrNotFound) {
		return l.Create(ctx, object)
	}

	return err
}
