// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// brake suspends the upgrades as a person does.
func (r *rig) brake() {
	r.Suspend(&cluster.Suspension{Reason: "storage is degraded", By: "kubectl-annotate", Since: time.Now()})
}

// braked suspends the upgrades of a cluster that no run ever had the lease of.
func (r *rig) braked() {
	r.T.Helper()

	if err := r.HoldLease(""); err != nil {
		r.T.Fatal(err)
	}

	r.brake()
}

// stopping is the request of somebody who does not wait while upgrades are suspended.
func stopping(request engine.Request) engine.Request {
	request.Policy.OnSuspend = cluster.StopOnSuspend

	return request
}

// reaction is how long a look at the cluster may take before it is acted on: whoever
// suspends the upgrades in it is too late for one node.
const reaction = 10 * time.Second

// disturbances are the nodes that were cordoned, and the components that were configured,
// after the moment.
func (r *rig) disturbances(after time.Time) []string {
	var disturbed []string

	for _, event := range r.Judge.Of(history.KindCordon, history.KindConfig) {
		if event.Kind == history.KindCordon && event.Detail["unschedulable"] != "true" {
			continue
		}

		if event.Sim > after.Sub(epoch).Seconds() {
			disturbed = append(disturbed, fmt.Sprintf("%s %s %.0f s", event.Node, event.Kind, event.Sim))
		}
	}

	return disturbed
}

// epoch is when time begins in a bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestSuspension_NothingNewBegins: whenever somebody suspends them, what is
// on its way is finished, nothing else begins, and the run goes on when they are resumed.
func TestSuspension_NothingNewBegins(t *testing.T) {
	t.Parallel()

	requests := map[string]engine.Request{
		"Talos": to(toLifecycle), "in pairs": sharing(t, toLifecycle, "2"), "Kubernetes": kube(toKubernetes),
	}
	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 3, Talos: fromLifecycle, Kubernetes: fromKubernetes},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}

	for name, request := range requests {
		for moment := 5 * time.Second; moment < 10*time.Minute; moment += 47 * time.Second {
			t.Run(fmt.Sprintf("%s, %s", name, moment), func(t *testing.T) {
				t.Parallel()

				inCluster(t, given, func(r *rig) {
					w, ended := r.Worker("run-1"), make(chan error, 1)

					go func() { ended <- w.Apply(context.Background(), request) }()

					time.Sleep(moment)

					over := len(ended) > 0

					r.brake()
					time.Sleep(time.Hour)

					if !over && len(w.Texts(cluster.EventSuspended)) == 0 && len(ended) == 0 {
						t.Error("nobody was told that the upgrades are suspended")
					}

					if disturbed := r.disturbances(time.Now().Add(reaction - time.Hour)); len(disturbed) > 0 {
						t.Errorf("begun while suspended: %q", disturbed)
					}

					for node, state := range r.Judge.Verdict().Nodes {
						if state.Cordoned || state.Installs != state.Reboots {
							t.Errorf("%s was not finished: %+v", node, state)
						}
					}

					r.Suspend(nil)

					if err := <-ended; err != nil {
						t.Errorf("after the suspension: %v", err)
					}

					if told := len(w.Texts(cluster.EventSuspended)); told > 1 || told != len(w.Texts(cluster.EventResumed)) {
						t.Errorf("told of %d suspensions, and that they ended %d times", told, len(w.Texts(cluster.EventResumed)))
					}

					r.Sound()
					r.Tidy()
				})
			})
		}
	}
}

// TestSuspension_HoldsAComponentWhoseConfigurationDidNotReachItsNode: nothing of it has begun.
func TestSuspension_HoldsAComponentWhoseConfigurationDidNotReachItsNode(t *testing.T) {
	t.Parallel()

	for name, lost := range map[string]error{"the node is away": cluster.ErrUnreachable, "the node is busy": cluster.ErrBusy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Workers: 2}}, func(r *rig) {
				w := r.Worker("run-1")
				calls, braked := 0, time.Time{}

				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "Configure" || call.Node != "worker-1" {
						return next(ctx)
					}

					if calls++; calls == 1 {
						braked = time.Now()

						r.brake()
						time.AfterFunc(time.Hour, func() { r.Suspend(nil) })

						return lost
					}

					if time.Since(braked) < time.Hour {
						t.Errorf("configured %s after the upgrades were suspended", time.Since(braked))
					}

					return next(ctx)
				})

				r.Must(w, kube(toKubernetes))

				if calls != 2 {
					t.Errorf("%d calls, want 2", calls)
				}
			})
		})
	}
}

func TestSuspension_StopsARunThatDoesNotWait(t *testing.T) {
	t.Parallel()

	for _, moment := range []time.Duration{40 * time.Second, 2 * time.Minute, 5 * time.Minute} {
		t.Run(moment.String(), func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)

				go func() { ended <- r.Worker("run-1").Apply(context.Background(), stopping(to(toLifecycle))) }()

				time.Sleep(moment)
				r.brake()

				failed := failure(t, <-ended, say.ErrSuspended, "")
				for _, says := range []string{"kubectl-annotate", "storage is degraded", "upgrade.vitistack.io/suspend-"} {
					if !strings.Contains(failed.Detail(), says) {
						t.Errorf("%q is not said: %s", says, failed.Detail())
					}
				}

				for node, state := range r.Judge.Verdict().Nodes {
					if state.Cordoned || state.Installs != state.Reboots {
						t.Errorf("%s was left in the middle: %+v", node, state)
					}
				}

				if holder := r.Lease().Holder; holder != "" || r.Lease().Suspended == nil {
					t.Errorf("the lease is held by %q, suspended %v", holder, r.Lease().Suspended)
				}

				r.Suspend(nil)
				r.Must(r.Worker("run-2"), stopping(to(toLifecycle)))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestSuspension_ClusterIsNotTouched: a run that finds the upgrades suspended takes no
// snapshot, pulls nothing and moves nothing.
func TestSuspension_ClusterIsNotTouched(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		request engine.Request
		cause   error
	}{
		"stop":                  {stopping(saving(ports.NewVault())), say.ErrSuspended},
		"the time is used up":   {bounded(saving(ports.NewVault()), time.Hour), say.ErrDeadline},
		"the window closes":     {within(0, time.Hour), say.ErrWindow},
		"nothing is to be done": {to(fromLifecycle), nil},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				r.braked()

				request := given.request
				if request.Window != nil {
					request = within(0, time.Hour)
				}

				w := r.Worker("run-1")
				err := w.Apply(context.Background(), request)

				if given.cause == nil {
					if err != nil {
						t.Errorf("a cluster at its target: %v", err)
					}

					return
				}

				failed := failure(t, err, given.cause, "")
				if !errors.Is(err, say.ErrNotBegun) || !strings.Contains(failed.Detail(), "Nothing was touched.") || !strings.Contains(failed.Detail(), "storage is degraded") {
					t.Errorf("got %v", failed.Detail())
				}

				if touched := r.Judge.Of(history.KindCordon, history.KindPull, history.KindInstall, history.KindSnapshot); len(touched) > 0 {
					t.Errorf("touched: %+v", touched)
				}

				if !slices.ContainsFunc(w.Texts(cluster.EventSuspended), func(text string) bool { return strings.Contains(text, "storage is degraded") }) {
					t.Errorf("told of %q", w.Texts(cluster.EventSuspended))
				}
			})
		})
	}
}

func bounded(request engine.Request, most time.Duration) engine.Request {
	request.Deadline = most

	return request
}

// TestSuspension_LeavesNoNodeInTheMiddle: a node that a killed run left in the middle of its
// upgrade is finished, and one that it has only cordoned is put back.
func TestSuspension_LeavesNoNodeInTheMiddle(t *testing.T) {
	t.Parallel()

	for _, method := range []string{"Cordon", "Install", "Reboot", "Uncordon"} {
		t.Run(method, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				r.killedAt("run-1", method, 1, to(toLifecycle))
				r.brake()

				ended := make(chan error, 1)

				go func() { ended <- r.Worker("run-2").Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(2 * time.Hour)

				moved := 0

				for node, state := range r.Judge.Verdict().Nodes {
					if state.Cordoned || state.Installs > state.Reboots {
						t.Errorf("%s is left in the middle: %+v", node, state)
					}

					moved += state.Reboots
				}

				if moved > 1 {
					t.Errorf("%d nodes were moved while upgrades were suspended", moved)
				}

				r.Suspend(nil)

				if err := <-ended; err != nil {
					t.Error(err)
				}

				r.At(toLifecycle)
			})
		})
	}
}

// TestSuspension_HoldsWhatWaitsForItsGate: an upgrade that has begun and not touched its node
// yet is as new as one that has not begun.
func TestSuspension_HoldsWhatWaitsForItsGate(t *testing.T) {
	t.Parallel()

	for name, request := range map[string]engine.Request{"a node": to(toLifecycle), "a component": kube(toKubernetes)} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Talos: fromLifecycle, Kubernetes: fromKubernetes}}, func(r *rig) {
				begun := time.Now()
				request.Gates = []cluster.Gate{&userGate{timeout: time.Hour, answer: func(node string) (bool, string, error) {
					return node == "" || time.Since(begun) > 20*time.Minute, "not yet", nil
				}}}

				ended := make(chan error, 1)

				go func() { ended <- r.Worker("run-1").Apply(context.Background(), request) }()

				time.Sleep(10 * time.Minute)
				r.brake()
				time.Sleep(time.Hour)

				if disturbed := r.disturbances(begun); len(disturbed) > 0 {
					t.Errorf("begun while suspended: %q", disturbed)
				}

				r.Suspend(nil)

				if err := <-ended; err != nil {
					t.Error(err)
				}

				if len(r.disturbances(begun)) == 0 {
					t.Error("nothing was upgraded")
				}

				r.Sound()
				r.Tidy()
			})
		})
	}
}

// TestSuspension_OperatorIsAskedForNothing: with mode = "delegate" the operator is asked when
// the upgrades are resumed, and not at all where the run is cancelled before that.
func TestSuspension_OperatorIsAskedForNothing(t *testing.T) {
	t.Parallel()

	for name, cancelled := range map[string]bool{"resumed": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
				o.braked()

				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				ended := make(chan error, 1)

				go func() { ended <- o.delegate(ctx, o.beside("1"), to(toLifecycle)) }()

				pass(time.Hour)

				if asked := o.annotation(keyTarget); asked != "" {
					t.Errorf("the operator is asked for %s while upgrades are suspended", asked)
				}

				if cancelled {
					cancel()
					failed := failure(t, <-ended, context.Canceled, "")

					if !strings.Contains(failed.Detail(), "while upgrades of this cluster were suspended") || !strings.Contains(failed.Detail(), "asked for nothing") {
						t.Errorf("got %s", failed.Detail())
					}

					o.AllRun(fromLifecycle)

					return
				}

				o.Suspend(nil)

				if err := <-ended; err != nil {
					t.Error(err)
				}

				o.Sound()
				o.AllRun(toLifecycle)
			})
		})
	}
}

// TestSuspension_ClusterIsCheckedAgainBeforeTheOperatorIsAsked: while the upgrades were suspended, a member of etcd has run
// out of space. The API server does not answer at first.
func TestSuspension_ClusterIsCheckedAgainBeforeTheOperatorIsAsked(t *testing.T) {
	t.Parallel()

	besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
		o.braked()

		var away atomic.Bool

		w, ended := o.beside("1"), make(chan error, 1)
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Nodes" && away.Load() {
				return cluster.ErrUnreachable
			}

			return next(ctx)
		})

		go func() { ended <- o.delegate(context.Background(), w, to(toLifecycle)) }()

		pass(time.Hour)

		if err := o.World().SetEtcdAlarm("cp-0", "NOSPACE"); err != nil {
			t.Fatal(err)
		}

		away.Store(true)
		o.Suspend(nil)
		pass(time.Minute)
		away.Store(false)

		if failed := failure(t, <-ended, say.ErrBlocked, "cp-0"); !strings.Contains(failed.Detail(), "NOSPACE") {
			t.Errorf("got %s", failed.Detail())
		}

		if asked := o.annotation(keyTarget); asked != "" {
			t.Errorf("the operator is asked for %s", asked)
		}
	})
}

// TestSuspension_UnknownCountsAsSuspended: what cannot be read counts
// as suspended.
func TestSuspension_UnknownCountsAsSuspended(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		begun := time.Now()
		request := gated(&userGate{timeout: time.Hour, answer: func(node string) (bool, string, error) {
			return node == "" || time.Since(begun) > 20*time.Minute, "not yet", nil
		}})

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Lease" && time.Since(begun) > 10*time.Minute && time.Since(begun) < time.Hour {
				return fmt.Errorf("unable to read the lease: %w", cluster.ErrUnreachable)
			}

			return next(ctx)
		})

		failed := failure(t, w.Apply(context.Background(), request), say.ErrGuard, "worker-0")
		if !strings.Contains(failed.Detail(), "unable to find out whether upgrades of this cluster are suspended") {
			t.Errorf("got %s", failed.Detail())
		}

		if disturbed := r.disturbances(begun); len(disturbed) > 0 {
			t.Errorf("begun all the same: %q", disturbed)
		}
	})
}

// TestSuspension_CostsNothingButItsLease: however many nodes there are, nobody asks them
// while upgrades are suspended.
func TestSuspension_CostsNothingButItsLease(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.braked()

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		w, ended := r.Worker("run-1"), make(chan error, 1)
		asked := map[string]int{}

		var mutex sync.Mutex

		go func() { ended <- w.Apply(ctx, to(toLifecycle)) }()

		time.Sleep(time.Minute)
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			mutex.Lock()
			defer mutex.Unlock()

			asked[call.Method]++

			return next(ctx)
		})
		time.Sleep(time.Hour)
		w.Client.Intercept(nil)
		cancel()
		_ = failure(t, <-ended, context.Canceled, "")

		if looks, renewals := asked["Lease"], asked["WriteLease"]; len(asked) != 2 || looks > 725 || renewals > 365 {
			t.Errorf("asked in an hour: %v", asked)
		}
	})
}

// TestSuspension_WrittenBesideARun: whoever holds the lease keeps it, renews it and finds
// the suspension; what stands already stays, and is told.
func TestSuspension_WrittenBesideARun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		ended := make(chan error, 1)
		run := r.Worker("run-1")

		go func() { ended <- run.Apply(context.Background(), to(toLifecycle)) }()

		time.Sleep(time.Minute)

		brake := r.Worker("ola").Engine

		standing, err := brake.Suspend(context.Background(), "ola: storage is degraded")
		if err != nil || standing != nil {
			t.Fatalf("suspended, standing: %v, %v", standing, err)
		}

		suspended := time.Now()

		time.Sleep(20 * time.Minute)

		if holder := r.Lease().Holder; holder != "run-1 (talosupgrade_cluster.test)" {
			t.Errorf("the lease is held by %q", holder)
		}

		if begun := r.disturbances(suspended.Add(reaction)); len(begun) > 0 {
			t.Errorf("began although upgrades were suspended: %q", begun)
		}

		if standing, err := brake.Suspend(context.Background(), "kari: for another reason"); err != nil || standing == nil || standing.Reason != "ola: storage is degraded" {
			t.Errorf("a second suspension finds %v, %v", standing, err)
		}

		if lifted, err := brake.Resume(context.Background()); err != nil || lifted == nil || lifted.Reason != "ola: storage is degraded" {
			t.Errorf("resumed: %v, %v", lifted, err)
		}

		if lifted, err := brake.Resume(context.Background()); err != nil || lifted != nil {
			t.Errorf("resumed once more: %v, %v", lifted, err)
		}

		if err := <-ended; err != nil {
			t.Errorf("the run ended with %v", err)
		}

		r.At(toLifecycle)
		r.Once()
		r.Sound()
	})
}

// TestSuspension_BeforeTheFirstRunIsHonoured: there is no lease to annotate yet.
func TestSuspension_BeforeTheFirstRunIsHonoured(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		brake := r.Worker("ola").Engine

		if lifted, err := brake.Resume(context.Background()); err != nil || lifted != nil || r.Lease().ResourceVersion != "" {
			t.Errorf("resumed: %v, %v, with the lease %+v", lifted, err, r.Lease())
		}

		if _, err := brake.Suspend(context.Background(), "ola: not before Monday"); err != nil {
			t.Fatal(err)
		}

		err := r.Worker("run-1").Apply(context.Background(), stopping(to(toLifecycle)))
		failed := failure(t, err, say.ErrSuspended, "")

		if !strings.Contains(failed.Seen, "ola: not before Monday") {
			t.Errorf("the run says %q", failed.Seen)
		}

		if _, err := brake.Resume(context.Background()); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
	})
}

// TestSuspension_OutlastsLostRepliesAndConflicts: it is written once, and what it finds is
// what others wrote.
func TestSuspension_OutlastsLostRepliesAndConflicts(t *testing.T) {
	t.Parallel()

	for name, answer := range map[string]error{"a lost reply": cluster.ErrOutcomeUnknown, "a conflict": cluster.ErrConflict, "an API server that is away": cluster.ErrUnreachable} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				troubled := r.Worker("ola")
				times := 0

				troubled.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "WriteSuspension" || times == 2 {
						return next(ctx)
					}

					times++

					if errors.Is(answer, cluster.ErrOutcomeUnknown) {
						_ = next(ctx)
					}

					return answer
				})

				standing, err := troubled.Engine.Suspend(context.Background(), "ola: storage is degraded")
				if err != nil || standing != nil || r.Lease().Suspended == nil {
					t.Errorf("suspended: %v, %v, with the lease %+v", standing, err, r.Lease())
				}

				lifted, err := troubled.Engine.Resume(context.Background())
				if err != nil || lifted == nil || r.Lease().Suspended != nil {
					t.Errorf("resumed: %v, %v, with the lease %+v", lifted, err, r.Lease())
				}
			})
		})
	}
}

// TestSuspension_ThatMayNotBeWrittenSaysWhatToAllow.
func TestSuspension_ThatMayNotBeWrittenSaysWhatToAllow(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		denied := r.Worker("ola")
		denied.Client.Intercept(withCall("WriteSuspension", cluster.ErrDenied))

		refused := func(err error, summary string) {
			failed := failure(t, err, cluster.ErrDenied, "")
			if !strings.Contains(failed.Remedy, "patch leases in kube-system") || failed.Summary != summary {
				t.Errorf("it says %v", failed)
			}

			if strings.Contains(failed.Remedy, "terraform apply") {
				t.Errorf("it advises to begin an upgrade: %s", failed.Remedy)
			}

			wording.Note(t, wording.Entry{Kind: wording.KindFailure, Summary: failed.Summary, Detail: failed.Detail()})
		}

		_, err := denied.Engine.Suspend(context.Background(), "ola: storage is degraded")
		refused(err, "Unable to suspend the upgrades of the cluster")

		if _, err := r.Worker("kari").Engine.Suspend(context.Background(), "kari: not before Monday"); err != nil {
			t.Fatal(err)
		}

		_, err = denied.Engine.Resume(context.Background())
		refused(err, "Unable to let the upgrades of the cluster go on")
	})
}

// renumbered is the Kubernetes of another cluster, whose nodes have other names and addresses.
type renumbered struct{ *ports.Client }

// Nodes implements [cluster.Kubernetes].
func (r renumbered) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := r.Client.Nodes(ctx)
	for index := range nodes {
		nodes[index].Name, nodes[index].Addresses = "edge-"+nodes[index].Name, []string{fmt.Sprintf("192.0.2.%d", index+1)}
	}

	return nodes, err
}

// TestSuspension_OfAnotherClusterIsRefused: a kubeconfig in the provider block belongs to one cluster, and an action may
// name the context of another one. If it is unknown whose Kubernetes it is, nobody is kept from suspending.
func TestSuspension_OfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		reached func(client *ports.Client) cluster.Talos
		refused bool
	}{
		"the kubeconfig of another cluster": {func(client *ports.Client) cluster.Talos { return client }, true},
		"a kubeconfig that may list no nodes": {func(client *ports.Client) cluster.Talos {
			client.Intercept(withCall("Nodes", cluster.ErrDenied))

			return client
		}, false},
		"Talos does not answer": {func(client *ports.Client) cluster.Talos {
			client.Intercept(withCall("Members", cluster.ErrUnreachable))

			return client
		}, false},
		"discovery is disabled": {func(client *ports.Client) cluster.Talos { return &undiscovered{client} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				client := r.Client("ola")
				astray := r.WorkerOver(client, test.reached(client), renumbered{client}).Engine

				refused := func(err error, summary string) {
					failed := failure(t, err, say.ErrWrongCluster, "")
					if failed.Summary != summary || !strings.Contains(failed.Seen, "edge-worker-0") {
						t.Errorf("it says %v", failed)
					}

					wording.Note(t, wording.Entry{Kind: wording.KindFailure, Summary: failed.Summary, Detail: failed.Detail()})
				}

				_, err := astray.Suspend(context.Background(), "ola: storage is degraded")
				if suspended := r.Lease().Suspended != nil; suspended == test.refused || suspended != (err == nil) {
					t.Errorf("it ended with %v and the lease %+v", err, r.Lease())
				}

				if !test.refused {
					return
				}

				refused(err, "Unable to suspend the upgrades of the cluster")

				r.braked()

				_, err = astray.Resume(context.Background())
				refused(err, "Unable to let the upgrades of the cluster go on")

				if r.Lease().Suspended == nil {
					t.Error("the suspension of the other cluster is gone")
				}
			})
		})
	}
}

// TestSuspension_HoldsWhatWaitsForItsTurn: upgrades take turns in looking at the cluster
// before a cordon, and what they asked before a long wait says nothing about now.
func TestSuspension_HoldsWhatWaitsForItsTurn(t *testing.T) {
	t.Parallel()

	const (
		workers = 60
		slow    = 8 * time.Second
	)

	given := setup{
		Options: model.Options{ControlPlanes: 1, Workers: workers, Talos: fromLifecycle, Seed: 5},
		Judging: []checker.Option{checker.MaxUnavailable(workers / 2)},
	}

	inCluster(t, given, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(delayed("NodesNow", slow))

		ended := make(chan error, 1)

		go func() { ended <- w.Apply(context.Background(), sharing(t, toLifecycle, "50%")) }()

		for len(r.Judge.Of(history.KindCordon)) == 0 && len(ended) == 0 {
			time.Sleep(time.Second)
		}

		suspended := time.Now()

		r.brake()
		time.Sleep(time.Hour)

		// The look of who had its turn took its time.
		if late := r.disturbances(suspended.Add(reaction + slow)); len(late) > 0 {
			t.Errorf("begun while suspended: %q", late)
		}

		if begun := len(r.Judge.Of(history.KindCordon)); begun >= workers/2 {
			t.Errorf("%d cordons, want turns that were waited for", begun)
		}

		r.Suspend(nil)

		if err := <-ended; err != nil {
			t.Errorf("after the suspension: %v", err)
		}
	})
}

// TestSuspension_NodeThatAnEarlierRunCordonedIsPutBack: nothing else was done to it, and it may have to wait for
// long.
func TestSuspension_NodeThatAnEarlierRunCordonedIsPutBack(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))

		w := r.Worker("run-2")
		r.during(w, "Pull", "worker-0", r.brake)

		if err := w.Apply(context.Background(), stopping(to(toLifecycle))); !errors.Is(err, say.ErrSuspended) {
			t.Errorf("got %v, want that the upgrades are suspended", err)
		}

		for name, node := range r.Judge.Verdict().Nodes {
			if node.Cordoned {
				t.Errorf("%s is left cordoned", name)
			}
		}
	})
}

// TestSuspension_CordonOfADeadRunDoesNotOutlastIt: its node is put back while upgrades are suspended, and no gate is waited
// for.
func TestSuspension_CordonOfADeadRunDoesNotOutlastIt(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))
		r.brake()

		var open atomic.Bool

		request := to(toLifecycle)
		request.Gates = []cluster.Gate{&userGate{timeout: 10 * time.Minute, answer: func(string) (bool, string, error) { return open.Load(), "degraded", nil }}}

		ended := make(chan error, 1)

		go func() { ended <- r.Worker("run-2").Apply(context.Background(), request) }()

		time.Sleep(time.Hour)

		for name, node := range r.Judge.Verdict().Nodes {
			if node.Cordoned {
				t.Errorf("%s is left cordoned", name)
			}
		}

		open.Store(true)
		r.Suspend(nil)

		if err := <-ended; err != nil {
			t.Error(err)
		}

		r.At(toLifecycle)
	})
}

// TestFailure_NodeThatAnEarlierRunCordonedIsPutBack: an upgrade that fails before it has cordoned its node takes back the
// cordon of a dead run, as it says.
func TestFailure_NodeThatAnEarlierRunCordonedIsPutBack(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))

		w := r.Worker("run-2")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Pull" && call.Node == "worker-0" {
				return cluster.ErrDenied
			}

			return next(ctx)
		})

		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), cluster.ErrDenied, "worker-0")
		if !strings.Contains(failed.State, "not cordoned by this run") {
			t.Errorf("it says %q", failed.State)
		}

		for name, node := range r.Judge.Verdict().Nodes {
			if node.Cordoned {
				t.Errorf("%s is left cordoned", name)
			}
		}
	})
}
