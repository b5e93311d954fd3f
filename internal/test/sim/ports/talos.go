// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The calls as the history names them.
const (
	methodForfeit    = "/machine.MachineService/EtcdForfeitLeadership"
	methodPull       = "/machine.ImageService/Pull"
	methodLegacyPull = "/machine.MachineService/ImagePull"
	methodImages     = "/machine.ImageService/List"
	methodInstall    = "/machine.LifecycleService/Upgrade"
	methodUpgrade    = "/machine.MachineService/Upgrade"
	methodReboot     = "/machine.MachineService/Reboot"
	methodRollback   = "/machine.MachineService/Rollback"
)

// route tells whether a call gets through to a node: some control plane has to
// take it and hand it on.
func (c *Client) route() error {
	if !c.cluster.world.Routing() {
		return fmt.Errorf("%w: no endpoint answers", cluster.ErrUnreachable)
	}

	return nil
}

// How long the adapter waits for a machine that is silent: for an answer to a
// question, and for the connection that an order needs.
const (
	silentRead = 10 * time.Second
	silentDial = 20 * time.Second
)

// hear lets a caller wait who called a machine that is silent.
func (c *Client) hear(ctx context.Context, limit time.Duration, err error) error {
	if errors.Is(err, model.ErrUnreachable) && c.cluster.world.Silent() {
		_ = c.cluster.world.Clock().Sleep(ctx, limit)
	}

	return err
}

// ask is a read of a machine.
func (c *Client) ask(ctx context.Context, what string, do func(context.Context) error) error {
	if err := c.route(); err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	return translate(ctx, what, false, c.hear(ctx, silentRead, do(ctx)))
}

// order is a call that changes a machine, on a version that has it. It is in
// the history only where it reached the machine.
func (c *Client) order(ctx context.Context, address, what, method string, do func(context.Context) error) error {
	if err := c.route(); err != nil {
		return fmt.Errorf("unable to %s: %w", what, err)
	}

	// The machine may be gone when the call has ended.
	node := c.cluster.nameOf(address)

	err := c.checkVersion(address, method)
	if err == nil {
		err = c.hear(ctx, silentDial, do(ctx))
	}

	if !errors.Is(err, model.ErrUnreachable) && !errors.Is(err, model.ErrUnknownNode) {
		c.cluster.record(node, history.KindRPC, map[string]string{
			"method": method, "role": "os:admin", "code": code(ctx, err), "mutating": "true", "client": c.name,
		})
	}

	return translate(ctx, what, true, err)
}

func (c *Client) checkVersion(address, method string) error {
	state, err := c.cluster.world.Node(address)
	if err != nil || !state.Reachable {
		// What does not answer cannot refuse either.
		return nil //nolint:nilerr // the call itself finds out
	}

	if slices.Contains([]string{methodPull, methodImages, methodInstall}, method) && !model.AtLeast(state.Talos, 1, 13) {
		return fmt.Errorf("unknown method %s: %w", method, model.ErrUnsupported)
	}

	return nil
}

// ClusterID implements [cluster.Talos].
func (c *Client) ClusterID(ctx context.Context) (id string, err error) {
	err = c.read(ctx, "ClusterID", "", func(context.Context) error {
		if err := c.route(); err != nil {
			return err
		}

		id = c.cluster.world.ClusterID()

		return nil
	})

	return id, err
}

// Roles implements [cluster.Talos].
func (c *Client) Roles() []string { return slices.Clone(c.roles) }

// Members implements [cluster.Talos].
func (c *Client) Members(ctx context.Context) (members []cluster.Member, err error) {
	err = c.read(ctx, "Members", "", func(context.Context) error {
		if err := c.route(); err != nil {
			return err
		}

		for _, state := range c.cluster.world.Members() {
			members = append(members, cluster.Member{
				Hostname: state.Name, Role: cluster.Role(state.Role), Addresses: state.Addresses,
			})
		}

		return nil
	})

	return members, err
}

// Machine implements [cluster.Talos].
func (c *Client) Machine(ctx context.Context, address string, known *cluster.Machine) (machine cluster.Machine, err error) {
	err = c.read(ctx, "Machine", address, func(ctx context.Context) error {
		return c.ask(ctx, "observe "+address, func(ctx context.Context) error {
			state, err := c.cluster.world.MachineStatus(ctx, address)
			if err == nil {
				machine, err = c.machine(state)
			}

			return err
		})
	})

	entire := known != nil && known.Config != nil && (known.Role != cluster.ControlPlane || known.FilesVersion != "")

	switch {
	case err == nil && known != nil && known.BootID == "":
		machine = again(*known, machine)
	case err != nil || known == nil || machine.BootID == "":
	case entire && known.Stage != "" && !known.Settled() && !machine.Settled():
		between := *known
		between.Stage, between.Ready, between.Unmet = machine.Stage, machine.Ready, machine.Unmet
		machine = between
	case known.BootID == machine.BootID:
		machine = again(*known, machine)
	case entire && !machine.Settled():
		booting := *known
		booting.BootID, booting.Talos, booting.TalosTag = machine.BootID, machine.Talos, machine.TalosTag
		booting.Stage, booting.Ready, booting.Unmet, booting.Platform = machine.Stage, machine.Ready, machine.Unmet, machine.Platform
		machine = booting
	}

	return machine, err
}

// again is a machine of which only what changes within a boot was asked.
func again(known, now cluster.Machine) cluster.Machine {
	known.Stage, known.Ready, known.Unmet = now.Stage, now.Ready, now.Unmet
	known.UpgradePending = known.UpgradePending && now.UpgradePending

	if known.FilesVersion == "" {
		known.PodsSince, known.FilesVersion = now.PodsSince, now.FilesVersion
	}

	if known.Config == nil {
		known.Config = now.Config
	}

	return known
}

// Etcd implements [cluster.Talos].
func (c *Client) Etcd(ctx context.Context, address string, members bool) (view cluster.EtcdView, err error) {
	err = c.read(ctx, "Etcd", address, func(ctx context.Context) error {
		return c.ask(ctx, "ask etcd on "+address, func(ctx context.Context) error {
			view, err = c.etcd(ctx, address, members)

			return err
		})
	})

	return view, err
}

// ForfeitLeadership implements [cluster.Talos].
func (c *Client) ForfeitLeadership(ctx context.Context, address string) error {
	return c.change(ctx, "ForfeitLeadership", address, func(ctx context.Context) error {
		return c.order(ctx, address, "move etcd leadership away from "+address, methodForfeit, func(ctx context.Context) error {
			_, err := c.cluster.world.ForfeitLeadership(ctx, address)

			return err
		})
	})
}

// Pull implements [cluster.Talos].
func (c *Client) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	method := methodPull
	if api == cluster.LegacyAPI {
		method = methodLegacyPull
	}

	return c.change(ctx, "Pull", address, func(ctx context.Context) error {
		return c.order(ctx, address, "pull "+image+" on "+address, method, func(ctx context.Context) error {
			_, err := c.cluster.world.Pull(ctx, address, image, nil)

			return err
		})
	})
}

// ImageDigest implements [cluster.Talos].
func (c *Client) ImageDigest(ctx context.Context, address, image string) (digest string, err error) {
	what := "find " + image + " on " + address

	err = c.read(ctx, "ImageDigest", address, func(ctx context.Context) error {
		return c.ask(ctx, what, func(ctx context.Context) error {
			if err := c.checkVersion(address, methodImages); err != nil {
				return err
			}

			list, err := c.cluster.world.Images(ctx, address, model.NamespaceSystem)
			if err != nil {
				return err
			}

			at := slices.IndexFunc(list, func(found model.Image) bool { return found.Name == image })
			if at < 0 {
				return cluster.ErrNotFound
			}

			digest = list[at].Digest

			return nil
		})
	})

	return digest, err
}

// outputMost is how many lines of an installer's output are kept.
const outputMost = 20

// Install implements [cluster.Talos].
func (c *Client) Install(ctx context.Context, address, image string) (done cluster.Installation, err error) {
	err = c.change(ctx, "Install", address, func(ctx context.Context) error {
		return c.order(ctx, address, "install "+image+" on "+address, methodInstall, func(ctx context.Context) error {
			exit, err := c.cluster.world.Install(ctx, address, image, func(line string) {
				done.Output = append(done.Output, line)
				done.Output = done.Output[max(0, len(done.Output)-outputMost):]
			})
			done.Exit = int32(exit) //nolint:gosec // an exit code

			return err
		})
	})

	return done, err
}

// InstallerIdle implements [cluster.Talos]: an upgrade call without an image is
// refused either because an installer runs or because of the image.
func (c *Client) InstallerIdle(ctx context.Context, address string) (idle bool, err error) {
	err = c.read(ctx, "InstallerIdle", address, func(ctx context.Context) error {
		err := c.order(ctx, address, "ask whether an installer runs on "+address, methodInstall, func(ctx context.Context) error {
			_, err := c.cluster.world.Install(ctx, address, "", nil)

			return err
		})

		idle = errors.Is(err, cluster.ErrRefused)
		if idle || errors.Is(err, cluster.ErrBusy) {
			return nil
		}

		return err
	})

	return idle, err
}

// Reboot implements [cluster.Talos].
func (c *Client) Reboot(ctx context.Context, address string, mode cluster.RebootMode) error {
	return c.change(ctx, "Reboot", address, func(ctx context.Context) error {
		return c.order(ctx, address, "reboot "+address, methodReboot, func(ctx context.Context) error {
			_, err := c.cluster.world.Reboot(ctx, address, model.RebootMode(mode))

			return err
		})
	})
}

// Rollback implements [cluster.Talos].
func (c *Client) Rollback(ctx context.Context, address string) error {
	return c.change(ctx, "Rollback", address, func(ctx context.Context) error {
		return c.order(ctx, address, "roll back "+address, methodRollback, func(ctx context.Context) error {
			return c.cluster.world.Rollback(ctx, address)
		})
	})
}

// Logs implements [cluster.Talos].
func (c *Client) Logs(ctx context.Context, address, service string, lines int) (text []string, err error) {
	what := "read the log of " + service + " on " + address

	err = c.read(ctx, "Logs", address, func(ctx context.Context) error {
		return c.ask(ctx, what, func(ctx context.Context) error {
			text, err = c.cluster.world.Logs(ctx, address, service, max(0, lines))
			if errors.Is(err, model.ErrNoLog) {
				return fmt.Errorf("%w: %w", cluster.ErrNotFound, err)
			}

			return err
		})
	})

	return text, err
}
