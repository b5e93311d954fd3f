// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func TestCanariesMoveBeforeEverythingElse(t *testing.T) {
	for _, order := range []cluster.Order{cluster.WorkersFirst, cluster.ControlPlanesFirst} {
		t.Run(string(order), func(t *testing.T) {
			given := pairs(109)
			given.Judging = append(given.Judging, checker.Canary("worker-3", "worker-1"))

			inCluster(t, given, func(r *rig) {
				request := sharing(t, toLifecycle, "2")
				request.Policy.Canary, request.Policy.Order = []string{"worker-3", "worker-1"}, order

				r.Must(r.Worker("run-1"), request)
				r.At(toLifecycle)
				r.Once()

				spans := r.spans()
				canaries := append(ofRole(spans, "worker-1"), ofRole(spans, "worker-3")...)

				for _, other := range spans {
					if other.node == "worker-1" || other.node == "worker-3" {
						continue
					}

					for _, canary := range canaries {
						if other.begin < canary.end {
							t.Errorf("%s did not wait for the canary %s: %+v", other.node, canary.node, spans)
						}
					}
				}

				if most(canaries) != 2 {
					t.Errorf("the canaries did not move side by side: %+v", spans)
				}
			})
		})
	}
}

func TestCanaryThatFailsStopsTheRest(t *testing.T) {
	for name, fault := range map[string]model.Fault{
		"installer": {Step: model.StepInstall, Effect: model.EffectFail, Times: 1},
		"fallback":  {Step: model.StepBoot, Effect: model.EffectFallback, Times: 1},
		"drain":     {Step: model.StepDrain, Effect: model.EffectBlockedByBudget},
		"lost":      {Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fault.Node = "worker-4"
			given := pairs(113, fault)
			given.Judging = append(given.Judging, checker.Canary("worker-4"))

			inCluster(t, given, func(r *rig) {
				r.AddApp("web", 4, &ports.Budget{MinAvailable: 2})

				request := undrained(sharing(t, toLifecycle, "2"))
				request.Policy.Canary = []string{"worker-4"}

				failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), nil, "worker-4")
				if !strings.Contains(failed.Detail(), "canary") {
					t.Errorf("it does not say that the node is a canary: %v", failed)
				}

				r.Sound()

				for _, moved := range r.spans() {
					if moved.node != "worker-4" {
						t.Errorf("%s was cordoned", moved.node)
					}
				}

				r.World().SetFaults(nil)

				again := r.persistent(toLifecycle)
				again.Policy.MaxUnavailable, again.Policy.Canary = request.Policy.MaxUnavailable, request.Policy.Canary
				r.Must(r.Worker("run-2"), again)
				r.At(toLifecycle)
			})
		})
	}
}

// held is a request that leaves nodes alone.
func held(request engine.Request, nodes ...string) engine.Request {
	request.Policy.Hold = map[string]bool{}
	for _, node := range nodes {
		request.Policy.Hold[node] = true
	}

	return request
}

func TestHeldNodesAreLeftAlone(t *testing.T) {
	for name, nodes := range map[string][]string{
		"worker": {"worker-2"}, "control plane": {"cp-1"}, "both": {"cp-2", "worker-0"},
	} {
		t.Run(name, func(t *testing.T) {
			given := pairs(127)
			given.Judging = append(given.Judging, checker.Held(nodes...))

			inCluster(t, given, func(r *rig) {
				request := held(sharing(t, toLifecycle, "2"), nodes...)
				r.Must(r.Worker("run-1"), request)
				r.Sound()
				r.Tidy()

				for name, node := range r.Judge.Verdict().Nodes {
					want := toLifecycle
					if request.Policy.Holds(name) {
						want = fromLifecycle
					}

					if node.Talos != want || node.Cordoned {
						t.Errorf("%s: %+v, want Talos %s and no cordon", name, node, want)
					}
				}

				if notes := r.Annotations(); notes["talos-status"] != "completed" || notes["talos-current"] != toLifecycle {
					t.Errorf("%v", notes)
				}

				again := r.Worker("run-2")
				r.Must(again, request)

				if _, mutating := again.Client.Calls(); mutating != 0 {
					t.Errorf("the next upgrade made %d mutating calls", mutating)
				}
			})
		})
	}
}

// TestHeldWorkerThatIsSilentIsNoObstacle: it costs its place in the budget and
// nothing else.
func TestHeldWorkerThatIsSilentIsNoObstacle(t *testing.T) {
	given := pairs(131, append(silent("worker-2"), model.Fault{
		Node: "worker-2", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1,
	})...)
	given.Judging = append(given.Judging, checker.Held("worker-2"))

	inCluster(t, given, func(r *rig) {
		r.Must(r.Worker("run-1"), held(sharing(t, toLifecycle, "2"), "worker-2"))
		r.Sound()
		r.Tidy()

		if together := most(ofRole(r.spans(), "worker")); together != 1 {
			t.Errorf("%d workers moved at a time beside the held one, want 1", together)
		}

		if nodes := r.installed(); len(nodes) != 7 || nodes["worker-2"] {
			t.Errorf("moved %v, want all but worker-2", nodes)
		}
	})
}

// attempts is how often an attack is tried, each time at another moment.
const attempts = 10

// attack has something happen to the cluster at a moment after a canary is back in
// service, and notes what the run begins to do to other nodes from then on.
type attack struct {
	rig    *rig
	canary string
	after  time.Duration
	does   func()

	mu       sync.Mutex
	happened time.Time
	begun    []string
}

func (a *attack) intercept(ctx context.Context, call ports.Call, next func(context.Context) error) error {
	switch call.Method {
	case "Cordon", "Install", "Upgrade":
		a.mu.Lock()

		if !a.happened.IsZero() && time.Now().After(a.happened) && call.Node != a.canary {
			a.begun = append(a.begun, fmt.Sprintf("%s %s later", call, time.Since(a.happened)))
		}

		a.mu.Unlock()
	case "Pull":
		// Turns do not reach their cordons all at once.
		_, offset, _ := strings.Cut(call.Node, "-")
		defer time.Sleep(time.Duration(offset[0]-'0') * 3 * time.Second)
	}

	err := next(ctx)

	if call.Method == "Uncordon" && call.Node == a.canary {
		time.AfterFunc(a.after, func() {
			a.mu.Lock()
			defer a.mu.Unlock()

			a.happened = time.Now()
			a.does()
		})
	}

	return err
}

// TestCanaryThatLeavesStopsTurnsThatHaveBegun: its turn is over, those of three
// workers have begun, and then it is not Ready any more, or cordoned. None of the
// others is cordoned or installed from then on.
func TestCanaryThatLeavesStopsTurnsThatHaveBegun(t *testing.T) {
	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		for number := range attempts {
			t.Run(fmt.Sprintf("%s %d", name, number), func(t *testing.T) {
				given := setup{
					Options: model.Options{ControlPlanes: 3, Workers: 6, Talos: hop.from, Seed: uint64(200 + number)},
					Judging: []checker.Option{checker.MaxUnavailable(3), checker.Canary("worker-0")},
				}

				inCluster(t, given, func(r *rig) {
					r.AddApp("web", 9, &ports.Budget{MinAvailable: 4})

					leave, back := notReady(r, "worker-0")
					if number%2 == 1 {
						leave, back = cordoned(r, "worker-0")
					}

					struck := &attack{rig: r, canary: "worker-0", after: time.Duration(number)*4*time.Second + 250*time.Millisecond, does: leave}
					request := sharing(t, hop.to, "3")
					request.Policy.Canary = []string{"worker-0"}

					w := r.Worker("run-1")
					w.Client.Intercept(struck.intercept)

					var failed *engine.Failure
					if err := w.Apply(context.Background(), request); !errors.As(err, &failed) {
						t.Fatalf("got %v, want a failure", err)
					}

					if !strings.Contains(failed.Error(), "canary") || !strings.Contains(failed.Error(), "worker-0") {
						t.Errorf("it does not say that the canary is why: %v", failed)
					}

					if len(struck.begun) > 0 {
						t.Errorf("the canary had left, and then: %s\n%s", strings.Join(struck.begun, ", "), r.Judge.Text())
					}

					r.Sound()

					back()
					time.Sleep(2 * time.Minute)
					r.Must(r.Worker("run-2"), request)
					r.At(hop.to)
					r.Once()
				})
			})
		}
	}
}

// notReady takes a node out of service for as long as its kubelet says so.
func notReady(r *rig, node string) (leave, back func()) {
	return func() {
			r.World().SetFaults([]model.Fault{{Node: node, Step: model.StepKubelet, Effect: model.EffectNotReady}})
		}, func() {
			r.World().SetFaults(nil)
		}
}

// cordoned has a person cordon a node.
func cordoned(r *rig, node string) (leave, back func()) {
	return func() {
			if err := r.CordonAsPerson(node, true); err != nil {
				r.T.Error(err)
			}
		}, func() {
			if err := r.CordonAsPerson(node, false); err != nil {
				r.T.Error(err)
			}
		}
}
