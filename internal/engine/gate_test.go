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

// userGate is a condition that a test decides about.
type userGate struct {
	timeout time.Duration
	// answer decides, given the node.
	answer func(node string) (bool, string, error)

	mu    sync.Mutex
	asked []string
}

func (g *userGate) String() string { return "gates[0] (test)" }

func (g *userGate) Timeout() time.Duration { return g.timeout }

func (g *userGate) Holds(ctx context.Context, node string) (bool, string, error) {
	if err := ctx.Err(); err != nil {
		return false, "", err
	}

	g.mu.Lock()
	g.asked = append(g.asked, node)
	g.mu.Unlock()

	return g.answer(node)
}

// nodes are those that the gate was asked about.
func (g *userGate) nodes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()

	asked := slices.Clone(g.asked)
	slices.Sort(asked)

	return slices.Compact(asked)
}

// gated is a request with a gate.
func gated(gate *userGate) engine.Request {
	request := to(toLifecycle)
	request.Gates = []cluster.Gate{gate}

	return request
}

// after holds from a moment on.
func after(begun time.Time, wait time.Duration) func(string) (bool, string, error) {
	return func(string) (bool, string, error) { return time.Since(begun) >= wait, "Volume a/b is degraded", nil }
}

func TestGatesAreAskedBeforeTheRollAndBeforeEachNode(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return true, "", nil }}
		r.Must(r.Worker("run-1"), gated(gate))
		r.At(toLifecycle)

		if want := []string{"", "cp-0", "cp-1", "cp-2", "worker-0", "worker-1"}; !slices.Equal(gate.nodes(), want) {
			t.Errorf("asked about %q, want %q", gate.nodes(), want)
		}
	})
}

func TestGateThatOpensInTimeIsWaitedFor(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: 10 * time.Minute, answer: after(time.Now(), 7*time.Minute)}
		w := r.Worker("run-1")
		r.Must(w, gated(gate))
		r.At(toLifecycle)

		if first := r.firstDisturbance(); first < 7*60 {
			t.Errorf("a node was disturbed after %.0f s, want none before the gate opened", first)
		}

		if texts := w.Texts(cluster.EventWaiting); !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "Volume a/b is degraded") }) {
			t.Errorf("nobody was told what is waited for: %q", texts)
		}
	})
}

// firstDisturbance is when a node was first disturbed, in seconds; a very late
// moment where none was.
func (r *rig) firstDisturbance() float64 {
	events := r.Judge.Of(history.KindCordon, history.KindInstall, history.KindDown)
	if len(events) == 0 {
		return 1e9
	}

	return events[0].Sim
}

func TestGateThatStaysClosedStopsTheRunBeforeAnythingIsTouched(t *testing.T) {
	for name, given := range map[string]struct {
		answer func(string) (bool, string, error)
		says   []string
		within time.Duration
	}{
		"it does not hold": {
			answer: func(string) (bool, string, error) { return false, "Volume a/b is degraded", nil },
			says:   []string{"gates[0] (test) does not hold: Volume a/b is degraded", "for 3m"}, within: 5 * time.Minute,
		},
		"nobody can tell": {
			answer: func(string) (bool, string, error) { return true, "", errors.New("no such key: robustness") },
			says:   []string{"gates[0] (test) cannot be judged", "no such key"}, within: 5 * time.Minute,
		},
		"the cluster serves no such kind": {
			answer: func(string) (bool, string, error) { return false, "", cluster.ErrNotFound },
			says:   []string{"gates[0] (test) cannot be judged", "not found"}, within: time.Second,
		},
		"the API server refuses the question": {
			answer: func(string) (bool, string, error) { return false, "", cluster.ErrRefused },
			says:   []string{"gates[0] (test) cannot be judged", "refused"}, within: time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				begun := time.Now()

				err := r.Worker("run-1").Apply(context.Background(), gated(&userGate{timeout: 3 * time.Minute, answer: given.answer}))
				if !errors.Is(err, engine.ErrGate) {
					t.Fatalf("got %v, want a gate", err)
				}

				for _, want := range append(given.says, "No node was disturbed") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}

				if took := time.Since(begun); took > given.within {
					t.Errorf("took %s, want at most %s", took, given.within)
				}

				if disturbed := r.Judge.Of(history.KindCordon, history.KindInstall); len(disturbed) > 0 {
					t.Errorf("disturbed: %+v", disturbed)
				}

				r.Sound()
				r.Tidy()
			})
		})
	}
}

// A gate is asked once more on the observation on which the node is cordoned:
// between that and the wait for it somebody may have closed it.
func TestGateThatClosesInTheMiddleStopsTheRunAfterTheNode(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: 2 * time.Minute, answer: func(node string) (bool, string, error) {
			return node != "cp-1", "Volume a/b is degraded", nil
		}}

		err := r.Worker("run-1").Apply(context.Background(), gated(gate))
		if !errors.Is(err, engine.ErrGate) || !strings.Contains(err.Error(), "node cp-1") {
			t.Fatalf("got %v, want the gate before cp-1", err)
		}

		r.Sound()
		r.Tidy()

		if node := r.Judge.Verdict().Nodes["cp-1"]; node.Installs != 0 || node.Cordoned {
			t.Errorf("cp-1 was disturbed: %+v", node)
		}

		gate.answer = func(string) (bool, string, error) { return true, "", nil }

		r.Must(r.Worker("run-2"), gated(gate))
		r.At(toLifecycle)
		r.Once()
	})
}

// What keeps a gate closed may be the very node that an earlier run left out of
// service.
func TestUnfinishedNodeIsFinishedWhateverTheGatesSay(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Install", r.Worker("run-1"), to(toLifecycle))

		armed := ""

		for _, entry := range r.Journal().Entries {
			armed = entry.Node
		}

		if armed == "" {
			t.Fatal("no node was left armed")
		}

		gate := &userGate{timeout: time.Minute, answer: func(string) (bool, string, error) {
			return r.State(armed).Talos == toLifecycle, "a pod of " + armed + " is missing", nil
		}}

		r.Must(r.Worker("run-2"), gated(gate))
		r.At(toLifecycle)
		r.Once()
	})
}

// dieBehind runs an upgrade whose process is killed behind its first call of the
// method.
func (r *rig) dieBehind(method string, dying *worker, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	dying.Client.Intercept(atMethod(method, newStrike(dieAfter, atWill, cancel)))

	if err := dying.Apply(ctx, request); err == nil {
		r.T.Fatalf("no %s was called", method)
	}
}

// atMethod strikes at every call of a method.
func atMethod(method string, hit *strike) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == method {
			call.Mutation = atWill
		}

		return hit.Intercept(ctx, call, next)
	}
}

func TestGatesHoldUpComponentsAsWell(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: time.Minute, answer: func(node string) (bool, string, error) {
			return node != "worker-1", "Volume a/b is degraded", nil
		}}

		request := kube(toKubernetes)
		request.Gates = []cluster.Gate{gate}

		err := r.Worker("run-1").Apply(context.Background(), request)
		if !errors.Is(err, engine.ErrGate) || !strings.Contains(err.Error(), "worker-1") {
			t.Fatalf("got %v, want the gate before the kubelet of worker-1", err)
		}

		r.Sound()

		if kubelet := r.State("worker-1").Kubelet.Version; kubelet == toKubernetes {
			t.Errorf("the kubelet of worker-1 runs %s", kubelet)
		}
	})
}

// Nothing else holds a run up than its gates.
func TestSkippedGatesHoldNothingUp(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		request := gated(&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return false, "closed", nil }})
		request.Policy.SkipChecks = map[string]bool{cluster.CheckGates: true}

		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
	})
}

func TestLostAPIServerIsNoOpenGate(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, func(r *rig) {
		gate := &userGate{timeout: 20 * time.Minute, answer: func(string) (bool, string, error) {
			if !r.World().Serving() {
				return false, "", cluster.ErrUnreachable
			}

			return true, "", nil
		}}

		r.Must(r.Worker("run-1"), gated(gate))
		r.At(toLifecycle)
	})
}
