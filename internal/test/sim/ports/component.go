// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const methodApply = "/machine.MachineService/ApplyConfiguration"

// PullComponent implements [cluster.Talos].
func (c *Client) PullComponent(ctx context.Context, address string, component cluster.Component, image string) error {
	into := model.NamespaceCRI
	if component == cluster.Kubelet {
		into = model.NamespaceSystem
	}

	return c.change(ctx, "PullComponent", address, func(ctx context.Context) error {
		method := methodLegacyPull
		if state, err := c.cluster.world.Node(address); err == nil && model.AtLeast(state.Talos, 1, 13) {
			method = methodPull
		}

		return c.order(ctx, address, "pull "+image+" on "+address, method, func(ctx context.Context) error {
			_, err := c.cluster.world.PullComponent(ctx, address, image, into, nil)

			return err
		})
	})
}

// Component implements [cluster.Talos].
func (c *Client) Component(ctx context.Context, address string, component cluster.Component) (status cluster.ComponentStatus, err error) {
	what := fmt.Sprintf("ask %s about its %s", address, component)

	err = c.read(ctx, "Component", address, func(ctx context.Context) error {
		return c.ask(ctx, what, func(ctx context.Context) error {
			state, err := c.cluster.world.Observe(ctx, address, "resources")
			if err == nil {
				status, err = componentStatus(state, component)
			}

			return err
		})
	})

	return status, err
}

// componentStatus returns what a machine reports about a component. For kube-proxy that is what it renders.
func componentStatus(state model.NodeState, component cluster.Component) (cluster.ComponentStatus, error) {
	switch {
	case component == cluster.Kubelet:
		service := state.KubeletService

		return cluster.ComponentStatus{
			Image: service.Image, Running: service.Running, Healthy: service.Healthy, Since: service.Since,
		}, nil
	case component == cluster.Proxy && state.ProxyImage != "":
		return cluster.ComponentStatus{Image: state.ProxyImage}, nil
	case component == cluster.Manifests:
		return cluster.ComponentStatus{}, fmt.Errorf("%w: manifests are no component of a machine", cluster.ErrRefused)
	}

	pod, found := state.StaticPods[string(component)]
	if !found || pod.Disabled {
		return cluster.ComponentStatus{}, fmt.Errorf("%w: %s has no %s", cluster.ErrNotFound, state.Name, component)
	}

	return cluster.ComponentStatus{Image: pod.Image, ConfigVersion: strconv.Itoa(pod.ConfigVersion)}, nil
}

// Configure implements [cluster.Talos].
func (c *Client) Configure(ctx context.Context, address string, change cluster.ImageChange) error {
	what := fmt.Sprintf("have the configuration of %s name %s", address, change.To)

	return c.change(ctx, "Configure", address, func(ctx context.Context) error {
		stored, err := c.stored(ctx, address, what)
		if err != nil {
			return err
		}

		if _, found := stored.place(change.Component); !found && change.Component == cluster.Installer {
			return fmt.Errorf("unable to %s: %w: it has no section about its installation", what, cluster.ErrNotFound)
		}

		switch named := stored.image(change.Component); named {
		case change.To:
			return nil
		case change.From:
		default:
			return fmt.Errorf("unable to %s: %w: it names %q now, and not %q", what, cluster.ErrConflict, named, change.From)
		}

		wanted, err := stored.withImage(change.Component, change.To)
		if err != nil {
			return fmt.Errorf("unable to %s: %w", what, err)
		}

		if err := c.settled(address); err != nil {
			return fmt.Errorf("unable to %s: %w", what, err)
		}

		if err := c.apply(ctx, address, what, wanted); err != nil {
			return err
		}

		return c.compare(ctx, address, what, wanted)
	})
}

// settled returns an error unless a boot would bring back the configuration in effect.
func (c *Client) settled(address string) error {
	state, err := c.cluster.world.Node(address)

	switch {
	case err != nil:
		return err
	case state.PersistentConfig != nil && !bytes.Equal(state.PersistentConfig, state.Config):
		return fmt.Errorf("%w: another configuration is stored for the next boot", cluster.ErrConflict)
	case state.PersistentConfig == nil && state.ConfigVersion > 1 && model.AtLeast(state.Talos, 1, 10):
		return fmt.Errorf("%w: the configuration in effect is only tried: apply the one you want, or reboot", cluster.ErrConflict)
	default:
		return nil
	}
}

func (c *Client) apply(ctx context.Context, address, what string, config []byte) error {
	return c.order(ctx, address, what, methodApply, func(ctx context.Context) error {
		_, err := c.cluster.world.ApplyConfig(ctx, address, config, model.ApplyNoReboot, false)

		return err
	})
}

// stored reads the configuration of a machine.
func (c *Client) stored(ctx context.Context, address, what string) (read configuration, err error) {
	if !c.admin() {
		return configuration{}, fmt.Errorf("unable to %s: %w: not authorized", what, cluster.ErrDenied)
	}

	err = c.ask(ctx, what, func(ctx context.Context) error {
		state, err := c.cluster.world.Observe(ctx, address, "config")
		if err == nil {
			read, err = parseConfiguration(state.Config)
		}

		return err
	})

	return read, err
}

// compare checks whether a configuration that a machine accepted is still the one that it has. If that cannot be
// read, the outcome is unknown.
func (c *Client) compare(ctx context.Context, address, what string, wanted []byte) error {
	again, err := c.stored(ctx, address, what)

	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, err)
	case !bytes.Equal(again.text, wanted):
		return fmt.Errorf("unable to %s: %w", what, cluster.ErrConflict)
	default:
		return nil
	}
}
