// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// leaves fails the test unless the failure says exactly how the cluster is left.
func leaves(t *testing.T, failed *say.Failure, want string) {
	t.Helper()

	if failed.State != want {
		t.Errorf("the cluster is said to be left like this: %s\nwant: %s", failed.State, want)
	}
}

const worker0Unfinished = "worker-0 is left in the middle of its upgrade and is recorded in the journal; the next run begins with it. " +
	"No other node is being upgraded"

func TestFailure_NamesNodesThatAnotherTurnLeftUnfinished(t *testing.T) {
	t.Parallel()

	dead := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}

	t.Run("deadline", func(t *testing.T) {
		inCluster(t, pairs(163, dead), func(r *rig) {
			request := sharing(t, toLifecycle, "2")
			request.Deadline = 3 * time.Minute

			failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrDeadline, "worker-0")
			leaves(t, failed, worker0Unfinished+"; all others are in service.")
		})
	})

	t.Run("obstacle", func(t *testing.T) {
		inCluster(t, pairs(167), func(r *rig) {
			w := r.Worker("run-1")
			r.during(w, "Install", "worker-1", func() { r.World().SetFaults(append(silent("worker-4"), dead)) })

			failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), say.ErrGuard, "worker-4")
			leaves(t, failed, "The node runs as before and is not cordoned by this run. "+worker0Unfinished+"; all others are in service.")
		})
	})

	t.Run("another turn", func(t *testing.T) {
		broken := model.Fault{Node: "worker-1", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}

		inCluster(t, pairs(53, dead, broken), func(r *rig) {
			failed := failure(t, r.Worker("run-1").Apply(context.Background(), sharing(t, toLifecycle, "2")), say.ErrInstaller, "worker-1")
			if !strings.HasSuffix(failed.State, worker0Unfinished+"; all others are in service.") {
				t.Errorf("it does not say how worker-0 is left: %v", failed)
			}
		})
	})
}

func TestFailure_NamesNodesThatAreNotInService(t *testing.T) {
	t.Parallel()

	inCluster(t, pairs(51, model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}), func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Install", "worker-0", func() {
			if err := r.CordonAsPerson("worker-4", true); err != nil {
				t.Error(err)
			}
		})

		failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), say.ErrInstaller, "worker-0")
		if want := "No other node is being upgraded. Not in service: worker-4 (cordoned)."; !strings.HasSuffix(failed.State, want) {
			t.Errorf("the cluster is said to be left like this: %s", failed.State)
		}
	})
}

// TestFailure_FallbackIsSaidInServiceOnlyWhenItIs: the kubelet does not come up with the old
// system either.
func TestFailure_FallbackIsSaidInServiceOnlyWhenItIs(t *testing.T) {
	t.Parallel()

	inCluster(t, pairs(53, model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}), func(r *rig) {
		var once sync.Once

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			// The first boot is the one that fails.
			returned := len(r.Judge.Of(history.KindBoot)) > 1 && r.State("worker-0").Ready

			if call.Method == "Node" && call.Node == "worker-0" && returned {
				once.Do(func() {
					r.World().SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepKubelet, Effect: model.EffectNotReady}})
				})
			}

			return next(ctx)
		})

		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrFallback, "worker-0")
		leaves(t, failed, "The node runs its old system again, but did not come back into service. No other node is being upgraded; all others are in service.")
	})
}

// TestFailure_LostLeaseSpeaksForItsOwnRunOnly: what nodes are doing is no longer ours to
// say.
func TestFailure_LostLeaseSpeaksForItsOwnRunOnly(t *testing.T) {
	t.Parallel()

	inCluster(t, pairs(59), func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Reboot", "worker-1", func() {
			if err := r.HoldLease("intruder"); err != nil {
				t.Error(err)
			}
		})

		var failed *say.Failure
		if err := w.Apply(context.Background(), sharing(t, toLifecycle, "2")); !errors.As(err, &failed) || !errors.Is(err, say.ErrLeaseLost) {
			t.Fatalf("got %v, want the loss of the lease", err)
		}

		if !strings.HasSuffix(failed.State, "No other node is being upgraded by this run. That is how it was when the lease was lost; this run has not looked since.") || strings.Contains(failed.State, "in service") {
			t.Errorf("the cluster is said to be left like this: %s", failed.State)
		}
	})
}

const installer = "ghcr.io/siderolabs/installer"

// push replaces what the registries have under the tag of a version, and returns its
// digest.
func (r *rig) push(talos, broken string) string {
	r.T.Helper()

	digest, err := r.World().PushImage(installer+":v"+talos, broken)
	if err != nil {
		r.T.Fatal(err)
	}

	return digest
}

// pulledEverywhere has all machines pull what is asked for, so that no turn begins with that.
func (r *rig) pulledEverywhere(request engine.Request) engine.Request {
	r.T.Helper()

	for _, node := range r.World().Nodes() {
		if _, err := r.World().PullInto(context.Background(), node.Name, installer+":"+request.Target.Talos.Tag(), model.NamespaceOwn, nil); err != nil {
			r.T.Fatal(err)
		}
	}

	return request
}

// TestTag_PushedAgainIsExplainedAndGotOver: a node that failed is rebooted and downloads the
// tag anew; one that pulled it and was not rebooted does not. Who reads the failure finds
// both ways out in it.
func TestTag_PushedAgainIsExplainedAndGotOver(t *testing.T) {
	t.Parallel()

	const tagged = installer + ":v" + toLifecycle

	for name, mend := range map[string]func(r *rig, digest string) engine.Request{
		"removed": func(r *rig, _ string) engine.Request {
			for _, node := range r.World().Nodes() {
				if err := r.World().RemoveImage(context.Background(), node.Name, tagged, model.NamespaceOwn); err != nil && !errors.Is(err, model.ErrImageNotFound) {
					r.T.Error(err)
				}
			}

			return to(toLifecycle)
		},
		"by its digest": func(_ *rig, digest string) engine.Request {
			request := to(toLifecycle)
			request.Target.InstallerImage = installer + "@" + digest

			return request
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: fromLifecycle}}, func(r *rig) {
				broken := r.push(toLifecycle, "unexpected EOF in initramfs")
				_ = r.pulledEverywhere(to(toLifecycle))

				var mended string

				for number, run := range []string{"run-1", "run-2"} {
					node := fmt.Sprintf("worker-%d", number)
					failed := failure(t, r.Worker(run).Apply(context.Background(), to(toLifecycle)), say.ErrInstaller, node)

					for _, part := range []string{
						"The node has " + tagged + " as " + broken,
						"talosctl -n " + r.State(node).Address + " image remove --namespace inmem " + tagged,
						`installer_image = "` + installer + `@sha256:<digest>"`,
					} {
						if !strings.Contains(failed.Remedy, part) {
							t.Errorf("%s: the remedy lacks %q: %s", run, part, failed.Remedy)
						}
					}

					mended = r.push(toLifecycle, "")
				}

				r.Must(r.Worker("run-3"), mend(r, mended))
				r.At(toLifecycle)
			})
		})
	}
}

// TestTag_NotBlamedWhereAnImageCannotBePushedOver: under a digest there is one image for
// ever, and a node below Talos 1.13 downloads a tag for each upgrade.
func TestTag_NotBlamedWhereAnImageCannotBePushedOver(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		from, to string
		pinned   bool
	}{
		"by its digest": {fromLifecycle, toLifecycle, true},
		"legacy":        {fromLegacy, toLegacy, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: test.from}}, func(r *rig) {
				request := to(test.to)
				if digest := r.push(test.to, "unexpected EOF in initramfs"); test.pinned {
					request.Target.InstallerImage = installer + "@" + digest
				}

				failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrInstaller, "worker-0")
				if strings.Contains(failed.Remedy, "image remove") {
					t.Errorf("the remedy is %q", failed.Remedy)
				}

				again := to(test.to)
				if digest := r.push(test.to, ""); test.pinned {
					again.Target.InstallerImage = installer + "@" + digest
				}

				r.Must(r.Worker("run-2"), again)
				r.At(test.to)
			})
		})
	}
}

// TestTag_OneDigestIsRefusedForTwoSteps: it is of one version.
func TestTag_OneDigestIsRefusedForTwoSteps(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Talos: "1.11.5"}}, func(r *rig) {
		request := to("1.13.4")
		request.Policy.AllowIntermediate = true
		request.Target.InstallerImage = installer + "@" + r.push("1.13.4", "")

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrBlocked, "")
		if said := failed.Error(); strings.Count(said, "a node needs another one before it, of Talos 1.12.") != 1 {
			t.Error(said)
		}
	})
}

// TestTag_ImageThatDidNotComeUpIsDownloadedAnew: whoever allows it to be tried again wants to
// know what that would be.
func TestTag_ImageThatDidNotComeUpIsDownloadedAnew(t *testing.T) {
	t.Parallel()

	fault := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}

	inCluster(t, setup{Options: model.Options{Talos: fromLifecycle, Faults: []model.Fault{fault}}}, func(r *rig) {
		failed := failure(t, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), say.ErrFallback, "worker-0")

		if want := "Its next try downloads " + installer + ":v" + toLifecycle + " anew"; !strings.Contains(failed.Remedy, want) {
			t.Errorf("the remedy lacks %q: %s", want, failed.Remedy)
		}
	})
}

// withCalls has all calls of methods answered with an error.
func withCalls(answer error, methods ...string) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		for _, method := range methods {
			if call.Method == method {
				return answer
			}
		}

		return next(ctx)
	}
}

// TestFailure_RunThatCannotBeginSaysWhatToDo, and touches nothing.
func TestFailure_RunThatCannotBeginSaysWhatToDo(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		cluster string
		wrong   ports.Interceptor
		says    []string
	}{
		"nothing answers":         {"", withCalls(cluster.ErrUnreachable, "Members", "Nodes"), []string{"Unable to observe the cluster", "Check that at least one endpoint"}},
		"credentials are too old": {"", withCalls(cluster.ErrCredentials, "Members", "Nodes"), []string{"Unable to observe the cluster", "Waiting does not help"}},
		"a role is missing":       {"", withCalls(cluster.ErrDenied, "Members", "Nodes"), []string{"Unable to observe the cluster", "Use credentials that are allowed to do this"}},
		"nobody says who it is":   {"cluster", withCalls(cluster.ErrUnreachable, "ClusterID", "UID"), []string{"Unable to tell which cluster this is", "did not say who it is"}},
		"the lease is unreadable": {"", withCalls(cluster.ErrDenied, "Lease"), []string{"lease kube-system/talosupgrade", "Allow the credentials to get, create and patch leases"}},
		"the lease is unwritable": {"", withCalls(cluster.ErrDenied, "WriteLease"), []string{"Unable to take the lease", "Allow the credentials to get, create and patch leases"}},
		"the lease is away":       {"", withCalls(cluster.ErrUnreachable, "WriteLease"), []string{"Unable to take the lease", "kubectl get --raw=/readyz"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				w := r.Worker("run-1")
				w.Client.Intercept(given.wrong)

				request := to(toLifecycle)
				request.ClusterID = given.cluster

				err := w.Apply(context.Background(), request)
				if err == nil {
					t.Fatal("it succeeded")
				}

				for _, text := range append(given.says, "Nothing was touched.") {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("it does not say %q: %v", text, err)
					}
				}

				r.Sound()
			})
		})
	}
}

// The state of a node that is back in service is not told as if it were not.
func TestFailure_NodeInServiceIsToldAsSuch(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		var back atomic.Bool

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Uncordon" {
				back.Store(true)
			}

			if back.Load() && call.Method == "WriteJournal" {
				return cluster.ErrUnreachable
			}

			return next(ctx)
		})

		err := w.Apply(context.Background(), to(toLifecycle))
		if err == nil || !strings.Contains(err.Error(), "is in service; only its entry in the journal is still open") {
			t.Errorf("got %v, want the node in service", err)
		}
	})
}
