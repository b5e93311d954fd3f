// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const methodSnapshot = "/machine.MachineService/EtcdSnapshot"

// Vitals implements [cluster.Talos].
func (c *Client) Vitals(ctx context.Context, address string) (vitals cluster.Vitals, err error) {
	err = c.read(ctx, "Vitals", address, func(ctx context.Context) error {
		return c.ask(ctx, "ask "+address+" about its disk and its clock", func(ctx context.Context) (err error) {
			vitals, err = c.vitals(ctx, address)

			return err
		})
	})
	if err != nil {
		return cluster.Vitals{}, err
	}

	return vitals, nil
}

// vitals are of a machine that may be slow to tell about its disk: as for the
// adapter, that is no reason not to know about its clock.
func (c *Client) vitals(ctx context.Context, address string) (vitals cluster.Vitals, err error) {
	bounded, stop := context.WithCancelCause(ctx)

	var watching sync.WaitGroup

	watching.Go(func() {
		if c.cluster.world.Clock().Sleep(bounded, mountsLimit) == nil {
			stop(errSlow)
		}
	})

	told, err := c.cluster.world.Vitals(bounded, address)
	slow := err != nil && errors.Is(context.Cause(bounded), errSlow)

	stop(nil)
	watching.Wait()

	disk := told.Disk
	if told.Containerd != nil {
		disk = told.Containerd
	}

	what := "unable to read the mounts of " + address

	switch {
	case slow:
		vitals.DiskError = fmt.Errorf("%s: %w", what, errSlow)
	case err != nil:
		return cluster.Vitals{}, err
	case disk == nil:
		vitals.DiskError = fmt.Errorf("%s: input/output error", what)
	default:
		vitals.Disk = &cluster.DiskSpace{Size: disk.Size, Available: disk.Available}
	}

	if told.Time != nil {
		vitals.Time = &cluster.TimeSync{Synced: told.Time.Synced, Disabled: told.Time.Disabled}
	}

	return vitals, nil
}

// mountsLimit is how long the answer about mounts may take.
const mountsLimit = 3 * time.Second

var errSlow = fmt.Errorf("%w: no answer within %s", cluster.ErrUnreachable, mountsLimit)

// EtcdSnapshot implements [cluster.Talos]. The history tells of it as of any
// other call: with the code OK, the stream was read to its end.
func (c *Client) EtcdSnapshot(ctx context.Context, address string, to io.Writer) error {
	what := "take a snapshot of etcd on " + address

	return c.read(ctx, "EtcdSnapshot", address, func(ctx context.Context) error {
		if !c.hasRole("os:admin", "os:operator", "os:etcd:backup") {
			return fmt.Errorf("unable to %s: %w: not authorized", what, cluster.ErrDenied)
		}

		return c.ask(ctx, what, func(ctx context.Context) error { return c.snapshot(ctx, address, to) })
	})
}

func (c *Client) snapshot(ctx context.Context, address string, to io.Writer) error {
	watched, stop := context.WithCancelCause(ctx)
	progress := &progress{to: to, now: c.cluster.now, last: c.cluster.now()}

	var watching sync.WaitGroup

	watching.Go(func() { progress.watch(watched, c.cluster.world.Clock(), stop) })

	err := c.cluster.world.EtcdSnapshot(watched, address, progress)
	ended := code(watched, err)

	if stalled := context.Cause(watched); err != nil && errors.Is(stalled, errStalled) {
		err = fmt.Errorf("%w: %w", stalled, err)
	}

	stop(nil)
	watching.Wait()

	if !errors.Is(err, model.ErrUnreachable) && !errors.Is(err, model.ErrUnknownNode) {
		c.cluster.record(c.cluster.nameOf(address), history.KindRPC, map[string]string{
			"method": methodSnapshot, "role": c.roles[0], "code": ended, "mutating": "false", "client": c.name,
		})
	}

	return err
}

// stallLimit is how long a stream may bring nothing.
const stallLimit = time.Minute

var errStalled = fmt.Errorf("%w: nothing came for %s", cluster.ErrUnreachable, stallLimit)

// progress is a writer that knows when it was last written to.
type progress struct {
	to  io.Writer
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

func (p *progress) Write(chunk []byte) (int, error) {
	p.mu.Lock()
	p.last = p.now()
	p.mu.Unlock()

	return p.to.Write(chunk)
}

// watch ends a stream that brings nothing.
func (p *progress) watch(ctx context.Context, clock model.Clock, stop context.CancelCauseFunc) {
	for {
		p.mu.Lock()
		left := stallLimit - p.now().Sub(p.last)
		p.mu.Unlock()

		if left <= 0 {
			stop(errStalled)

			return
		}

		if clock.Sleep(ctx, left) != nil {
			return
		}
	}
}

func (c *Client) hasRole(roles ...string) bool {
	return slices.ContainsFunc(c.roles, func(role string) bool { return slices.Contains(roles, role) })
}
