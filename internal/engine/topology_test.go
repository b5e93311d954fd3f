// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// refused fails the test unless an upgrade is refused for a check and changes
// nothing.
func (r *rig) refused(w *worker, request engine.Request, kind error, check string) {
	r.T.Helper()

	err := w.Apply(context.Background(), request)

	var failed *engine.Failure
	if !errors.As(err, &failed) || !errors.Is(err, kind) {
		r.T.Fatalf("got %v, want it refused with %v", err, kind)
	}

	if check != "" && !slices.ContainsFunc(failed.Findings, func(f cluster.Finding) bool { return f.Check == check && f.Remedy != "" }) {
		r.T.Errorf("no finding of %s with a remedy: %+v", check, failed.Findings)
	}

	if _, mutating := w.Client.Calls(); mutating != 0 {
		r.T.Errorf("the refused run made %d mutating calls", mutating)
	}

	r.Sound()
}

// ofCluster is a request for a certain cluster.
func ofCluster(request engine.Request, id string) engine.Request {
	request.ClusterID = id

	return request
}

func TestRunsThatMustNotBeginChangeNothing(t *testing.T) {
	for name, given := range map[string]struct {
		options model.Options
		roles   []string
		request engine.Request
		kind    error
		check   string
	}{
		"two members":          {model.Options{ControlPlanes: 2, Workers: 1}, nil, to(toLifecycle), engine.ErrBlocked, "two-members"},
		"two members, legacy":  {model.Options{ControlPlanes: 2, Workers: 1, Talos: fromLegacy}, nil, to(toLegacy), engine.ErrBlocked, "two-members"},
		"reader":               {model.Options{}, []string{"os:reader"}, to(toLifecycle), engine.ErrBlocked, "roles"},
		"older than the nodes": {model.Options{Talos: "1.13.4"}, nil, to("1.13.2"), engine.ErrBlocked, "versions"},
		"minor skipped":        {model.Options{Talos: "1.11.5"}, nil, to("1.13.4"), engine.ErrBlocked, "versions"},
		"unpinned components":  {model.Options{Unpinned: true}, nil, to(toLifecycle), engine.ErrBlocked, "component-images"},
		"another cluster":      {model.Options{}, nil, ofCluster(to(toLifecycle), "somebody-elses"), engine.ErrWrongCluster, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: given.options}, func(r *rig) {
				w := r.Worker("run-1")
				if given.roles != nil {
					w.Client.WithRoles(given.roles...)
				}

				r.refused(w, given.request, given.kind, given.check)
			})
		})
	}
}

// during does something once, when a worker has made its first call of a method
// on a node.
func (r *rig) during(w *worker, method, node string, do func()) {
	var first sync.Once

	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		err := next(ctx)

		if call.Method == method && call.Node == node {
			first.Do(do)
		}

		return err
	})
}

func TestNodesThatJoinMoveLast(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Cordon", "worker-0", func() {
			if _, err := r.World().AddNode(model.NodeOptions{Role: model.Worker}); err != nil {
				t.Error(err)
			}
		})

		r.Must(w, to(toLifecycle))
		r.Sound()
		r.AllRun(toLifecycle)

		if nodes := r.Judge.Verdict().Nodes; len(nodes) != 6 || nodes["worker-2"].Installs != 1 {
			t.Errorf("the node that joined was not upgraded: %+v", nodes)
		}
	})
}

func TestNodesThatLeaveAreDropped(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3}}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Cordon", "worker-0", func() {
			if err := r.RemoveNode("worker-2"); err != nil {
				t.Error(err)
			}
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)

		if nodes := r.Judge.Verdict().Nodes; len(nodes) != 5 {
			t.Errorf("%d nodes are left, want 5", len(nodes))
		}
	})
}

// TestControlPlaneIsDoneWhenItsPodsAreToldOf: after a boot Kubernetes shows the
// static pods as they were before, until the kubelet has come to them.
func TestControlPlaneIsDoneWhenItsPodsAreToldOf(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 5, Workers: 1, Seed: 7}}, func(r *rig) {
		w := r.Worker("run-1")
		back := 0

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Uncordon" && strings.HasPrefix(call.Node, "cp-") {
				back++

				if !r.State(call.Node).PodsReported {
					t.Errorf("%s is put back into service, and Kubernetes shows its static pods as they were before the boot", call.Node)
				}
			}

			return next(ctx)
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)

		if back != 5 {
			t.Errorf("%d control planes were put back into service, want 5", back)
		}
	})
}

// TestApplyWaitsForPodsToBeToldOf: a control plane that somebody has rebooted is
// well, and only Kubernetes does not show it yet.
func TestApplyWaitsForPodsToBeToldOf(t *testing.T) {
	for _, given := range []struct {
		name  string
		never bool
	}{{"they are soon", false}, {"they never are", true}} {
		t.Run(given.name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Workers: 1, Seed: 7}}, func(r *rig) {
				client := r.Client("run-1")
				between := &liar{Client: client}
				w := r.WorkerOver(client, between, between)
				before := time.Now()

				if err := r.World().RebootByHand("cp-1", model.RebootDefault); err != nil {
					t.Fatal(err)
				}

				r.Until("cp-1 is back, and its pods are not told of", time.Hour, func() bool {
					state := r.State("cp-1")

					return state.BootedAt.After(before) && state.Ready && state.Kubelet.Ready && !state.PodsReported
				})

				if !given.never {
					r.Must(w, to(toLifecycle))
					r.At(toLifecycle)

					return
				}

				between.pods = func(pod *cluster.ComponentPod) {
					if pod.Node == "cp-1" && pod.Component.Static() {
						pod.Started = before
					}
				}

				r.refused(w, to(toLifecycle), engine.ErrBlocked, cluster.CheckControlPlane)
			})
		})
	}
}

// TestStatusThatIsNotAvailableYetIsWaitedFor: the node behind the endpoint of the
// cluster cannot say for a while after its boot whether it is Ready. That is no news
// to anybody.
func TestStatusThatIsNotAvailableYetIsWaitedFor(t *testing.T) {
	inCluster(t, setup{Options: model.Options{Workers: 1, Seed: 7}}, func(r *rig) {
		const unavailable = `nodeReady: node "cp-1" status is not available yet`

		var (
			first  sync.Once
			back   time.Time
			before = r.State("cp-1").BootID
		)

		client := r.Client("run-1")
		w := r.WorkerOver(client, &liar{Client: client, machine: func(m *cluster.Machine) {
			if m.NodeName != "cp-1" || m.BootID == before || !m.Settled() {
				return
			}

			first.Do(func() { back = time.Now() })

			if time.Since(back) < 90*time.Second {
				m.Ready, m.Unmet = false, []string{unavailable}
			}
		}}, client)

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)

		waits := w.Texts(cluster.EventWaiting)
		if !slices.ContainsFunc(waits, func(text string) bool { return strings.Contains(text, unavailable) }) {
			t.Errorf("what is waited for is not said: %q", waits)
		}

		if warnings := w.Texts(cluster.EventWarning); len(warnings) > 0 {
			t.Errorf("warnings: %q", warnings)
		}
	})
}

// silent takes the API of a machine away for good.
func silent(node string) []model.Fault {
	return []model.Fault{{Node: node, Step: model.StepObserve, Effect: model.EffectUnreachable}}
}

func TestControlPlaneThatFallsSilentStopsTheRunWhereItIs(t *testing.T) {
	for name, given := range map[string]struct {
		after string
		armed bool
	}{
		"before the install": {"Cordon", false},
		"before the reboot":  {"Install", true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				w := r.Worker("run-1")
				r.during(w, given.after, "worker-0", func() { r.World().SetFaults(silent("cp-2")) })

				failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), engine.ErrGuard, "worker-0")
				if !strings.Contains(failed.Error(), "cp-2") {
					t.Errorf("the silent control plane is not named: %v", failed)
				}

				r.Sound()
				r.stopped("worker-0", given.armed)

				for _, call := range r.Judge.Of(history.KindRPC) {
					if strings.HasSuffix(call.Detail["method"], "/Reboot") {
						t.Errorf("rebooted %s without etcd being known", call.Node)
					}
				}

				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestControlPlaneThatFallsSilentForAWhileIsWaitedFor is about an armed node,
// whose whole time is worth waiting for.
func TestControlPlaneThatFallsSilentForAWhileIsWaitedFor(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Install", "worker-0", func() {
			faults := silent("cp-2")
			faults[0].Times, faults[0].For = 1, 17*time.Minute
			r.World().SetFaults(faults)
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

func TestEtcdAlarmStopsTheRun(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		first := r.Worker("run-1")

		// Before the run it would have been found by the preflight.
		r.during(first, "Cordon", "worker-0", func() {
			if err := r.World().SetEtcdAlarm("cp-1", "NOSPACE"); err != nil {
				t.Error(err)
			}
		})

		failed := failure(t, first.Apply(context.Background(), to(toLifecycle)), engine.ErrGuard, "worker-0")
		if !strings.Contains(failed.Error(), "NOSPACE") {
			t.Errorf("the alarm is not named: %v", failed)
		}

		r.Sound()
		r.stopped("worker-0", false)

		if err := r.World().SetEtcdAlarm("cp-1", ""); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

func TestDeadlineStopsBetweenNodes(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		request := to(toLifecycle)
		request.Deadline = 4 * time.Minute

		err := r.Worker("run-1").Apply(context.Background(), request)
		if !errors.Is(err, engine.ErrDeadline) {
			t.Fatalf("got %v, want the deadline", err)
		}

		r.Sound()
		r.stopped("", false)
		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

func TestControlPlanesFirstWhenAsked(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		request := to(toLifecycle)
		request.Policy.Order = cluster.ControlPlanesFirst
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
		r.Once()

		var order []string
		for _, boot := range r.Judge.Of(history.KindBoot) {
			order = append(order, boot.Node)
		}

		if want := []string{"cp-0", "cp-1", "cp-2", "worker-0", "worker-1"}; !slices.Equal(order, want) {
			t.Errorf("moved in the order %v, want %v", order, want)
		}
	})
}
