// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestDeadlineLetsOthersFinish: when the time is up the nodes that are on their
// way finish, and none is started.
func TestDeadlineLetsOthersFinish(t *testing.T) {
	inCluster(t, pairs(163), func(r *rig) {
		request := sharing(t, toLifecycle, "2")
		request.Deadline = 3 * time.Minute

		_ = failure(t, r.Worker("run-1").Apply(context.Background(), request), engine.ErrDeadline, "")
		r.Sound()
		r.stopped("", false)

		nodes := r.installed()
		for name := range nodes {
			if state := r.State(name); state.Talos != toLifecycle {
				t.Errorf("%s was left on Talos %s", name, state.Talos)
			}
		}

		if len(nodes) != 2 {
			t.Errorf("moved %v, want the two that were on their way", nodes)
		}

		r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestObstacleBesideATurnIsWaitedOut: a worker that has not moved yet falls
// silent while another one takes its time. It is waited for when its own turn comes;
// when it does not answer, the run ends once the other one is done.
func TestObstacleBesideATurnIsWaitedOut(t *testing.T) {
	for name, given := range map[string]struct {
		silence time.Duration
		passes  bool
	}{
		"for a while": {4 * time.Minute, true},
		"for good":    {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			slow := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 20 * time.Minute}

			inCluster(t, pairs(167), func(r *rig) {
				w := r.Worker("run-1")
				r.during(w, "Install", "worker-1", func() {
					faults := append(silent("worker-4"), slow)
					faults[0].Times, faults[0].For = 1, given.silence
					r.World().SetFaults(faults)
				})

				err := w.Apply(context.Background(), sharing(t, toLifecycle, "2"))
				r.Sound()

				if state := r.State("worker-0"); state.Talos != toLifecycle || state.Unschedulable {
					t.Errorf("the node that was on its way did not finish: %+v", state)
				}

				if given.passes {
					if err != nil {
						t.Fatal(err)
					}

					r.At(toLifecycle)

					return
				}

				if failed := failure(t, err, engine.ErrGuard, "worker-4"); !strings.HasSuffix(failed.State, "No other node is being upgraded; all others are in service.") {
					t.Errorf("%v", failed)
				}

				if nodes := r.installed(); len(nodes) != 4 || nodes["worker-4"] {
					t.Errorf("moved %v, want all workers but the silent one", nodes)
				}

				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}
