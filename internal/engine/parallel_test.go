// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// sharing is a request that lets so many workers be unavailable.
func sharing(t testing.TB, target, share string) engine.Request {
	t.Helper()

	parsed, err := cluster.ParseShare(share)
	if err != nil {
		t.Fatal(err)
	}

	request := to(target)
	request.Policy.MaxUnavailable = parsed

	return request
}

// span is the time that a node was out of service, in seconds.
type span struct {
	node       string
	begin, end float64
}

// spans are the times from each cordon of ours to the uncordon after it, in
// order of their beginning.
func (r *rig) spans() []span {
	r.T.Helper()

	var found []span

	for _, event := range r.Judge.Of(history.KindCordon) {
		if event.Detail["by"] != "client" {
			continue
		}

		if event.Detail["unschedulable"] == "true" {
			found = append(found, span{node: event.Node, begin: event.Sim, end: r.World().Now().Seconds()})

			continue
		}

		for index := range found {
			if found[index].node == event.Node && found[index].end > event.Sim {
				found[index].end = event.Sim
			}
		}
	}

	return found
}

// most is how many spans overlapped at a time.
func most(spans []span) int {
	highest := 0

	for _, one := range spans {
		count := 0

		for _, other := range spans {
			if other.begin <= one.begin && one.begin < other.end {
				count++
			}
		}

		highest = max(highest, count)
	}

	return highest
}

// ofRole keeps the spans of the nodes whose names begin with a prefix.
func ofRole(spans []span, prefix string) []span {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return !strings.HasPrefix(s.node, prefix) })
}

func TestWorkersMoveSideBySide(t *testing.T) {
	for _, given := range []struct {
		share    string
		workers  int
		together int
		from, to string
	}{
		{"2", 5, 2, fromLifecycle, toLifecycle},
		{"50%", 6, 3, fromLifecycle, toLifecycle},
		{"50%", 6, 3, fromLegacy, toLegacy},
		{"30%", 5, 1, fromLifecycle, toLifecycle},
		// One stays for the pods.
		{"9", 4, 3, fromLifecycle, toLifecycle},
	} {
		t.Run(fmt.Sprintf("%s of %d from %s", given.share, given.workers, given.from), func(t *testing.T) {
			judged := setup{
				Options: model.Options{ControlPlanes: 3, Workers: given.workers, Talos: given.from, Seed: 41},
				Judging: []checker.Option{checker.MaxUnavailable(given.together)},
			}

			inCluster(t, judged, func(r *rig) {
				r.AddApp("web", 6, &ports.Budget{MinAvailable: 2})
				r.Must(r.Worker("run-1"), sharing(t, given.to, given.share))
				r.At(given.to)
				r.Once()
				r.Settled(given.to)

				if together := most(ofRole(r.spans(), "worker")); together != given.together {
					t.Errorf("%d workers moved at a time, want %d: %+v", together, given.together, r.spans())
				}

				if together := most(r.spans()); together > given.together {
					t.Errorf("a control plane moved beside something else: %+v", r.spans())
				}
			})
		})
	}
}

// TestSlotIsRefilledWithoutBatches: a node that takes its time holds back
// nobody but itself.
func TestSlotIsRefilledWithoutBatches(t *testing.T) {
	slow := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 15 * time.Minute}
	judged := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 5, Seed: 43, Faults: []model.Fault{slow}},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}

	inCluster(t, judged, func(r *rig) {
		r.Must(r.Worker("run-1"), sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()

		spans := r.spans()
		held := ofRole(spans, "worker-0")

		if len(held) != 1 || len(ofRole(spans, "worker")) != 5 {
			t.Fatalf("%+v", spans)
		}

		for _, other := range ofRole(spans, "worker") {
			if other.end > held[0].end {
				t.Errorf("%s was held back by worker-0: %+v", other.node, spans)
			}
		}

		for _, control := range ofRole(spans, "cp") {
			if control.begin < held[0].end {
				t.Errorf("%s did not wait for worker-0: %+v", control.node, spans)
			}
		}
	})
}

// TestWorkerThatIsAwayAnywayGoesFirstAndCostsItsPlace is about a worker that is
// not ready before anything is done to it, and becomes ready with its upgrade.
func TestWorkerThatIsAwayAnywayGoesFirstAndCostsItsPlace(t *testing.T) {
	sick := model.Fault{Node: "worker-4", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1}
	judged := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 6, Seed: 47, Faults: []model.Fault{sick}},
		Judging: []checker.Option{checker.MaxUnavailable(3)},
	}

	inCluster(t, judged, func(r *rig) {
		r.AddApp("web", 6, &ports.Budget{MinAvailable: 3})
		time.Sleep(2 * time.Minute)

		r.Must(r.Worker("run-1"), sharing(t, toLifecycle, "50%"))
		r.At(toLifecycle)
		r.Once()

		spans := ofRole(r.spans(), "worker")
		if own := ofRole(spans, "worker-4"); len(own) != 1 || own[0].begin > spans[0].begin {
			t.Errorf("worker-4 was not among the first: %+v", spans)
		}

		if together := most(spans); together != 3 {
			t.Errorf("%d workers moved at a time, want 3: %+v", together, spans)
		}
	})
}
