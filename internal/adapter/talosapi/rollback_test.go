// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestRollbackReturnsToThePreviousSystem(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		if err := r.client("-operator").Rollback(r.Context(), worker0); !errors.Is(err, cluster.ErrDenied) {
			r.Errorf("with too few rights: %v", err)
		}

		if err := c.Rollback(r.Context(), worker0); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "label does not exist") {
			r.Errorf("without a previous system: %v, want it refused", err)
		}

		if err := c.Pull(r.Context(), worker0, nextImage, cluster.LifecycleAPI); err != nil {
			r.Fatal(err)
		}

		if done, err := c.Install(r.Context(), worker0, nextImage); err != nil || done.Exit != 0 {
			r.Fatalf("install: %+v, %v", done, err)
		}

		if err := c.Reboot(r.Context(), worker0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("worker-0", "down", isDown)
		r.until("worker-0", "back", isUp)

		for _, step := range []struct {
			effect model.Effect
			want   []error
		}{
			{model.EffectFail, []error{cluster.ErrRefused}},
			{model.EffectConnectionLost, []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}},
		} {
			r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepRollback, Effect: step.effect, Times: 1}})

			err := c.Rollback(r.Context(), worker0)
			for _, want := range step.want {
				if !errors.Is(err, want) {
					r.Errorf("%s: %v, want %v", step.effect, err, want)
				}
			}

			if errors.Is(err, cluster.ErrRefused) != (step.effect == model.EffectFail) {
				r.Errorf("%s: %v", step.effect, err)
			}
		}

		r.until("worker-0", "down", isDown)

		// What does not answer was not told to do anything.
		if err := c.Rollback(r.Context(), worker0); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("while it is down: %v, want only unreachable", err)
		}

		r.until("worker-0", "back", isUp)

		if after := r.machine(c, worker0); after.Talos.String() != "1.13.2" {
			r.Errorf("afterwards: Talos %s", after.Talos)
		}

		if calls := r.log.calls("worker-0")["/machine.MachineService/Rollback"]; calls != 4 {
			r.Errorf("the node saw %d calls, want 4", calls)
		}
	})
}

func TestRollbackOfAnEndpointThroughTheOthers(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		if err := c.Pull(r.Context(), cp0, nextImage, cluster.LifecycleAPI); err != nil {
			r.Fatal(err)
		}

		if done, err := c.Install(r.Context(), cp0, nextImage); err != nil || done.Exit != 0 {
			r.Fatalf("install: %+v, %v", done, err)
		}

		if err := c.Rollback(r.Context(), cp0); err != nil {
			r.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		if after := r.machine(c, cp0); after.Talos.String() != "1.13.2" || after.UpgradePending {
			r.Errorf("afterwards: %+v", after)
		}

		if view, err := c.Etcd(r.Context(), cp0, true); err != nil || view.Status.Version != "3.6.9" {
			r.Errorf("its etcd: %+v, %v", view, err)
		}
	})
}
