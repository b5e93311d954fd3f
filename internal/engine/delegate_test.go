// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// handsOff fails the test for every change that the engine makes itself, the lease
// and the name in the journal aside.
func (o *owned) handsOff(w *worker) {
	o.T.Helper()

	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Mutation > 0 && call.Method != "WriteLease" && call.Method != "Annotate" && !stamps(call) {
			o.T.Errorf("the engine made the call %s", call)
		}

		return next(ctx)
	})
}

// arrivedAt fails the test unless every machine runs the version and is in service.
func (o *owned) arrivedAt(target string) {
	o.T.Helper()
	o.Sound()
	o.AllRun(target)

	if holder := o.Lease().Holder; holder != "" {
		o.T.Errorf("the lease is still held by %s", holder)
	}
}

// TestDelegate_OperatorDoesWhatItIsAskedFor, with all its habits.
func TestDelegate_OperatorDoesWhatItIsAskedFor(t *testing.T) {
	t.Parallel()

	for name, habits := range map[string]played.Habits{
		"as it is":                 {},
		"versions with v":          {WithV: true},
		"stale completed":          {StaleCompleted: true},
		"forgets to clean up":      {Forgetful: true},
		"all of the harmless ones": {WithV: true, StaleCompleted: true, Forgetful: true},
	} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, asking(setup{}), &habits, func(o *owned) {
				o.annotate(keyStatus, "completed")

				w := o.beside("1")
				o.handsOff(w)

				if err := o.delegate(context.Background(), w, to(toLifecycle)); err != nil {
					t.Fatalf("%v\n%s", err, o.Judge.Text())
				}

				o.wantFree()
				o.arrivedAt(toLifecycle)

				again := o.beside("2")
				if err := o.delegate(context.Background(), again, to(toLifecycle)); err != nil {
					t.Error(err)
				}

				if _, mutating := again.Client.Calls(); mutating > 0 {
					t.Errorf("%d mutating calls for a cluster at its target", mutating)
				}
			})
		})
	}
}

// TestDelegate_AsksForOneLegAfterTheOther: Talos first, then Kubernetes, one
// minor at a time.
func TestDelegate_AsksForOneLegAfterTheOther(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{Options: model.Options{Talos: "1.12.6", Kubernetes: "1.33.4"}}), &played.Habits{}, func(o *owned) {
		var asked []string

		o.api.Inject(func(_ context.Context, operation played.Operation, next func() error) error {
			err := next()

			for half, key := range map[string]string{"talos ": keyTarget, "kubernetes ": keyKubeTarget} {
				if target := o.annotation(key); operation.By == "client" && operation.Mutation > 0 && target != "" {
					asked = append(asked, half+target)
				}
			}

			return err
		})

		request := to("1.13.4")
		request.Target.Kubernetes = version.MustParse("1.35.2")
		request.Policy.AllowIntermediate = true

		w := o.beside("1")
		o.handsOff(w)

		if err := o.delegate(context.Background(), w, request); err != nil {
			t.Fatalf("%v\n%s", err, o.Judge.Text())
		}

		o.wantFree()
		o.arrivedAt("1.13.4")

		if len(asked) != 3 || asked[0] != "talos 1.13.4" || !strings.HasPrefix(asked[1], "kubernetes 1.34.") || asked[2] != "kubernetes 1.35.2" {
			t.Errorf("asked for %q", asked)
		}
	})
}

// TestDelegate_OperatorThatDoesNotGetThereIsAskedNoMore: whatever it says, its target is
// taken back, and the failure says what was seen.
func TestDelegate_OperatorThatDoesNotGetThereIsAskedNoMore(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		habits played.Habits
		within time.Duration
		says   []string
	}{
		"fails":                  {played.Habits{FailOn: "cp-1"}, time.Hour, []string{"says that it failed", "cp-1"}},
		"fails and stays failed": {played.Habits{FailOn: "worker-1", StaysFailed: true}, time.Hour, []string{"says that it failed", "worker-1"}},
		"deaf":                   {played.Habits{Deaf: true}, 7 * time.Minute, []string{"did not react within 5m0s"}},
		"lies":                   {played.Habits{Lies: true}, 7 * time.Minute, []string{"says that it is done", "not at Talos " + toLifecycle, "worker-0"}},
		"stalls":                 {played.Habits{Stalls: true}, 40 * time.Minute, []string{"no progress within node_timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, asking(setup{}), &test.habits, func(o *owned) {
				w := o.beside("1")
				o.handsOff(w)

				begun := time.Now()
				err := o.delegate(context.Background(), w, to(toLifecycle))
				o.wantFailure(err, say.ErrOperator, append(test.says, "taken back", "tenant-a/prod")...)

				if took := time.Since(begun); took > test.within {
					t.Errorf("it took %s", took)
				}

				o.wantFree()
				o.Sound()

				if holder := o.Lease().Holder; holder != "" {
					t.Errorf("the lease is still held by %s", holder)
				}
			})
		})
	}
}

// TestDelegate_BootsAreNoProgress: a node boots again and again while its operator tries.
func TestDelegate_BootsAreNoProgress(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), &played.Habits{Stalls: true}, func(o *owned) {
		w := o.beside("1")
		o.handsOff(w)

		trying, stop := context.WithCancel(context.Background())
		tried := make(chan error, 1)

		go func() {
			for {
				select {
				case <-trying.Done():
					tried <- nil

					return
				case <-time.After(10 * time.Minute):
				}

				if err := o.World().RebootByHand("worker-1", model.RebootDefault); err != nil {
					tried <- err

					return
				}
			}
		}()

		begun := time.Now()
		err := o.delegate(context.Background(), w, to(toLifecycle))
		took := time.Since(begun)

		stop()

		if err := <-tried; err != nil {
			t.Fatal(err)
		}

		o.wantFailure(err, say.ErrOperator, "no progress within node_timeout", "taken back", "tenant-a/prod")

		if took > 45*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestDelegate_OperatorThatSaysForTheFirstTimeThatItIsIdleHasNotReacted: it was started after
// it had been asked.
func TestDelegate_OperatorThatSaysForTheFirstTimeThatItIsIdleHasNotReacted(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), nil, func(o *owned) {
		w := o.beside("1")
		o.handsOff(w)

		started := make(chan func(), 1)
		time.AfterFunc(time.Minute, func() {
			started <- played.PlayVitistack(context.Background(), o.options(played.Habits{Deaf: true}))
		})

		err := o.delegate(context.Background(), w, to(toLifecycle))
		(<-started)()

		o.wantFailure(err, say.ErrOperator, "did not react within 5m0s (idle", "taken back", "tenant-a/prod")
		o.wantFree()
	})
}

// TestDelegate_FailedUpgradeIsAskedForAnew, in the way its protocol wants.
func TestDelegate_FailedUpgradeIsAskedForAnew(t *testing.T) {
	t.Parallel()

	habits := played.Habits{FailOn: "worker-1", FailTimes: 1, StaysFailed: true}

	besideOperator(t, asking(setup{}), &habits, func(o *owned) {
		err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
		o.wantFailure(err, say.ErrOperator, "worker-1")

		if err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle)); err != nil {
			t.Fatalf("%v\n%s", err, o.Judge.Text())
		}

		o.wantFree()
		o.arrivedAt(toLifecycle)
	})
}

// TestDelegate_TargetOfACutOffRunIsFollowed: the process died, the operator did not.
func TestDelegate_TargetOfACutOffRunIsFollowed(t *testing.T) {
	t.Parallel()

	for name, stands := range map[string]map[string]string{
		"at work":           {keyTarget: toLifecycle},
		"failed, not taken": {keyTarget: toLifecycle, keyStatus: "failed", keyMessage: "Talos upgrade failed: node worker-0 did not come back online"},
	} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, asking(setup{}), &played.Habits{StaysFailed: true}, func(o *owned) {
				o.annotateAll(stands)
				pass(90 * time.Second)

				if err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle)); err != nil {
					t.Fatalf("%v\n%s", err, o.Judge.Text())
				}

				o.wantFree()
				o.arrivedAt(toLifecycle)
			})
		})
	}
}

// TestDelegate_HoldOfADeadRunDoesNotKeepItFromAsking: the run before was a
// direct one.
func TestDelegate_HoldOfADeadRunDoesNotKeepItFromAsking(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, end := context.WithCancel(context.Background())
		defer end()

		o.killed(ctx, end, newStrike(dieBefore, 3, end))

		if got := o.annotation(keyHold); got == "" {
			t.Fatal("the run died before it held the operator")
		}

		if err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle)); err != nil {
			t.Fatalf("%v\n%s", err, o.Judge.Text())
		}

		o.wantFree()
		o.AllRun(toLifecycle)
	})
}

// TestDelegate_OperatorThatMayNotBeAskedIsLeftAlone.
func TestDelegate_OperatorThatMayNotBeAskedIsLeftAlone(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		stands map[string]string
		reason error
		says   string
	}{
		"held by somebody":     {map[string]string{keyHold: "maintenance"}, say.ErrBlocked, "maintenance"},
		"asked for another":    {map[string]string{keyTarget: "1.13.3"}, say.ErrOperator, "to bring Talos to 1.13.3"},
		"asked for Kubernetes": {map[string]string{keyKubeTarget: "1.35.2"}, say.ErrOperator, "to bring Kubernetes to 1.35.2"},
		"asked for another, under the hold of a dead run": {
			map[string]string{keyHold: cluster.RunPrefix + "dead", keyTarget: "1.13.3"}, say.ErrOperator, "to bring Talos to 1.13.3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, asking(setup{}), nil, func(o *owned) {
				o.annotateAll(test.stands)

				err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
				o.wantFailure(err, test.reason, test.says)

				for key, value := range test.stands {
					if o.annotation(key) != value {
						t.Errorf("%s became %q", key, o.annotation(key))
					}
				}
			})
		})
	}

	t.Run("no object", func(t *testing.T) {
		besideOperator(t, asking(setup{}), nil, func(o *owned) {
			if err := o.api.Delete(o.of); err != nil {
				t.Fatal(err)
			}

			o.wantFailure(o.delegate(context.Background(), o.beside("1"), to(toLifecycle)), say.ErrBlocked, "tenant-a/prod", "Nothing was touched")
		})
	})

	t.Run("being deleted", func(t *testing.T) {
		besideOperator(t, asking(setup{}), nil, func(o *owned) {
			if err := o.api.Delete(o.of, "example.org/keep"); err != nil {
				t.Fatal(err)
			}

			o.wantFailure(o.delegate(context.Background(), o.beside("1"), to(toLifecycle)), say.ErrBlocked, "is being deleted")
		})
	})

	t.Run("an alarm of etcd", func(t *testing.T) {
		besideOperator(t, asking(setup{Options: model.Options{Faults: []model.Fault{{Node: "cp-0", Step: model.StepEtcd, Effect: model.EffectAlarmNoSpace}}}}), &played.Habits{}, func(o *owned) {
			o.wantFailure(o.delegate(context.Background(), o.beside("1"), to(toLifecycle)), say.ErrBlocked, "etcd")
			o.wantFree()
		})
	})
}

// TestDelegate_CancelTakesTheRequestBackInTime.
func TestDelegate_CancelTakesTheRequestBackInTime(t *testing.T) {
	t.Parallel()

	for _, moment := range []time.Duration{time.Second, 7 * time.Second, 3 * time.Minute} {
		besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
			ctx, cancel := context.WithTimeout(context.Background(), moment)
			defer cancel()

			begun := time.Now()
			err := o.delegate(ctx, o.beside("1"), to(toLifecycle))

			if took := time.Since(begun); err == nil || took > moment+cancelMost {
				t.Errorf("%v after %s", err, took)
			}

			o.wantFree()

			if holder := o.Lease().Holder; holder != "" {
				t.Errorf("the lease is still held by %s", holder)
			}
		})
	}
}

// TestDelegate_TimeIsUpForTheOperatorToo.
func TestDelegate_TimeIsUpForTheOperatorToo(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
		request := to(toLifecycle)
		request.Deadline = 4 * time.Minute

		o.wantFailure(o.delegate(context.Background(), o.beside("1"), request), say.ErrDeadline, "timeouts")
		o.wantFree()
	})
}

// TestDelegate_LostRepliesDoNotLeadAstray.
func TestDelegate_LostRepliesDoNotLeadAstray(t *testing.T) {
	t.Parallel()

	for lost := 1; lost <= 4; lost++ {
		besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
			changes := 0

			o.api.Inject(func(_ context.Context, operation played.Operation, next func() error) error {
				err := next()

				if operation.By == "client" && operation.Mutation > 0 {
					if changes++; changes == lost {
						return errors.Join(cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
					}
				}

				return err
			})

			if err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle)); err != nil {
				t.Fatalf("reply %d: %v\n%s", lost, err, o.Judge.Text())
			}

			o.api.Inject(nil)
			o.wantFree()
		})
	}
}

// TestDelegate_DeclarativeOperatorIsFollowed to the end of both halves, and its failures.
func TestDelegate_DeclarativeOperatorIsFollowed(t *testing.T) {
	t.Parallel()

	t.Run("both halves", func(t *testing.T) {
		besideDeclarative(t, asking(setup{}), &played.Habits{}, func(o *owned) {
			request := to(toLifecycle)
			request.Target.Kubernetes = version.MustParse(toKubernetes)

			w := o.beside("1")
			o.handsOff(w)

			if err := o.delegate(context.Background(), w, request); err != nil {
				t.Fatalf("%v\n%s", err, o.Judge.Text())
			}

			o.arrivedAt(toLifecycle)
		})
	})

	t.Run("again after a failure", func(t *testing.T) {
		besideDeclarative(t, asking(setup{}), &played.Habits{FailOn: "worker-1", FailTimes: 1}, func(o *owned) {
			o.wantFailure(o.delegate(context.Background(), o.beside("1"), to(toLifecycle)), say.ErrOperator, "says that it failed")

			if err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle)); err != nil {
				t.Fatalf("%v\n%s", err, o.Judge.Text())
			}

			o.arrivedAt(toLifecycle)
		})
	})

	for name, test := range map[string]struct {
		habits played.Habits
		says   string
	}{
		"fails": {played.Habits{FailOn: "worker-1"}, "says that it failed"},
		"deaf":  {played.Habits{Deaf: true}, "did not react within 5m0s"},
		"lies":  {played.Habits{Lies: true}, "says that it is done"},
	} {
		t.Run(name, func(t *testing.T) {
			besideDeclarative(t, asking(setup{}), &test.habits, func(o *owned) {
				err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
				o.wantFailure(err, say.ErrOperator, test.says, "cannot be taken back")
			})
		})
	}
}

// TestDelegate_TakesOneSnapshot: a run that goes on where another one stopped takes none, and the failure says where it is.
func TestDelegate_TakesOneSnapshot(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), &played.Habits{FailOn: "worker-1", FailTimes: 1, StaysFailed: true}, func(o *owned) {
		store := ports.NewVault()
		err := o.delegate(context.Background(), o.beside("1"), saving(store))
		if saved := store.Saved(); err != nil && len(saved) == 1 && !strings.Contains(err.Error(), saved[0].Path) {
			t.Errorf("the failure does not say where the snapshot is")
		}

		pass(time.Minute)
		if err := o.delegate(context.Background(), o.beside("2"), saving(store)); err != nil {
			t.Error(err)
		}

		if saved := store.Saved(); len(saved) != 1 {
			t.Errorf("%d snapshots for one target", len(saved))
		}

		if s := o.Journal().Snapshot; s == nil || !s.Closed || s.Run != cluster.RunPrefix+"1" {
			t.Errorf("recorded %+v", s)
		}
	})
}

// TestDelegate_WindowMayCloseWithNoLegLeft: somebody has moved a component past the target meanwhile, so that there is no next leg to speak of.
func TestDelegate_WindowMayCloseWithNoLegLeft(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
		request := to(toLifecycle)
		request.Target.Kubernetes = version.MustParse(kubernetes)
		request.Window = interval{from: time.Now().Add(-time.Hour), to: time.Now().Add(4 * time.Minute)}
		go func() {
			pass(5 * time.Minute)
			if err := o.World().SetImage("worker-0", "kubelet", "ghcr.io/siderolabs/kubelet:v1.35.9"); err != nil {
				t.Error(err)
			}
		}()

		_ = o.delegate(context.Background(), o.beside("1"), request)
	})
}

// TestDelegate_NoNodeIsTakenBackByALegOfTheOthers: an operator brings all nodes to the one version that it is asked for.
func TestDelegate_NoNodeIsTakenBackByALegOfTheOthers(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{Options: model.Options{Talos: "1.11.6", Kubernetes: "1.33.4"}}), &played.Habits{}, func(o *owned) {
		if _, err := o.World().AddNode(model.NodeOptions{Name: "worker-9", Role: model.Worker, Talos: "1.13.4", Kubernetes: "1.33.4"}); err != nil {
			t.Fatal(err)
		}

		pass(10 * time.Minute)
		request := to("1.13.4")
		request.Policy.AllowIntermediate = true
		lowered := ""
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				pass(5 * time.Second)
				if now := o.State("worker-9").Talos; now != "" && now != "1.13.4" && lowered == "" {
					lowered = now
				}
			}
		}()

		_ = o.delegate(ctx, o.beside("1"), request)
		cancel()
		pass(6 * time.Second)
		if lowered != "" {
			t.Errorf("worker-9 was taken from 1.13.4 to %s", lowered)
		}

		o.Sound()
	})
}

// TestDelegate_GateBetweenTwoLegsDoesNotDenyTheFirst: every node was moved by then.
func TestDelegate_GateBetweenTwoLegsDoesNotDenyTheFirst(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{Options: model.Options{Talos: "1.12.6", Kubernetes: "1.33.4"}}), &played.Habits{}, func(o *owned) {
		begun := time.Now()
		gate := &userGate{timeout: time.Minute, answer: func(string) (bool, string, error) {
			return time.Since(begun) < 2*time.Minute, "Volume a/b is degraded", nil
		}}
		request := to("1.13.4")
		request.Target.Kubernetes = version.MustParse("1.34.1")
		request.Gates = []cluster.Gate{gate}
		err := o.delegate(context.Background(), o.beside("1"), request)
		if err == nil {
			t.Fatal("no error")
		}

		if errors.Is(err, say.ErrNotBegun) || strings.Contains(err.Error(), "No node was disturbed") {
			t.Errorf("all nodes were moved to Talos 1.13.4 (worker-0 runs %s), and it says: %v", o.State("worker-0").Talos, err)
		}
	})
}

// TestDelegate_ForgottenTargetIsTakenBack: by a run that died, or by an operator that does not clean up.
func TestDelegate_ForgottenTargetIsTakenBack(t *testing.T) {
	t.Parallel()

	t.Run("reached", func(t *testing.T) {
		besideOperator(t, asking(setup{}), &played.Habits{Forgetful: true}, func(o *owned) {
			o.annotate(keyTarget, toLifecycle) // by a run that died
			pass(time.Hour)
			o.AllRun(toLifecycle)
			if err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle)); err != nil {
				t.Error(err)
			}

			o.wantFree()
		})
	})

	t.Run("intermediate", func(t *testing.T) {
		besideOperator(t, asking(setup{Options: model.Options{Talos: "1.13.4", Kubernetes: "1.33.4"}}), &played.Habits{Forgetful: true}, func(o *owned) {
			request := to("1.13.4")
			request.Target.Kubernetes = version.MustParse("1.35.2")
			request.Policy.AllowIntermediate = true
			ctx, end := context.WithCancel(context.Background())
			defer end()
			killed := newStrike(dieBefore, atWill, end)
			w := o.beside("1")
			w.Client.Intercept(killed.Intercept)
			o.dead(killed, nil)

			go func() { pass(3 * time.Minute); killed.Kill() }()

			if err := o.delegate(ctx, w, request); err == nil {
				t.Error("it was not killed")
			}

			o.api.Inject(nil)
			pass(2 * time.Hour)
			for range 2 {
				if err := o.delegate(context.Background(), o.beside("2"), request); err != nil {
					t.Errorf("does not converge: %v", err)
				}
			}

			o.wantFree()
		})
	})
}

// TestDelegate_InterferenceWithTheObjectEndsTheFollowing: the object is deleted, held, or asks for something else.
func TestDelegate_InterferenceWithTheObjectEndsTheFollowing(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		do   func(o *owned)
		says string
	}{
		"deleted":  {func(o *owned) { _ = o.api.Delete(o.of, "example.org/keep") }, "is being deleted"},
		"held":     {func(o *owned) { o.annotate(keyHold, "maintenance") }, "maintenance"},
		"replaced": {func(o *owned) { o.annotate(keyTarget, "1.13.6") }, "1.13.6"},
	} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
				go func() { pass(3 * time.Minute); test.do(o) }()
				begun := time.Now()
				err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
				took := time.Since(begun)
				if err == nil || took > 10*time.Minute || !strings.Contains(err.Error(), test.says) {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// TestDelegate_HoldOfADeadRunIsEndedThoughAReadFails: one read fails just then.
func TestDelegate_HoldOfADeadRunIsEndedThoughAReadFails(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
		o.annotate(keyHold, cluster.RunPrefix+"dead")
		reads := 0
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Verb == "get" && op.Of.Kind != "Secret" {
				if reads++; reads == 3 {
					return cluster.ErrUnreachable
				}
			}

			return next()
		})

		if err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle)); err != nil {
			t.Errorf("%v; hold %q", err, o.annotation(keyHold))
		}
	})
}

// TestDelegate_OperatorAtWorkOverAnOpenEntryIsFollowed: a direct run was killed in the middle of a node, and somebody had the operator go on.
func TestDelegate_OperatorAtWorkOverAnOpenEntryIsFollowed(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, end := context.WithCancel(context.Background())
		defer end()
		o.killed(ctx, end, newStrike(dieAfter, 9, end))
		o.annotate(keyHold, "")
		o.annotate(keyStatus, "")
		o.annotate(keyTarget, toLifecycle)
		pass(30 * time.Second)
		begun := time.Now()
		err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle))
		t.Logf("after %s: %v", time.Since(begun), err)
		if err != nil && strings.Contains(err.Error(), "the cluster is not") {
			t.Errorf("worker-0 runs %s", o.State("worker-0").Talos)
		}
	})
}

// TestDelegate_SucceedsAfterADirectRunThatDied: its word "in-progress" stands on the object.
func TestDelegate_SucceedsAfterADirectRunThatDied(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, end := context.WithCancel(context.Background())
		defer end()
		w := o.publishing("0")
		killed := harness.NewStrike(dieBefore, func(call ports.Call) bool { return call.Method == "Cordon" && call.Node == "worker-1" }, end)
		w.Client.Intercept(killed.Intercept)
		o.dead(killed, nil)

		_ = w.apply(ctx, to(toLifecycle))
		o.api.Inject(nil)

		for range 2 {
			if err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle)); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestDelegate_StaleFailureIsNotBelieved: there is no operator, and a node joins meanwhile.
func TestDelegate_StaleFailureIsNotBelieved(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		o.annotate(keyStatus, "failed")
		o.annotate(keyMessage, "Talos upgrade failed: last week")
		go func() {
			pass(2 * time.Minute)
			if _, err := o.World().AddNode(model.NodeOptions{Name: "worker-9", Role: model.Worker, Talos: toLifecycle, Kubernetes: kubernetes}); err != nil {
				t.Error(err)
			}
		}()

		err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
		if err == nil || strings.Contains(err.Error(), "says that it failed") {
			t.Errorf("%v", err)
		}
	})
}

// TestDelegate_RequestThatLandsAfterACancelIsTakenBack: a request that is cut off by a cancel may take effect a moment later.
func TestDelegate_RequestThatLandsAfterACancelIsTakenBack(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), nil, func(o *owned) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		seen := 0
		o.api.Inject(func(c context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Mutation > 0 {
				if seen++; seen == 1 {
					go func() {
						pass(1500 * time.Millisecond)
						o.annotate(keyTarget, toLifecycle)
					}()

					cancel()
					<-c.Done()
					return errors.Join(cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
				}
			}

			return next()
		})

		_ = o.delegate(ctx, o.beside("1"), to(toLifecycle))
		pass(time.Minute)
		o.wantFree()
	})
}

// TestDelegate_RequestIsTakenBackThoughTheLeaseWasFreed: nor is there anybody who would take a request back.
func TestDelegate_RequestIsTakenBackThoughTheLeaseWasFreed(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		w := o.beside("1")
		go func() { pass(3 * time.Minute); o.DeleteLeaseAsPerson() }()
		err := o.delegate(context.Background(), w, to(toLifecycle))
		var f *say.Failure
		errors.As(err, &f)
		if f == nil || f.State == "" {
			t.Errorf("no state: %v; target %q", err, o.annotation(keyTarget))
		}
	})
}

// TestDelegate_CancelWhileTakingBackStillTakesBack: what was reached is asked for no more.
func TestDelegate_CancelWhileTakingBackStillTakesBack(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), &played.Habits{Forgetful: true}, func(o *owned) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var healed time.Time
		patches := 0
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Mutation > 0 {
				if patches++; patches == 2 {
					healed = time.Now().Add(3 * time.Second)
					time.AfterFunc(time.Second, cancel)
				}

				if patches >= 2 && time.Now().Before(healed) {
					return cluster.ErrUnreachable
				}
			}

			return next()
		})

		w := o.beside("1")
		_ = o.delegate(ctx, w, to(toLifecycle))
		o.wantFree()
	})
}

// TestDelegate_NothingIsAskedInTheMiddleOfATurn: it would not know of it.
func TestDelegate_NothingIsAskedInTheMiddleOfATurn(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		o.dieBehind("Install", o.Worker("run-0"), to(toLifecycle))
		time.Sleep(time.Minute)

		err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
		o.wantFailure(err, say.ErrBlocked, "left the node in the middle of its upgrade", `mode = "direct"`)
	})
}

// TestDelegate_OperatorDoneBeforeTheLeaseIsNotAskedAgain: it came to its end while the lease was waited for.
func TestDelegate_OperatorDoneBeforeTheLeaseIsNotAskedAgain(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		o.annotate(keyTarget, toLifecycle)
		for o.annotation(keyPrefix+"talos-progress") != "4/5" {
			pass(time.Second)
		}

		w := o.beside("2")
		var once sync.Once
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteLease" {
				once.Do(func() {
					pass(20 * time.Second)
					for o.annotation(keyStatus) != "completed" && ctx.Err() == nil {
						pass(time.Second)
					}
				})
			}

			return next(ctx)
		})

		asks := 0
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			before := o.annotation(keyTarget)
			err := next()
			if op.By == "client" && before == "" && o.annotation(keyTarget) != "" {
				asks++
			}

			return err
		})

		_ = o.delegate(context.Background(), w, to(toLifecycle))
		if asks > 0 {
			t.Errorf("asked %d times for what runs already", asks)
		}

		o.wantFree()
	})
}

// TestDelegate_RequestThatWasTakenBackIsNotRepeatedUnchecked: somebody takes back the request of a dead run while the lease
// is waited for, and the next observation fails.
func TestDelegate_RequestThatWasTakenBackIsNotRepeatedUnchecked(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), nil, func(o *owned) {
		o.annotate(keyTarget, toLifecycle)

		var takenBack, failed atomic.Bool

		w := o.beside("1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			switch {
			case call.Method == "WriteLease" && !takenBack.Swap(true):
				o.annotate(keyTarget, "")
			case call.Method == "Nodes" && takenBack.Load() && !failed.Swap(true):
				return cluster.ErrUnreachable
			}

			return next(ctx)
		})

		request := to(toLifecycle)
		request.Gates = []cluster.Gate{&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return false, "Volume a/b is degraded", nil }}}

		o.wantFailure(o.delegate(context.Background(), w, request), say.ErrGate, "Volume a/b is degraded")

		if asked := o.annotation(keyTarget); asked != "" {
			t.Errorf("the operator is asked for %s although the gate is closed", asked)
		}
	})
}

// TestDelegate_OperatorIsNeverAskedToGoBack: somebody went further while the lease was waited for.
func TestDelegate_OperatorIsNeverAskedToGoBack(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		o.annotate(keyTarget, toLifecycle)
		for o.annotation(keyPrefix+"talos-progress") != "4/5" {
			pass(time.Second)
		}

		w := o.beside("2")
		var once sync.Once
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteLease" {
				once.Do(func() {
					for o.annotation(keyStatus) != "completed" && ctx.Err() == nil {
						pass(time.Second)
					}

					o.annotate(keyTarget, "1.13.6")
					for o.annotation(keyPrefix+"talos-current") != "1.13.6" && ctx.Err() == nil {
						pass(time.Second)
					}
				})
			}

			return next(ctx)
		})

		var asked []string
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			before := o.annotation(keyTarget)
			err := next()
			if now := o.annotation(keyTarget); op.By == "client" && now != before {
				asked = append(asked, now)
			}

			return err
		})

		_ = o.delegate(context.Background(), w, to(toLifecycle))
		for _, a := range asked {
			if a == toLifecycle {
				t.Errorf("the operator was asked to go back from 1.13.6 to %s", a)
			}
		}
	})
}
