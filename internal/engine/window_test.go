// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// interval is a window that is open once.
type interval struct{ from, to time.Time }

func (s interval) String() string { return "a test" }

func (s interval) Open(at time.Time) (open bool, until time.Time) {
	switch {
	case at.Before(s.from):
		return false, s.from
	case at.Before(s.to):
		return true, s.to
	default:
		return false, time.Time{}
	}
}

// within is a request with a window that begins and ends so long from now.
func within(from, to time.Duration) engine.Request {
	request := aim()
	request.Window = interval{from: time.Now().Add(from), to: time.Now().Add(to)}

	return request
}

func aim() engine.Request { return to(toLifecycle) }

func TestNothingIsTouchedOutsideTheWindow(t *testing.T) {
	for name, given := range map[string]struct {
		from, to time.Duration
		says     string
	}{
		"before it": {from: time.Hour, to: 2 * time.Hour, says: "it opens at 2000-01-01T01:00:00Z"},
		"after it":  {from: -2 * time.Hour, to: -time.Hour, says: "it does not open again"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				w := r.Worker("run-1")

				err := w.Apply(context.Background(), within(given.from, given.to))
				if !errors.Is(err, engine.ErrBlocked) || !strings.Contains(err.Error(), given.says) || !strings.Contains(err.Error(), "maintenance-window") {
					t.Fatalf("got %v, want the window", err)
				}

				if _, mutating := w.Client.Calls(); mutating > 0 {
					t.Errorf("%d mutating calls, want none", mutating)
				}
			})
		})
	}
}

func TestRunStopsResumableWhenTheWindowCloses(t *testing.T) {
	for _, length := range []time.Duration{time.Minute, 4 * time.Minute, 7 * time.Minute, 11 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				err := r.Worker("run-1").Apply(context.Background(), within(0, length))
				if !errors.Is(err, engine.ErrWindow) || !strings.Contains(err.Error(), "Run terraform apply again") {
					t.Fatalf("got %v, want the end of the window", err)
				}

				r.Sound()
				r.Tidy()
				r.startedBefore(length)

				for name, node := range r.Judge.Verdict().Nodes {
					if node.Cordoned || node.Installs != node.Reboots {
						t.Errorf("%s was left in the middle: %+v", name, node)
					}
				}

				r.Must(r.Worker("run-2"), within(0, 5*time.Hour))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestWindowClosesBetweenComponents: the component in progress is finished, the next run
// goes on with the one after it, and nothing is configured twice.
func TestWindowClosesBetweenComponents(t *testing.T) {
	for _, length := range []time.Duration{5 * time.Minute, 8 * time.Minute, 11 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
				request := kube(toKubernetes)
				request.Window = interval{to: time.Now().Add(length)}

				err := r.Worker("run-1").Apply(context.Background(), request)
				if !errors.Is(err, engine.ErrWindow) || !strings.Contains(err.Error(), "The next would have been") || !strings.Contains(err.Error(), "every node is in service") {
					t.Fatalf("got %v, want the end of the window", err)
				}

				r.Sound()
				r.Tidy()

				if len(r.configured()) == 0 {
					t.Error("nothing was done while the window was open")
				}

				request.Window = interval{to: time.Now().Add(5 * time.Hour)}
				r.Must(r.Worker("run-2"), request)
				r.atKubernetes(toKubernetes, request)

				changes := r.configured()
				if once := slices.Compact(slices.Sorted(slices.Values(changes))); len(once) != len(changes) {
					t.Errorf("some components were configured more than once: %v", changes)
				}
			})
		})
	}
}

// startedBefore fails the test if a node was cordoned after the moment.
func (r *rig) startedBefore(moment time.Duration) {
	r.T.Helper()

	for _, event := range r.Judge.Of(history.KindCordon) {
		if event.Sim > moment.Seconds() && event.Detail["unschedulable"] == "true" {
			r.T.Errorf("%s was cordoned after %.0f s: %v", event.Node, event.Sim, event.Detail)
		}
	}
}

func TestWindowClosesWhileAGateIsWaitedFor(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		request := within(0, 5*time.Minute)
		request.Gates = gated(&userGate{timeout: time.Hour, answer: after(time.Now(), 20*time.Minute)}).Gates

		err := r.Worker("run-1").Apply(context.Background(), request)
		if !errors.Is(err, engine.ErrWindow) || !strings.Contains(err.Error(), "No node was disturbed") {
			t.Fatalf("got %v, want the end of the window", err)
		}

		if disturbed := r.Judge.Of(history.KindCordon); len(disturbed) > 0 {
			t.Errorf("disturbed: %+v", disturbed)
		}
	})
}

// TestWindowIsWhatStopsARun shows that the checker sees a run that does not look
// at its window, and that it has nothing to say of one that does.
func TestWindowIsWhatStopsARun(t *testing.T) {
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	judging := []checker.Option{checker.Window(begin, checker.Opening{From: begin, To: begin.Add(4 * time.Minute)})}

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		r.Must(r.Worker("run-1"), aim())

		if broken := r.Judge.Verdict().Broken(); !slices.Contains(broken, checker.S13) {
			t.Errorf("a run that goes on outside its window broke %v, want %s", broken, checker.S13)
		}
	})

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		if err := r.Worker("run-1").Apply(context.Background(), within(0, 4*time.Minute)); !errors.Is(err, engine.ErrWindow) {
			t.Errorf("got %v, want the end of the window", err)
		}

		r.Sound()
	})
}
