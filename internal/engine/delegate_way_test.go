// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestDelegatedRunTakesOneSnapshot: a run that goes on where another one stopped takes none, and the failure says where it is.
func TestDelegatedRunTakesOneSnapshot(t *testing.T) {
	besideOperator(t, asking(setup{}), &played.Habits{FailOn: "worker-1", FailTimes: 1, StaysFailed: true}, func(o *owned) {
		store := ports.NewVault()
		err := o.delegate(context.Background(), o.beside("1"), saving(store))
		if saved := store.Saved(); err != nil && len(saved) == 1 && !strings.Contains(err.Error(), saved[0].Path) {
			t.Errorf("the failure does not say where the snapshot is")
		}

		pass(time.Minute)
		if err := o.delegate(context.Background(), o.beside("2"), saving(store)); err != nil {
			t.Error(err)
		}

		if saved := store.Saved(); len(saved) != 1 {
			t.Errorf("%d snapshots for one target", len(saved))
		}

		if s := o.Journal().Snapshot; s == nil || !s.Closed || s.Run != cluster.RunPrefix+"1" {
			t.Errorf("recorded %+v", s)
		}
	})
}

// TestNothingIsLeftToAskForWhenTheWindowCloses: somebody has moved a component past the target meanwhile, so that there is no next leg to speak of.
func TestNothingIsLeftToAskForWhenTheWindowCloses(t *testing.T) {
	besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
		request := to(toLifecycle)
		request.Target.Kubernetes = version.MustParse(kubernetes)
		request.Window = interval{from: time.Now().Add(-time.Hour), to: time.Now().Add(4 * time.Minute)}
		go func() {
			pass(5 * time.Minute)
			if err := o.World().SetImage("worker-0", "kubelet", "ghcr.io/siderolabs/kubelet:v1.35.9"); err != nil {
				t.Error(err)
			}
		}()

		_ = o.delegate(context.Background(), o.beside("1"), request)
	})
}

// TestNoNodeIsTakenBackByALegOfTheOthers: an operator brings all nodes to the one version that it is asked for.
func TestNoNodeIsTakenBackByALegOfTheOthers(t *testing.T) {
	besideOperator(t, asking(setup{Options: model.Options{Talos: "1.11.6", Kubernetes: "1.33.4"}}), &played.Habits{}, func(o *owned) {
		if _, err := o.World().AddNode(model.NodeOptions{Name: "worker-9", Role: model.Worker, Talos: "1.13.4", Kubernetes: "1.33.4"}); err != nil {
			t.Fatal(err)
		}

		pass(10 * time.Minute)
		request := to("1.13.4")
		request.Policy.AllowIntermediate = true
		lowered := ""
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				pass(5 * time.Second)
				if now := o.State("worker-9").Talos; now != "" && now != "1.13.4" && lowered == "" {
					lowered = now
				}
			}
		}()

		_ = o.delegate(ctx, o.beside("1"), request)
		cancel()
		pass(6 * time.Second)
		if lowered != "" {
			t.Errorf("worker-9 was taken from 1.13.4 to %s", lowered)
		}

		o.Sound()
	})
}

// TestGateBetweenTwoLegsDoesNotDenyTheFirst: every node was moved by then.
func TestGateBetweenTwoLegsDoesNotDenyTheFirst(t *testing.T) {
	besideOperator(t, asking(setup{Options: model.Options{Talos: "1.12.6", Kubernetes: "1.33.4"}}), &played.Habits{}, func(o *owned) {
		begun := time.Now()
		gate := &userGate{timeout: time.Minute, answer: func(string) (bool, string, error) {
			return time.Since(begun) < 2*time.Minute, "Volume a/b is degraded", nil
		}}
		request := to("1.13.4")
		request.Target.Kubernetes = version.MustParse("1.34.1")
		request.Gates = []cluster.Gate{gate}
		err := o.delegate(context.Background(), o.beside("1"), request)
		if err == nil {
			t.Fatal("no error")
		}

		if errors.Is(err, engine.ErrNotBegun) || strings.Contains(err.Error(), "No node was disturbed") {
			t.Errorf("all nodes were moved to Talos 1.13.4 (worker-0 runs %s), and it says: %v", o.State("worker-0").Talos, err)
		}
	})
}
