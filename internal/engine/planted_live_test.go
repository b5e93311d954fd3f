// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// Rules about what has to happen in the end. No event breaks them: assertions of
// tests look after them.
const (
	converges   = "L1"
	staysQuiet  = "L2"
	ends        = "L3"
	cancels     = "L4"
	explains    = "L5"
	leaksNone   = "L6"
	rulesInTime = 6
)

// neglect is a bug that breaks such a rule, and how tests look after it.
type neglect struct {
	rule, name string
	setup      setup
	bug        planted
	// check is the assertion; workers are made by the rig that it gets.
	check func(*rig)
	// says is a part of what it says of the bug.
	says string
}

func neglects(t *testing.T) []neglect {
	t.Helper()

	moment := drainBegins(t) + time.Second
	inDrain := func(r *rig) { r.cancelAt(moment, to(toLifecycle)) }
	applied := func(r *rig) { r.Must(r.Worker("run-2"), to(toLifecycle)) }

	return []neglect{
		{
			rule: converges, name: "the journal is forgotten", says: "S4",
			bug: planted{plant: func(_ *rig, l *liar) { l.noJournal = true }},
			check: func(r *rig) {
				r.dieInstalling(context.Background(), r.Worker("run-1"), to(toLifecycle))
				applied(r)
				r.At(toLifecycle)
			},
		},
		{
			rule: converges, name: "a new boot goes unseen", says: "upgrade by run-2",
			bug:   planted{plant: func(_ *rig, l *liar) { l.machine = func(m *cluster.Machine) { m.BootID = "boot-of-" + m.UUID } }, lie: silence},
			check: applied,
		},
		{
			rule: converges, name: "the lease is not given back", says: "the lease is still held",
			bug: planted{plant: func(_ *rig, l *liar) { l.noRelease = true }},
			check: func(r *rig) {
				applied(r)
				r.Tidy()
			},
		},
		{
			rule: staysQuiet, name: "something is always left to be done", says: "mutating calls",
			bug: planted{plant: func(_ *rig, l *liar) { l.noRelease = true }},
			check: func(r *rig) {
				applied(r)
				r.Settled(toLifecycle)
			},
		},
		{
			rule: staysQuiet, name: "a lease is seen where there is none", says: "mutating calls", setup: oldKubernetes(),
			bug: planted{plant: func(_ *rig, l *liar) { l.seesLease = true }},
			check: func(r *rig) {
				r.Must(r.Worker("run-2"), kube(toKubernetes))
				r.atKubernetes(toKubernetes, kube(toKubernetes))
			},
		},
		{
			rule: cancels, name: "the lease is kept after a cancel", says: "the lease is still held",
			bug:   planted{plant: func(_ *rig, l *liar) { l.noRelease = true }},
			check: inDrain,
		},
		{
			rule: cancels, name: "a cordon is kept after a cancel", says: "is still cordoned",
			bug:   planted{plant: func(_ *rig, l *liar) { l.uncordon = func(string, string) {} }},
			check: inDrain,
		},
		{
			rule: cancels, name: "a cancel is not listened to", says: "to return after the cancel",
			bug:   planted{meddle: deaf},
			check: inDrain,
		},
	}
}

// TestRulesInTimeAreLookedAfter shows of each assertion that it fails where the
// rule is broken, and holds where it is not.
func TestRulesInTimeAreLookedAfter(t *testing.T) {
	all := neglects(t)

	for _, given := range all {
		t.Run(given.rule+" "+given.name, func(t *testing.T) {
			inCluster(t, given.setup, func(r *rig) {
				if said := r.watched(planted{}, given.check); said != "" {
					t.Errorf("without the bug it says %s", said)
				}
			})

			inCluster(t, given.setup, func(r *rig) {
				if said := r.watched(given.bug, given.check); !strings.Contains(said, given.says) {
					t.Errorf("of the bug it says %q, want %q", said, given.says)
				}
			})
		})
	}

	t.Run(ends, waitsWithoutBound)
	t.Run(explains, failsWithoutWords)
	t.Run(leaksNone, leaksSomething)

	covered := []string{ends, explains, leaksNone}
	for _, given := range all {
		covered = append(covered, given.rule)
	}

	slices.Sort(covered)

	if covered = slices.Compact(covered); len(covered) != rulesInTime {
		t.Errorf("bugs are planted for %v only", covered)
	}
}

// deaf has the search for pods of the first worker take two minutes, come what may.
func deaf(*rig, *ports.Client) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == "PodsToEvict" && call.Node == "worker-0" {
			time.Sleep(2 * time.Minute)
		}

		return next(ctx)
	}
}

// drainBegins is when a run has cordoned its first node and installed nothing yet.
func drainBegins(t *testing.T) (moment time.Duration) {
	t.Helper()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "PodsToEvict", "worker-0", func() { moment = r.World().Now() })
		r.Must(w, to(toLifecycle))
	})

	return moment
}

// waitsWithoutBound is about L3.
func waitsWithoutBound(t *testing.T) {
	const bound = 2 * time.Hour

	never := setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}}}}

	for name, given := range map[string]struct {
		clock engine.Clock
		says  string
	}{
		"in time":  {clock: engine.RealClock()},
		"timeless": {clock: timeless{engine.RealClock()}, says: "not ended within 2h0m0s"},
	} {
		inCluster(t, never, func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})

			go func() {
				defer close(ended)

				_ = r.clocked(given.clock).Apply(ctx, to(toLifecycle))
			}()

			said := r.watched(planted{}, func(r *rig) {
				r.Until("ended", bound, func() bool {
					select {
					case <-ended:
						return true
					default:
						return false
					}
				})
			})

			cancel()
			<-ended

			if given.says == "" && said != "" || !strings.Contains(said, given.says) {
				t.Errorf("%s: said %q, want %q", name, said, given.says)
			}
		})
	}
}

// timeless is a clock on which no time runs out.
type timeless struct{ engine.Clock }

// Sleep is for polls; what sleeps for longer waits for a time to run out.
func (c timeless) Sleep(ctx context.Context, d time.Duration) error {
	if d < cluster.DefaultDrainTimeout {
		return c.Clock.Sleep(ctx, d)
	}

	<-ctx.Done()

	return context.Cause(ctx)
}

func (timeless) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// clocked connects an engine with a clock of its own.
func (r *rig) clocked(clock engine.Clock) *worker {
	client := r.Client("run-1")
	made := r.WorkerOver(client, client, client)
	made.Engine = engine.New(engine.Options{
		Talos: client, Kubernetes: client, Removals: client, Manifests: client, Workloads: client, Run: client.Name(),
		Clock: clock, Observers: []cluster.Observer{made, made.Notes},
	})

	return made
}

// failsWithoutWords is about L5: each part of a failure that a person needs is
// missed.
func failsWithoutWords(t *testing.T) {
	broken := setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-1", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}}}}

	inCluster(t, broken, func(r *rig) {
		var whole *engine.Failure
		if err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle)); !errors.As(err, &whole) {
			t.Fatalf("got %v, want a failure", err)
		}

		for missing, strip := range map[string]func(*engine.Failure){
			"":        func(*engine.Failure) {},
			"summary": func(f *engine.Failure) { f.Summary = "" },
			"node":    func(f *engine.Failure) { f.Node = "" },
			"seen":    func(f *engine.Failure) { f.Seen = "" },
			"state":   func(f *engine.Failure) { f.State = "" },
			"remedy":  func(f *engine.Failure) { f.Remedy = "" },
			"cause":   func(f *engine.Failure) { f.Err = nil },
		} {
			stripped := *whole
			strip(&stripped)

			said := r.watched(planted{}, func(r *rig) { _ = failure(r.T, &stripped, engine.ErrInstaller, "worker-1") })
			if (said == "") != (missing == "") {
				t.Errorf("of a failure without %q it says %q", missing, said)
			}
		}
	})
}
