// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// deletedAfter has somebody delete the Node object of a machine that has been down for so long.
func (r *rig) deletedAfter(node string, away time.Duration) (stop func()) {
	var deleted bool

	return r.World().OnChange(func(changed string) {
		if state := r.State(node); changed != node || state.Up || deleted {
			return
		}

		deleted = true

		time.AfterFunc(away, func() {
			if err := r.DeleteNodeAsPerson(node); err != nil {
				r.T.Error(err)
			}
		})
	})
}

// TestCatalogue47_DeletedNodeDoesNotTakeAPoolAlong: an image that does not boot, and a controller that deletes
// nodes which do not come back.
func TestCatalogue47_DeletedNodeDoesNotTakeAPoolAlong(t *testing.T) {
	t.Parallel()

	never := model.Fault{Node: model.AnyNode, Step: model.StepBoot, Effect: model.EffectNeverReturns, Talos: toLifecycle}

	inCluster(t, setup{Options: model.Options{Workers: 4, Seed: 3, Faults: []model.Fault{never}}}, func(r *rig) {
		defer r.deletedAfter("worker-0", 4*time.Minute)()

		w, begun := r.Worker("run-1"), time.Now()
		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrDeparted, "worker-0")

		if took := time.Since(begun); took > 20*time.Minute {
			t.Errorf("it took %s", took)
		}

		for _, part := range []string{"was deleted from Kubernetes", "Node worker-0 was deleted", "its new system boots, so no other node is started.", r.State("worker-0").MachineID, "autoscaler"} {
			if !strings.Contains(failed.Error(), part) {
				t.Errorf("it lacks %q: %v", part, failed)
			}
		}

		if touched := r.installed(); len(touched) != 1 {
			t.Errorf("installed on %v", touched)
		}

		if entry := r.entryOf("worker-0"); entry.Phase != cluster.PhaseRebooting {
			t.Errorf("the journal has %+v", entry)
		}

		r.Sound()

		// Whoever applies again has decided that the image boots: the next node shows that it
		// does not, and no other one is touched.
		err := r.Worker("run-2").Apply(context.Background(), to(toLifecycle))
		if !errors.Is(err, say.ErrNeverReturned) {
			t.Errorf("got %v, want that the next node did not come back", err)
		}

		if touched := r.installed(); len(touched) != 2 {
			t.Errorf("installed on %v", touched)
		}
	})
}

// TestDeparture_IsNotWaitedForAgain: the next apply upgrades the others at once, and one after
// that goes on with the machine once it is back.
func TestDeparture_IsNotWaitedForAgain(t *testing.T) {
	t.Parallel()

	away := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 90 * time.Minute}

	inCluster(t, setup{Options: model.Options{Workers: 3, Seed: 3, Faults: []model.Fault{away}}}, func(r *rig) {
		defer r.deletedAfter("worker-0", 3*time.Minute)()

		_ = failure(t, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), say.ErrDeparted, "worker-0")

		if entry := r.entryOf("worker-0"); !entry.Departed || entry.Image == "" || entry.BootID == "" {
			t.Errorf("the journal has %+v", entry)
		}

		w := r.Worker("run-2")
		if err := w.Apply(context.Background(), to(toLifecycle)); err != nil {
			t.Fatal(err)
		}

		for _, event := range w.Events() {
			if event.Node == "worker-0" && event.Kind == cluster.EventNodeStep {
				t.Errorf("the second run was at worker-0: %+v", event)
			}
		}

		if entry := r.entryOf("worker-0"); !entry.Departed {
			t.Errorf("after the second run the journal has %+v", entry)
		}

		r.Sound()
		r.Until("back", 2*time.Hour, func() bool { return r.State("worker-0").Up && r.State("worker-0").Ready })

		r.Must(r.Worker("run-3"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestDeparture_OfANodeThatReturnsIsNone: its kubelet registers it anew.
func TestDeparture_OfANodeThatReturnsIsNone(t *testing.T) {
	t.Parallel()

	slow := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 5 * time.Minute}

	inCluster(t, setup{Options: model.Options{Seed: 3, Faults: []model.Fault{slow}}}, func(r *rig) {
		defer r.deletedAfter("worker-0", 3*time.Minute)()

		r.Must(r.Worker("run-1"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestDeparture_OfAControlPlaneIsWaitedFor: nothing deletes those on its own.
func TestDeparture_OfAControlPlaneIsWaitedFor(t *testing.T) {
	t.Parallel()

	never := model.Fault{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}

	inCluster(t, setup{Options: model.Options{Seed: 3, Faults: []model.Fault{never}}}, func(r *rig) {
		defer r.deletedAfter("cp-0", 3*time.Minute)()

		if err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle)); !errors.Is(err, say.ErrNeverReturned) {
			t.Errorf("got %v, want that it did not come back", err)
		}

		if count := len(r.Judge.Of(history.KindInstall)); count == 0 {
			t.Error("nothing was installed")
		}
	})
}
