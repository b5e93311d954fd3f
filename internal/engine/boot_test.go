// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestNodeThatWentThroughItsBootIsNotRebootedAgain: a node takes so long to go
// down that the reboot is about to be asked for again, and does so while the
// guards are waited for.
func TestNodeThatWentThroughItsBootIsNotRebootedAgain(t *testing.T) {
	inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
		var asked atomic.Int32

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "Reboot" || call.Node != "worker-0" || asked.Add(1) > 1 {
				return next(ctx)
			}

			time.AfterFunc(50*time.Second, func() {
				faults := silent("cp-2")
				faults[0].Times, faults[0].For = 1, 8*time.Minute
				r.World().SetFaults(faults)
			})
			time.AfterFunc(2*time.Minute, func() { _ = next(context.WithoutCancel(ctx)) })

			return nil
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// bootless is a cluster in which the boot ID of a machine cannot be read for a
// while.
type bootless struct {
	*ports.Client

	address string
	on      atomic.Bool
}

func (c *bootless) Machine(ctx context.Context, address string, known *cluster.Machine) (cluster.Machine, error) {
	machine, err := c.Client.Machine(ctx, address, known)
	if address == c.address && c.on.Load() {
		machine.BootID = ""
	}

	return machine, err
}

// TestBootThatCannotBeReadIsNoOtherBoot: no reboot is believed in because of it,
// and no install is recorded on it. The machine is blind from one call on until
// three minutes later or, where it comes first, the journal has been written.
func TestBootThatCannotBeReadIsNoOtherBoot(t *testing.T) {
	for _, hop := range []struct{ method, from, to string }{
		{"Pull", fromLifecycle, toLifecycle},
		{"Cordon", fromLifecycle, toLifecycle},
		{"Install", fromLifecycle, toLifecycle},
		{"Reboot", fromLifecycle, toLifecycle},
		{"Pull", fromLegacy, toLegacy},
		{"Cordon", fromLegacy, toLegacy},
		{"Upgrade", fromLegacy, toLegacy},
	} {
		t.Run(hop.method+" from "+hop.from, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 41}}, func(r *rig) {
				client := r.Client("run-1")
				blind := &bootless{Client: client, address: r.State("worker-0").Address}
				w := r.WorkerOver(client, blind, client)

				var begun sync.Once

				client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					err := next(ctx)

					switch {
					case call.Method == hop.method && call.Node == "worker-0":
						begun.Do(func() {
							blind.on.Store(true)
							time.AfterFunc(3*time.Minute, func() { blind.on.Store(false) })
						})
					case call.Method == "WriteJournal":
						blind.on.Store(false)
					}

					return err
				})

				r.Must(w, to(hop.to))
				r.At(hop.to)
				r.Once()
			})
		})
	}
}

// TestEntryWithoutABootProvesNoReboot: a run was killed after the install, and
// what it wrote does not say on which boot that was.
func TestEntryWithoutABootProvesNoReboot(t *testing.T) {
	inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
		r.killedAt("run-1", "Reboot", 1, to(toLifecycle))

		client := r.Client("run-2")
		w := r.WorkerOver(client, client, &unbooted{Client: client})
		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// unbooted is a cluster whose journal names no boots when it is read.
type unbooted struct{ *ports.Client }

func (u *unbooted) Journal(ctx context.Context) (cluster.Journal, error) {
	journal, err := u.Client.Journal(ctx)
	for uuid, entry := range journal.Entries {
		entry.BootID = ""
		journal = journal.With(uuid, entry)
	}

	return journal, err
}

// killedAt runs an upgrade that is killed before its n-th call of a method.
func (r *rig) killedAt(run, method string, nth int32, request engine.Request) {
	r.T.Helper()
	r.killed(r.Worker(run), method, nth, request)
}

// killed is [rig.killedAt] for a worker.
func (r *rig) killed(w *worker, method string, nth int32, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	var calls atomic.Int32

	hit := newStrike(dieBefore, atWill, cancel)
	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == method && calls.Add(1) == nth {
			hit.Kill()
		}

		return hit.Intercept(ctx, call, next)
	})

	if err := w.Apply(ctx, request); err == nil {
		r.T.Fatal("the killed run reports success")
	}
}
