// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// cancelMost is how long a cancelled run may take to return.
const cancelMost = 15 * time.Second

// TestCancelAtAnyMomentLeavesNothingBehind cancels rolls at random moments and
// applies again.
func TestCancelAtAnyMomentLeavesNothingBehind(t *testing.T) {
	moments := 80
	if testing.Short() || raceEnabled {
		moments = 10
	}

	for name, hop := range map[string]struct {
		from, to  string
		cps, work int
		length    time.Duration
	}{
		"lifecycle":            {fromLifecycle, toLifecycle, 3, 2, 13 * time.Minute},
		"legacy":               {fromLegacy, toLegacy, 3, 2, 13 * time.Minute},
		"single control plane": {fromLifecycle, toLifecycle, 1, 1, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			random := rand.New(rand.NewPCG(11, 13)) //nolint:gosec // moments, not secrets

			for range moments {
				moment := time.Duration(random.Int64N(int64(hop.length)))
				given := setup{Options: model.Options{Talos: hop.from, ControlPlanes: hop.cps, Workers: hop.work, Seed: random.Uint64()}}

				inCluster(t, given, func(r *rig) { r.cancelAt(moment, to(hop.to)) })

				if t.Failed() {
					t.Fatalf("cancelled after %s with seed %d", moment, given.Seed)
				}
			}
		})
	}
}

func (r *rig) cancelAt(moment time.Duration, request engine.Request) {
	r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	first := r.Worker("run-1")
	ended := make(chan struct{})

	var took time.Duration

	go func() {
		defer close(ended)

		_, err := first.Upgrade(ctx, request)

		if err != nil && ctx.Err() == nil {
			r.T.Errorf("the run failed before it was cancelled: %v", err)
		}
	}()

	select {
	case <-ended:
	case <-time.After(moment):
		cancel()

		begun := time.Now()
		<-ended
		took = time.Since(begun)
	}

	if took > cancelMost {
		r.T.Errorf("it took %s to return after the cancel\n%s", took, r.Judge.Text())
	}

	if r.anyServer() {
		r.leftClean()
	}

	first.Notes.Finish()
	r.Until("in service", 10*time.Minute, r.anyServer)

	// Where the API server was away, the lease has to stand still for a while;
	// a node without its API server is nothing that an apply can go on from.
	r.Must(r.Worker("run-2"), request)
	r.Sound()
	r.AllRun(request.Target.Talos.String())
}

func (r *rig) anyServer() bool {
	for _, state := range r.World().Nodes() {
		if state.APIServerUp {
			return true
		}
	}

	return false
}

// leftClean fails the test when a lease was left, or a cordon on a node that
// is not armed.
func (r *rig) leftClean() {
	r.T.Helper()

	if holder := r.Lease().Holder; holder != "" {
		r.T.Errorf("the lease is still held by %s\n%s", holder, r.Judge.Text())
	}

	armed := map[string]bool{}
	for _, entry := range r.Journal().Entries {
		armed[entry.Node] = entry.Open()
	}

	for name, node := range r.Judge.Verdict().Nodes {
		if node.Cordoned && !armed[name] {
			r.T.Errorf("%s is still cordoned and has no open entry in the journal\n%s", name, r.Judge.Text())
		}
	}
}
