// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// recording is what runs told their observers, and what they changed, in an order that does not
// depend on which of two goroutines is quicker: that of the turns, and then that within each node.
type recording struct {
	mu    sync.Mutex
	turns []string
	lanes map[string][]string
	// calls are what was changed on a node, or in the journal; what was changed several times in a row
	// stands once.
	calls []string
}

// observe notes an event. What is announced because time passes, and pulls, which go ahead of the
// turns, are left out.
func (r *recording) observe(event cluster.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if event.Kind == cluster.EventWaiting || event.Kind == cluster.EventPulled || event.Step == cluster.StepPull {
		return
	}

	lane := strings.TrimSpace(event.Node + " " + string(event.Component))
	if lane == "" {
		lane = "the run"
	}

	line := strings.Join(slices.DeleteFunc([]string{string(event.Kind), string(event.Step), versionOf(event.To), event.Text, outcomeOf(event.Err)}, func(part string) bool { return part == "" }), ", ")
	r.lanes[lane] = append(r.lanes[lane], line)

	switch event.Kind {
	case cluster.EventNodeStarted, cluster.EventNodeDone, cluster.EventNodeStopped, cluster.EventRollingBack:
		r.turns = append(r.turns, lane+" "+string(event.Kind))
	default:
	}
}

func versionOf(v version.Version) string {
	if v.IsZero() {
		return ""
	}

	return v.String()
}

// outcomeOf is an error by what tests and the provider tell apart: its text has a golden page of its own.
func outcomeOf(err error) string {
	if err == nil {
		return ""
	}

	var names []string

	for _, one := range []error{
		say.ErrFallback, say.ErrRolledBack, say.ErrUnhealthy, say.ErrInstaller, say.ErrGuard, say.ErrDrain, say.ErrGate, say.ErrSuspended,
		say.ErrUnsettled, say.ErrNotBegun, say.ErrBlocked, context.Canceled,
	} {
		if errors.Is(err, one) {
			names = append(names, one.Error())
		}
	}

	return "error: " + strings.Join(names, ", ")
}

// intercept notes what a client changes. The lease is renewed as time passes, annotations are written
// beside the run, and images are pulled ahead of the turns.
func (r *recording) intercept(ctx context.Context, call ports.Call, next func(context.Context) error) error {
	beside := []string{"WriteLease", "Annotate", "Pull", "PullComponent"}
	if call.Mutation > 0 && !slices.Contains(beside, call.Method) {
		r.mu.Lock()
		r.calls = append(r.calls, strings.TrimSpace(call.Method+" "+call.Node))
		r.mu.Unlock()
	}

	return next(ctx)
}

func (r *recording) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	text := &strings.Builder{}
	section := func(title string, lines []string) {
		fmt.Fprintf(text, "## %s\n\n", title)

		for _, line := range lines {
			fmt.Fprintf(text, "%s\n", line)
		}

		fmt.Fprintln(text)
	}

	section("turns", r.turns)

	for _, lane := range slices.Sorted(maps.Keys(r.lanes)) {
		section(lane, r.lanes[lane])
	}

	section("changes", slices.Compact(slices.Clone(r.calls)))

	return strings.TrimRight(text.String(), "\n") + "\n"
}

// recorded are the runs whose events are kept. Each is on 3+2 nodes that move one at a time.
func recorded() map[string]func(*rig, *recording) {
	both := to(toLifecycle)
	both.Target.Kubernetes = version.MustParse("1.35.2")

	apply := func(r *rig, into *recording, run string, request engine.Request) error {
		w := r.Worker(run)
		w.Client.Intercept(into.intercept)

		err := w.Apply(context.Background(), request)
		for _, event := range w.Events() {
			into.observe(event)
		}

		return err
	}

	return map[string]func(*rig, *recording){
		"both-halves": func(r *rig, into *recording) {
			if err := apply(r, into, "run-1", both); err != nil {
				r.T.Error(err)
			}

			r.At(toLifecycle)
		},
		"legacy": func(r *rig, into *recording) {
			if err := apply(r, into, "run-1", to(toLegacy)); err != nil {
				r.T.Error(err)
			}

			r.At(toLegacy)
		},
		"fallback-and-retry": func(r *rig, into *recording) {
			if err := apply(r, into, "run-1", to(toLifecycle)); !errors.Is(err, say.ErrFallback) {
				r.T.Errorf("the first run: %v", err)
			}

			if err := apply(r, into, "run-2", r.persistent(toLifecycle)); err != nil {
				r.T.Error(err)
			}

			r.AllRun(toLifecycle)
		},
		"sent-back": func(r *rig, into *recording) {
			request := to(toLifecycle)
			request.Policy.OnFailure = cluster.RollBackOnFailure

			if err := apply(r, into, "run-1", request); !errors.Is(err, say.ErrRolledBack) {
				r.T.Errorf("the run: %v", err)
			}

			r.Sound()
		},
		"killed-and-resumed": func(r *rig, into *recording) {
			reboots := 0

			struck, wait, err := r.CrashingIn("run-1", func(ctx context.Context, w *worker) error { return w.Apply(ctx, to(toLifecycle)) }, dieAfter, func(call ports.Call) bool {
				if call.Method == "Install" {
					reboots++
				}

				return call.Method == "Install" && reboots == 2
			})
			if !errors.Is(err, harness.ErrKilled) {
				r.T.Errorf("it was not killed: %s, %v", struck, err)
			}

			if err := apply(r, into, "run-2", to(toLifecycle)); err != nil {
				r.T.Error(err)
			}

			wait()
			r.At(toLifecycle)
		},
		"canary-settled-and-suspended": func(r *rig, into *recording) {
			request := to(toLifecycle)
			request.Policy.Canary, request.Policy.Settle = []string{"worker-1"}, time.Minute

			go func() {
				r.Until("a worker on its way", time.Hour, func() bool { return r.State("worker-1").Talos == toLifecycle })
				r.Suspend(&cluster.Suspension{Reason: "storage is degraded", By: "kubectl-annotate", Since: time.Now()})
				time.Sleep(10 * time.Minute)
				r.Suspend(nil)
			}()

			if err := apply(r, into, "run-1", request); err != nil {
				r.T.Error(err)
			}

			r.At(toLifecycle)
		},
	}
}

// TestRecorded_RunsTellWhatTheyDid compares what six runs tell and change with what they did when that
// was written, -update accepts it.
func TestRecorded_RunsTellWhatTheyDid(t *testing.T) {
	t.Parallel()

	given := map[string]model.Options{
		"legacy":             {Talos: fromLegacy},
		"fallback-and-retry": {Faults: []model.Fault{{Node: "cp-1", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}}},
		"sent-back":          {Faults: []model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, Times: 1}}},
	}

	for name, play := range recorded() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			options := given[name]
			options.ControlPlanes, options.Workers, options.Seed = 3, 2, 61
			into := &recording{lanes: map[string][]string{}}

			inCluster(t, setup{Options: options}, func(r *rig) {
				r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})
				play(r, into)
			})

			golden := filepath.Join("testdata", "recorded", name+".txt")

			if *update {
				if err := os.WriteFile(golden, []byte(into.String()), 0o600); err != nil {
					t.Fatal(err)
				}

				return
			}

			want, err := os.ReadFile(golden) //nolint:gosec // one of ours
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(string(want), into.String()); diff != "" {
				t.Errorf("the run goes otherwise (-want +got), -update accepts it:\n%s", diff)
			}
		})
	}
}
