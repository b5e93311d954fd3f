// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestTwoMembersAreUpgradedOnlyWhereThatIsAskedFor: while one of two reboots the
// other has no quorum, and with that nothing can be written.
func TestTwoMembersAreUpgradedOnlyWhereThatIsAskedFor(t *testing.T) {
	two := model.Options{ControlPlanes: 2, Workers: 1}

	t.Run("refused", func(t *testing.T) {
		inCluster(t, setup{Options: two}, func(r *rig) {
			err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle))
			if !errors.Is(err, engine.ErrBlocked) || !strings.Contains(err.Error(), cluster.CheckTwoMembers) {
				t.Errorf("got %v, want it refused", err)
			}
		})
	})

	t.Run("asked for", func(t *testing.T) {
		inCluster(t, setup{Options: two, Judging: []checker.Option{checker.Skips(cluster.CheckTwoMembers)}}, func(r *rig) {
			request := to(toLifecycle)
			request.Policy.SkipChecks = map[string]bool{cluster.CheckTwoMembers: true}

			w := r.Worker("run-1")
			r.Must(w, request)
			r.At(toLifecycle)
			r.Once()

			if warned := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warned, "two-members, skipped") {
				t.Errorf("nobody was told that it is skipped: %s", warned)
			}
		})
	})

	t.Run("and still refused where the nodes check it themselves", func(t *testing.T) {
		legacy := two
		legacy.Talos = fromLegacy

		inCluster(t, setup{Options: legacy}, func(r *rig) {
			request := to(toLegacy)
			request.Policy.SkipChecks = map[string]bool{cluster.CheckTwoMembers: true}

			w := r.Worker("run-1")

			err := w.Apply(context.Background(), request)
			if !errors.Is(err, engine.ErrBlocked) || !strings.Contains(err.Error(), cluster.CheckTwoMembers) {
				t.Errorf("got %v, want it refused", err)
			}

			if _, mutating := w.Client.Calls(); mutating > 0 {
				t.Errorf("%d mutating calls, want none", mutating)
			}
		})
	})
}
