// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestAllowRetry_RefusedWhereNothingIsKept, and where the node is in the middle of something.
func TestAllowRetry_RefusedWhereNothingIsKept(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)

		for node, says := range map[string]string{
			"worker-0": "no image is kept from it", "worker-9": `No node of this cluster is called "worker-9"`,
		} {
			about := node
			if node == "worker-9" {
				about = ""
			}

			w := r.Worker("run-retry")

			failed := failure(t, w.Retry(context.Background(), node), say.ErrBlocked, about)
			if !strings.Contains(failed.Seen, says) {
				t.Errorf("seen is %q", failed.Seen)
			}

			if _, mutating := w.Client.Calls(); mutating != 0 {
				t.Errorf("it made %d mutating calls", mutating)
			}
		}

		r.killedAfter("run-next", "Install", "worker-0", to("1.13.6"))
		time.Sleep(time.Minute)

		failed := failure(t, r.Worker("run-retry").Retry(context.Background(), "worker-0"), say.ErrBlocked, "worker-0")
		if !strings.Contains(failed.Seen, "in the middle of its upgrade to Talos 1.13.6") {
			t.Errorf("seen is %q", failed.Seen)
		}

		r.Must(r.Worker("run-last"), to("1.13.6"))
		r.At("1.13.6")
	})
}

// TestAllowRetry_LastsUntilTheNextFallback, and changes that one entry.
func TestAllowRetry_LastsUntilTheNextFallback(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		apply := func(run string) error { return r.Worker(run).Apply(context.Background(), returning(to(toLifecycle))) }

		r.World().SetFaults([]model.Fault{neverReady("worker-0")})

		_ = failure(t, apply("run-1"), say.ErrRolledBack, "worker-0")
		before := r.entryOf("worker-0")

		for range 2 {
			if err := r.Worker("run-retry").Retry(context.Background(), "worker-0"); err != nil {
				t.Fatal(err)
			}
		}

		wanted, got := before, r.entryOf("worker-0")
		wanted.Retry, wanted.Run, wanted.Written = true, "run-retry", got.Written

		if got != wanted {
			t.Errorf("the entry is %+v, want %+v", got, wanted)
		}

		writes := 0

		for _, event := range r.Judge.Of(history.KindJournal) {
			if event.Detail["client"] == "run-retry" && event.Node == "worker-0" {
				writes++
			}
		}

		if writes != 1 {
			t.Errorf("the entry was written %d times", writes)
		}

		denied, journals := r.Worker("run-denied"), 0
		denied.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteJournal" {
				journals++
			}

			if journals > 1 {
				return cluster.ErrDenied
			}

			return next(ctx)
		})

		_, err := denied.RollBackNode(context.Background(), harness.OfNode("worker-0"))
		if failed := failure(t, err, cluster.ErrDenied, "worker-0"); !strings.Contains(failed.State, "may install the same image again") {
			t.Errorf("it says %q", failed.State)
		}

		// Whoever asks for a rollback after it takes it back.
		back, err := r.Worker("run-back").RollBackNode(context.Background(), harness.OfNode("worker-0"))
		if err != nil || back.Image != before.Image || r.entryOf("worker-0").Retry {
			t.Errorf("got %+v, %v, and the entry is %+v", back, err, r.entryOf("worker-0"))
		}

		_ = failure(t, apply("run-refused"), say.ErrBlocked, "worker-0")

		if err := r.Worker("run-retry").Retry(context.Background(), "worker-0"); err != nil {
			t.Fatal(err)
		}

		r.World().SetFaults([]model.Fault{neverReady("worker-0")})

		_ = failure(t, apply("run-2"), say.ErrRolledBack, "worker-0")
		_ = failure(t, apply("run-3"), say.ErrBlocked, "worker-0")

		if err := r.Worker("run-retry").Retry(context.Background(), "worker-0"); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-4"), returning(to(toLifecycle)))
		r.At(toLifecycle)
	})
}
