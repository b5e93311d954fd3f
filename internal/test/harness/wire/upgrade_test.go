// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// scenario is an upgrade that is tested.
type scenario struct {
	name    string
	given   harness.Setup
	request engine.Request
}

// toKubernetes is one minor version after the one that the rig has.
const toKubernetes = "1.35.2"

// both returns a request for both halves.
func both(talos, kubernetes string) engine.Request {
	request := harness.To(talos)
	request.Target.Kubernetes = version.MustParse(kubernetes)

	return request
}

func lifecycleHop() scenario {
	return scenario{
		"lifecycle", harness.Setup{Options: model.Options{Talos: harness.FromLifecycle, Seed: 7}}, harness.To(harness.ToLifecycle),
	}
}

func legacyHop() scenario {
	return scenario{"legacy", harness.Setup{Options: model.Options{Talos: harness.FromLegacy, Seed: 7}}, harness.To(harness.ToLegacy)}
}

func bothHalves() scenario {
	return scenario{
		"both",
		harness.Setup{Options: model.Options{Talos: harness.FromLifecycle, Kubernetes: harness.Kubernetes, Seed: 7}},
		both(harness.ToLifecycle, toKubernetes),
	}
}

// manyAddresses returns a cluster in which discovery and Kubernetes first name an address at which nothing answers.
func manyAddresses() scenario {
	tested := bothHalves()
	tested.name, tested.given.ManyAddresses = "many addresses", true

	return tested
}

func scenarios() []scenario { return []scenario{lifecycleHop(), legacyHop(), bothHalves()} }

// TestUpgrade_ReachesTheTarget runs one whole upgrade of each scenario.
func TestUpgrade_ReachesTheTarget(t *testing.T) {
	for number, tested := range append(scenarios(), manyAddresses()) {
		if few() && number > 0 {
			break
		}

		t.Run(tested.name, func(t *testing.T) {
			began := time.Now()

			inBubble(t, tested.name, tested.given, func(r *rig) {
				begun := time.Now()
				p := r.start("run-1")
				r.must(p, tested.request)

				changes, reads := r.tap.points(p.name)
				took := time.Since(begun)

				r.converged(tested.request)
				r.Once()
				t.Logf("%s of virtual time, %d requests that change something, %d others", took.Round(time.Second), len(changes), reads)
			})

			t.Logf("%s of real time", time.Since(began).Round(time.Millisecond))
		})
	}
}

// slowly returns an upgrade of more than four hours: eleven nodes that take 20 minutes to start, each of which has to
// stay healthy for one minute.
func slowly() scenario {
	const (
		workers = 8
		slow    = 20*time.Minute + 37*time.Second + 3*time.Millisecond
		settle  = time.Minute
	)

	request := harness.To(harness.ToLifecycle)
	request.Policy.Settle = settle

	return scenario{"slow", harness.Setup{
		Options: model.Options{
			ControlPlanes: 3, Workers: workers, Talos: harness.FromLifecycle, Seed: 11,
			Faults: []model.Fault{{Node: model.AnyNode, Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: slow}},
		},
		Judging: []checker.Option{checker.MaxUnavailable(1)},
	}, request}
}

// TestUpgrade_FourHoursTakeAMoment wants an upgrade of hours of virtual time to take hardly any real time.
func TestUpgrade_FourHoursTakeAMoment(t *testing.T) {
	if few() {
		t.Skip("it takes seconds, and much longer with the race detector")
	}

	const long = 4 * time.Hour

	tested, began := slowly(), time.Now()

	inBubble(t, tested.name, tested.given, func(r *rig) {
		begun := time.Now()
		p := r.start("run-1")
		r.must(p, tested.request)
		r.AllRun(harness.ToLifecycle)
		r.published("talos", harness.ToLifecycle, "completed")
		r.Sound()
		r.Tidy()
		r.Once()

		if took := time.Since(begun); took < long {
			t.Errorf("the upgrade took %s, want more than %s", took, long)
		} else {
			t.Logf("%s of virtual time", took.Round(time.Second))
		}

		if done, want := p.nodesDone(), len(r.World().Nodes()); done != want {
			t.Errorf("%d nodes were done, want %d", done, want)
		}
	})

	t.Logf("%s of real time", time.Since(began).Round(time.Millisecond))
}

// BenchmarkOverTheWire measures how much faster than real time a bubble is.
func BenchmarkOverTheWire(b *testing.B) {
	for _, measured := range append(scenarios(), slowly()) {
		b.Run(measured.name, func(b *testing.B) {
			var virtual time.Duration

			for b.Loop() {
				// A bubble needs a *testing.T, which a benchmark does not have. The note needs nothing of it.
				wrong := noted(&testing.T{}, measured.given, func(r *rig) {
					begun := time.Now()
					r.must(r.start("run-1"), measured.request)
					virtual += time.Since(begun)
				})
				if len(wrong) > 0 {
					b.Fatal(wrong)
				}
			}

			b.ReportMetric(virtual.Seconds()/b.Elapsed().Seconds(), "virtual-s/s")
		})
	}
}

// TestConnection_HalfOpenToTheKubernetesAPIIsWaitedOut drops everything that is sent to the Kubernetes API for a
// while, in the middle of a turn. Meanwhile nothing may be done that needs the lease, and the run has to go on once
// the API is back.
func TestConnection_HalfOpenToTheKubernetesAPIIsWaitedOut(t *testing.T) {
	unraced(t)

	for _, away := range some(7*time.Second, 2*time.Minute) {
		t.Run(away.String(), func(t *testing.T) {
			tested := lifecycleHop()

			inBubble(t, away.String(), tested.given, func(r *rig) {
				p := r.start("run-1")
				r.struckBy(p, tested, aim{point: first(methodInstall, "worker-0"), variant: meddled, within: inFlight, meddle: func() {
					p.network.silence(apiHost)
					time.AfterFunc(away, func() { p.network.revive(apiHost) })
				}})
			})
		})
	}
}

// TestConnection_EverySocketMayBreakAtOnce cuts all connections of a process again and again, as
// a laptop does that changes its network.
func TestConnection_EverySocketMayBreakAtOnce(t *testing.T) {
	if few() {
		t.Skip("the other tests break one at a time")
	}

	tested := lifecycleHop()

	inBubble(t, tested.name, tested.given, func(r *rig) {
		// A pull starts over on a new connection, so there has to be enough time for a pull.
		const pause = 71*time.Second + 3*time.Millisecond

		p := r.start("run-1")
		broken := 0

		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})

		stop := func() {
			cancel()
			<-done
		}
		defer stop()

		go func() {
			defer close(done)

			for pause := time.NewTicker(pause); ; broken++ {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
					p.network.sever(func(string) bool { return true })
				}
			}
		}()

		r.must(p, tested.request)
		stop()
		r.converged(tested.request)
		r.Once()

		if broken < 8 {
			r.T.Errorf("the connections broke %d times, want more", broken)
		}

		if said := strings.Join(p.texts(cluster.EventWaiting), "\n"); strings.Contains(said, "certificate") {
			r.T.Errorf("a broken connection was taken for a refused certificate:\n%s", said)
		}
	})
}
