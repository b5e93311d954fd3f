// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// repeating is a request that tries as often as that.
func repeating(attempts int, backoff time.Duration) engine.Request {
	request := to(toLifecycle)
	request.Policy.Repeat = cluster.Repeat{Attempts: attempts, Backoff: backoff}

	return request
}

// TestPullIsRepeatedAsOftenAsThePolicySays also looks at the pauses.
func TestPullIsRepeatedAsOftenAsThePolicySays(t *testing.T) {
	for _, test := range []struct {
		fails, attempts int
		over            bool
	}{
		{0, 1, true}, {1, 1, false}, {1, 2, true}, {2, 2, false}, {3, 4, true}, {4, 4, false},
	} {
		t.Run(fmt.Sprintf("%d of %d", test.fails, test.attempts), func(t *testing.T) {
			const backoff = 31 * time.Second

			fault := model.Fault{Node: "worker-0", Step: model.StepPull, Effect: model.EffectFail, Times: test.fails}
			given := setup{Options: model.Options{}}

			if test.fails > 0 {
				given.Faults = []model.Fault{fault}
			}

			inCluster(t, given, func(r *rig) {
				err := r.Worker("run-1").Apply(context.Background(), repeating(test.attempts, backoff))

				if test.over {
					if err != nil {
						t.Fatalf("the run did not get over it: %v", err)
					}

					r.At(toLifecycle)
				} else if failed := failure(t, err, nil, "worker-0"); failed.State != "No node was disturbed." {
					t.Errorf("the state is %q", failed.State)
				}

				var at []float64

				for _, pull := range r.Judge.Of(history.KindFault) {
					at = append(at, pull.Sim)
				}

				if len(at) != min(test.fails, test.attempts) {
					t.Fatalf("%d pulls failed, want %d", len(at), min(test.fails, test.attempts))
				}

				for i, want := 1, backoff; i < len(at); i, want = i+1, 2*want {
					if pause := at[i] - at[i-1]; pause < want.Seconds() || pause > 2*want.Seconds() {
						t.Errorf("%.1f s between attempts %d and %d, want a little more than %s", pause, i, i+1, want)
					}
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
		{1, 1, false, false, "the node was asked once to install"}, {1, 2, true, false, ""}, {2, 3, true, true, ""},
		{2, 2, false, false, "the node was asked 2 times to install"}, {2, 2, false, true, "was installed 2 times and did not take"},
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
