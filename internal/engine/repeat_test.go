// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// repeating is a request that tries as often as that.
func repeating(attempts int, backoff time.Duration) engine.Request {
	request := to(toLifecycle)
	request.Policy.Repeat = cluster.Repeat{Attempts: attempts, Backoff: backoff}

	return request
}

// TestPullIsRepeatedForFiveMinutesAndAsOftenAsThePolicySays: a node of Talos 1.14
// tries once when it is asked. It also looks at the pauses, which are in seconds.
func TestPullIsRepeatedForFiveMinutesAndAsOftenAsThePolicySays(t *testing.T) {
	for _, test := range []struct {
		fails, attempts int
		backoff         time.Duration
		over            bool
		pauses          []float64
	}{
		{0, 1, 31 * time.Second, true, nil},
		{1, 1, 31 * time.Second, true, nil},
		{4, 1, 31 * time.Second, true, []float64{31, 62, 124}},
		{9, 1, 31 * time.Second, false, []float64{31, 62, 124, 80}},
		{9, 1, 0, true, slices.Repeat([]float64{10}, 8)},
		{5, 6, 31 * time.Second, true, []float64{31, 62, 124, 248}},
		{6, 6, 31 * time.Second, false, []float64{31, 62, 124, 248, 300}},
	} {
		t.Run(fmt.Sprintf("%d failures, %d attempts, %s", test.fails, test.attempts, test.backoff), func(t *testing.T) {
			given := setup{Options: model.Options{Talos: "1.14.0"}}

			if test.fails > 0 {
				given.Faults = []model.Fault{{Node: "worker-0", Step: model.StepPull, Effect: model.EffectFail, Times: test.fails}}
			}

			inCluster(t, given, func(r *rig) {
				request := to("1.14.1")
				request.Policy.Repeat = cluster.Repeat{Attempts: test.attempts, Backoff: test.backoff}

				err := r.Worker("run-1").Apply(context.Background(), request)

				if test.over {
					if err != nil {
						t.Fatalf("the run did not get over it: %v", err)
					}

					r.At("1.14.1")
				} else if failed := failure(t, err, nil, "worker-0"); failed.State != "No node was disturbed." {
					t.Errorf("the state is %q", failed.State)
				}

				var at []float64

				for _, pull := range r.Judge.Of(history.KindFault) {
					at = append(at, pull.Sim)
				}

				for i, want := range test.pauses {
					if i+1 >= len(at) || math.Abs(at[i+1]-at[i]-want) > 3 {
						t.Fatalf("tried at %.0f, want pauses of %.0f s", at, test.pauses)
					}
				}

				if !test.over && test.backoff > 0 && len(at) != len(test.pauses)+1 {
					t.Errorf("tried at %.0f, want pauses of %.0f s", at, test.pauses)
				}
			})
		})
	}
}

// TestSecondDownloadOfALegacyNodeIsNotCounted: it begins its upgrade with one, into
// a store that nothing else fills. What the node does after that is counted.
func TestSecondDownloadOfALegacyNodeIsNotCounted(t *testing.T) {
	for name, test := range map[string]struct {
		step   model.Step
		effect model.Effect
		over   bool
	}{
		"download": {model.StepPull, model.EffectStall, true},
		"boot":     {model.StepBoot, model.EffectNeverReturns, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Talos: fromLegacy}}, func(r *rig) {
				w := r.Worker("run-1")

				var once atomic.Bool

				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Upgrade" && !once.Swap(true) {
						r.World().SetFaults([]model.Fault{{Node: call.Node, Step: test.step, Effect: test.effect, Times: 1, For: 18 * time.Minute}})
					}

					return next(ctx)
				})

				request := to(toLegacy)
				request.Policy.NodeTimeout = 10 * time.Minute

				err := w.Apply(context.Background(), request)
				r.Sound()

				if test.over != (err == nil) {
					t.Fatalf("got %v, want it to be over: %t\n%s", err, test.over, r.Judge.Text())
				}

				if test.over {
					r.At(toLegacy)
				}

				if told := strings.Join(w.Texts(cluster.EventPulled), "\n"); !strings.Contains(told, "its upgrade downloads the image once more") {
					t.Errorf("told of the pull: %q", told)
				}
			})
		})
	}
}

// TestInstallThatNeverTookIsRepeatedAsOftenAsThePolicySays: the boot after it
// shows the old system, although the end of the installer was not seen.
func TestInstallThatNeverTookIsRepeatedAsOftenAsThePolicySays(t *testing.T) {
	for _, test := range []struct {
		lost, attempts int
		over, heard    bool
		says           string
	}{
		{1, 1, false, false, "the node was asked once to install"},
		{1, 2, true, false, ""},
		{2, 3, true, true, ""},
		{2, 2, false, false, "the node was asked 2 times to install"},
		{2, 2, false, true, "was installed 2 times and did not take"},
	} {
		t.Run(fmt.Sprintf("%d of %d, heard %t", test.lost, test.attempts, test.heard), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
				w := r.Worker("run-1")
				between := &lossy{Talos: w.Client, left: test.lost, heard: test.heard}
				w = r.WorkerOver(w.Client, between, w.Client)

				err := w.Apply(context.Background(), repeating(test.attempts, 31*time.Second))
				r.Sound()

				if !test.over {
					if failed := failure(t, err, engine.ErrInstaller, "worker-0"); !strings.Contains(failed.Seen, test.says) {
						t.Errorf("seen is %q, want %q in it", failed.Seen, test.says)
					}

					r.stopped("worker-0", false)

					return
				}

				if err != nil {
					t.Fatalf("the run did not get over it: %v\n%s", err, r.Judge.Text())
				}

				r.At(toLifecycle)

				if reboots := r.Judge.Verdict().Nodes["worker-0"].Reboots; reboots != test.lost+1 {
					t.Errorf("%d reboots, want %d", reboots, test.lost+1)
				}
			})
		})
	}
}

// lossy is a connection on which calls of the installer get lost before they
// arrive, without anybody being able to tell, or where the installer was heard
// and wrote nothing all the same.
type lossy struct {
	cluster.Talos

	left  int
	heard bool
}

// Install implements [cluster.Talos].
func (l *lossy) Install(ctx context.Context, address, image string) (cluster.Installation, error) {
	if l.left == 0 {
		return l.Talos.Install(ctx, address, image)
	}

	l.left--

	var done cluster.Installation
	if l.heard {
		done.Output = []string{"running Talos installer"}
	}

	return done, fmt.Errorf("%w: %w: the stream broke", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
}
