// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestKilledRunDoesNotForgetWhoHasToSettleBeforeTheNextHop: the last node of a
// hop was moved when the run was killed, so that all nodes run what the next hop
// begins with.
func TestKilledRunDoesNotForgetWhoHasToSettleBeforeTheNextHop(t *testing.T) {
	const settle = 10 * time.Minute

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Talos: walkFrom, Seed: 79}}, func(r *rig) {
		request := walk(t, "1")
		request.Policy.Settle = settle

		ctx, cancel := context.WithCancel(context.Background())
		first := r.Worker("run-1")
		r.during(first, "Uncordon", "cp-2", func() { time.AfterFunc(time.Minute, cancel) })

		if err := first.Apply(ctx, request); err == nil {
			t.Error("the killed run reports success")
		}

		second, stop := context.WithCancel(context.Background())
		w := r.Worker("run-2")
		r.during(w, "Cordon", "worker-0", stop)

		if err := w.Apply(second, request); err == nil {
			t.Error("the cancelled run reports success")
		}

		last := 0.0
		for _, node := range []string{"worker-0", "worker-1", "cp-0", "cp-1", "cp-2"} {
			last = max(last, r.lastReady(node))
		}

		spans := r.spans()
		if wait := spans[len(spans)-1].begin - last; len(spans) != 6 || wait < settle.Seconds() || wait > settle.Seconds()+10 {
			t.Errorf("the next hop began %.0f s after the last node had become ready, want %s: %+v", wait, settle, spans)
		}

		if len(w.Texts(cluster.EventWaiting)) == 0 {
			t.Error("nobody was told what was waited for")
		}
	})
}
