// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestUpgrade_ReachesTheTarget(t *testing.T) {
	t.Parallel()

	topologies := []struct{ controlPlanes, workers int }{{3, 2}, {1, 1}, {1, 0}, {5, 5}, {3, 0}}
	hops := []struct{ from, to string }{
		{"1.13.2", "1.13.4"}, {"1.13.4", "1.14.1"}, {"1.12.6", "1.13.4"}, {"1.11.5", "1.12.6"},
	}

	for _, topology := range topologies {
		for seed, hop := range hops {
			name := fmt.Sprintf("%d+%d from %s to %s", topology.controlPlanes, topology.workers, hop.from, hop.to)
			t.Run(name, func(t *testing.T) {
				given := setup{Options: model.Options{
					ControlPlanes: topology.controlPlanes, Workers: topology.workers, Talos: hop.from, Seed: uint64(seed + 1),
				}}

				inCluster(t, given, func(r *rig) {
					r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})
					r.Must(r.Worker("run-1"), to(hop.to))
					r.At(hop.to)
					r.Once()
					r.Settled(hop.to)
				})
			})
		}
	}
}

// Versions of a walk over three minor versions, by both APIs.
const (
	walkFrom = "1.11.5"
	walkTo   = "1.14.1"
)

// walk is a request that leads through two minor versions in between, by exact
// versions, so that tests do not change with the list of releases.
func walk(t testing.TB, share string) engine.Request {
	t.Helper()

	request := sharing(t, walkTo, share)
	request.Policy.AllowIntermediate = true
	request.Policy.Intermediate = []version.Version{version.MustParse("1.12.6"), version.MustParse("1.13.4")}

	return request
}

// walked are the versions in the order in which a node booted them.
func (r *rig) walked(node string) []string {
	var versions []string

	for _, boot := range r.Judge.Of(history.KindBoot) {
		if boot.Node == node {
			versions = append(versions, boot.Detail["talos"])
		}
	}

	return versions
}

func TestHop_WalkOverThreeReleaseLines(t *testing.T) {
	t.Parallel()

	for share, together := range map[string]int{"1": 1, "50%": 2} {
		t.Run(share, func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 3, Workers: 4, Talos: walkFrom, Seed: 73},
				Judging: []checker.Option{checker.MaxUnavailable(together)},
			}

			inCluster(t, given, func(r *rig) {
				r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 2})

				w := r.Worker("run-1")
				r.Must(w, walk(t, share))
				r.At(walkTo)

				want := []string{"1.12.6", "1.13.4", walkTo}
				for name := range r.Judge.Verdict().Nodes {
					if got := r.walked(name); !slices.Equal(got, want) {
						t.Errorf("%s booted %v, want %v", name, got, want)
					}
				}

				r.hopsDoNotOverlap(want)
				r.Settled(walkTo)
				tellsOfEachHop(t, w, want, 7)
			})
		})
	}
}

// TestHop_CanariesLeadEach: in each minor version everything waits for them.
func TestHop_CanariesLeadEach(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 4, Talos: walkFrom, Seed: 157},
		Judging: []checker.Option{checker.MaxUnavailable(2), checker.Canary("worker-2"), checker.Held("worker-3")},
	}

	inCluster(t, given, func(r *rig) {
		request := held(walk(t, "2"), "worker-3")
		request.Target.Talos = version.MustParse("1.13.4")
		request.Policy.Intermediate = request.Policy.Intermediate[:1]
		request.Policy.Canary, request.Policy.Settle = []string{"worker-2"}, time.Minute

		r.Must(r.Worker("run-1"), request)
		r.Sound()
		r.Tidy()
		r.rested(time.Minute)

		for _, version := range []string{"1.12.6", "1.13.4"} {
			for _, boot := range r.Judge.Of(history.KindBoot) {
				if boot.Detail["talos"] == version {
					if boot.Node != "worker-2" {
						t.Errorf("%s booted %s first", boot.Node, version)
					}

					break
				}
			}
		}
	})
}

// hopsDoNotOverlap fails the test when a node booted a version before every
// node had booted the one before it.
func (r *rig) hopsDoNotOverlap(order []string) {
	r.T.Helper()

	hop := 0

	for _, boot := range r.Judge.Of(history.KindBoot) {
		switch at := slices.Index(order, boot.Detail["talos"]); {
		case at < hop:
			r.T.Errorf("%s booted %s after another node had booted %s", boot.Node, boot.Detail["talos"], order[hop])
		default:
			hop = at
		}
	}
}

// tellsOfEachHop fails the test unless every node was said to begin and to end
// each hop.
func tellsOfEachHop(t testing.TB, w *worker, versions []string, nodes int) {
	t.Helper()

	told := map[string]int{}
	for _, event := range w.Events() {
		told[fmt.Sprintf("%s %s", event.Kind, event.To)]++
	}

	for _, version := range versions {
		for _, kind := range []cluster.EventKind{cluster.EventNodeStarted, cluster.EventNodeDone} {
			if count := told[fmt.Sprintf("%s %s", kind, version)]; count != nodes {
				t.Errorf("%d events %s to %s, want %d", count, kind, version, nodes)
			}
		}
	}
}

// TestHop_WalkGoesOnAfterACrash strikes a walk in each of its hops.
func TestHop_WalkGoesOnAfterACrash(t *testing.T) {
	t.Parallel()

	stride := 31
	if testing.Short() || raceEnabled {
		stride = 131
	}

	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 3, Talos: walkFrom, Seed: 79},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}
	request := walk(t, "2")

	crashEach(t, mutationsOf(t, given, request), 1, stride, lasts, func(kind crash, mutation int) {
		crashOnce(t, given, request, kind, mutation)
	})
}

// missing is a cluster whose nodes cannot get one image.
type missing struct {
	*ports.Client

	tag string
}

func (m *missing) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	if strings.HasSuffix(image, m.tag) {
		return fmt.Errorf("pull %s: manifest unknown: %w", image, cluster.ErrNotFound)
	}

	return m.Client.Pull(ctx, address, image, api)
}

// TestHop_ImageOfALaterOneIsMissedBeforeTheFirstCordon: what the last hop needs is
// found out before the first one has begun.
func TestHop_ImageOfALaterOneIsMissedBeforeTheFirstCordon(t *testing.T) {
	t.Parallel()

	for _, tag := range []string{":v1.13.4", ":v" + walkTo} {
		t.Run(tag, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: walkFrom, Seed: 83}}, func(r *rig) {
				client := r.Client("run-1")
				w := r.WorkerOver(client, &missing{Client: client, tag: tag}, client)

				failed := failure(t, w.Apply(context.Background(), walk(t, "1")), cluster.ErrNotFound, "worker-0")
				if !strings.Contains(failed.Error(), tag) {
					t.Errorf("the image is not named: %v", failed)
				}

				if cordons := r.Judge.Of(history.KindCordon); len(cordons) != 0 {
					t.Errorf("nodes were cordoned: %+v", cordons)
				}

				r.Sound()
				r.Tidy()
			})
		})
	}
}

// failure fails the test unless the error is of the kind, about the node, and
// says what was seen and what to do.
func failure(t testing.TB, err, kind error, node string) *say.Failure {
	t.Helper()

	var failed *say.Failure
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a failure with %v", err, kind)
	}

	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("got %v, want it to be %v", err, kind)
	}

	about, remedy := failed.Node, failed.Remedy
	for _, finding := range failed.Findings {
		if about == "" {
			about = finding.Node
		}

		if remedy == "" {
			remedy = finding.Remedy
		}
	}

	if about != node {
		t.Errorf("the failure is about node %q, want %q: %v", about, node, err)
	}

	if failed.Summary == "" || failed.Seen == "" && len(failed.Findings) == 0 || failed.State == "" || remedy == "" {
		t.Errorf("summary, what was seen, state or remedy is missing: %+v", failed)
	}

	return failed
}

// faultCase is a fault, and what it must lead to.
type faultCase struct {
	name   string
	legacy bool
	fault  model.Fault
	// want is the sentinel of the failure, and says a part of its summary; both
	// are empty when the run gets over it.
	want error
	says string
	// armed is true if the node stays cordoned until the next run.
	armed bool
	// again is true if the node itself needs another install or reboot later.
	again bool
}

// unpulled begins the summary of a failure to pull.
const unpulled = "Unable to pull"

func faultCases() []faultCase {
	always := func(step model.Step, effect model.Effect) model.Fault { return model.Fault{Step: step, Effect: effect} }
	once := func(step model.Step, effect model.Effect) model.Fault {
		return model.Fault{Step: step, Effect: effect, Times: 1}
	}
	lasting := func(step model.Step, effect model.Effect, d time.Duration) model.Fault {
		return model.Fault{Step: step, Effect: effect, Times: 1, For: d}
	}

	return []faultCase{
		{name: "pull fails", fault: always(model.StepPull, model.EffectFail), says: unpulled},
		{name: "pull fails once", fault: once(model.StepPull, model.EffectFail)},
		{name: "image does not exist", fault: always(model.StepPull, model.EffectNotFound), want: cluster.ErrNotFound},
		{name: "pull stalls", fault: lasting(model.StepPull, model.EffectStall, 3*time.Minute)},
		{name: "pull never ends", fault: always(model.StepPull, model.EffectStall), says: unpulled},
		{name: "reply to pull lost", fault: once(model.StepPull, model.EffectConnectionLost)},
		{name: "installer fails", fault: once(model.StepInstall, model.EffectFail), want: say.ErrInstaller, armed: true, again: true},
		{name: "installer fails having switched", fault: once(model.StepInstall, model.EffectFailArmed), want: say.ErrInstaller, armed: true, again: true},
		{name: "installer's end lost", fault: once(model.StepInstall, model.EffectConnectionLost)},
		{name: "installer's start lost", fault: once(model.StepInstall, model.EffectConnectionLostEarly)},
		{name: "apid away after the install", fault: lasting(model.StepInstall, model.EffectUnreachable, 2*time.Minute)},
		{name: "apid away after the install for long", fault: lasting(model.StepInstall, model.EffectUnreachable, 20*time.Minute)},
		{name: "reply to reboot lost", fault: once(model.StepReboot, model.EffectConnectionLost)},
		{name: "reboot fails", fault: once(model.StepReboot, model.EffectFail)},
		{name: "never returns", fault: once(model.StepBoot, model.EffectNeverReturns), want: say.ErrNeverReturned, armed: true},
		{name: "returns late", fault: lasting(model.StepBoot, model.EffectNeverReturns, 10*time.Minute)},
		{name: "apid away after the boot", fault: lasting(model.StepBoot, model.EffectUnreachable, 4*time.Minute)},
		{name: "drain blocked by a budget", fault: always(model.StepDrain, model.EffectBlockedByBudget), want: say.ErrDrain},
		{name: "replies to patches lost", fault: model.Fault{Step: model.StepPatch, Effect: model.EffectConnectionLost, Times: 2}},
		{name: "legacy: pull fails", legacy: true, fault: always(model.StepPull, model.EffectFail), says: unpulled},
		{name: "legacy: call fails", legacy: true, fault: once(model.StepLegacyUpgrade, model.EffectFail)},
		{name: "legacy: reply lost", legacy: true, fault: once(model.StepLegacyUpgrade, model.EffectConnectionLost)},
		{name: "legacy: never returns", legacy: true, fault: once(model.StepBoot, model.EffectNeverReturns), want: say.ErrNeverReturned, armed: true},
		{name: "legacy: installer fails", legacy: true, fault: once(model.StepInstall, model.EffectFail), want: say.ErrInstaller, again: true},
		{name: "legacy: drain blocked by a budget", legacy: true, fault: always(model.StepDrain, model.EffectBlockedByBudget), want: say.ErrDrain},
		{name: "legacy: apid away after the boot", legacy: true, fault: lasting(model.StepBoot, model.EffectUnreachable, 4*time.Minute)},
	}
}

// TestFault_SafeNamedAndGotOver strikes a worker and a control plane with each
// fault, looks at how the run ends, takes the fault away and applies again.
func TestFault_SafeNamedAndGotOver(t *testing.T) {
	t.Parallel()

	for _, node := range []string{"worker-1", "cp-1"} {
		for _, given := range faultCases() {
			t.Run(node+" "+given.name, func(t *testing.T) { strikeWithFault(t, node, given) })
		}
	}
}

func strikeWithFault(t *testing.T, node string, given faultCase) {
	from, target := fromLifecycle, toLifecycle
	if given.legacy {
		from, target = fromLegacy, toLegacy
	}

	given.fault.Node = node

	inCluster(t, setup{Options: model.Options{Talos: from, Seed: 3, Faults: []model.Fault{given.fault}}}, func(r *rig) {
		r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

		request := to(target)
		if given.fault.Step == model.StepDrain {
			request = undrained(request)
		}

		err := r.Worker("run-1").Apply(context.Background(), request)
		r.Sound()

		if len(r.Judge.Of(history.KindFault)) == 0 {
			t.Error("the fault never struck")
		}

		if given.want == nil && given.says == "" {
			if err != nil {
				t.Fatalf("the run did not get over it: %v\n%s", err, r.Judge.Text())
			}

			r.At(target)

			return
		}

		if failed := failure(t, err, given.want, node); !strings.Contains(failed.Summary, given.says) {
			t.Errorf("the summary is %q, want %q in it", failed.Summary, given.says)
		}

		r.stopped(node, given.armed)
		r.World().SetFaults(nil)

		r.Must(r.Worker("run-2"), to(target))
		r.At(target)

		if given.again {
			return
		}

		r.Once()
	})
}

// stopped fails the test unless a failed run left no lease, and no cordon but
// that of a node which may be armed.
func (r *rig) stopped(node string, armed bool) {
	r.T.Helper()

	if holder := r.Lease().Holder; holder != "" {
		r.T.Errorf("the lease is still held by %s", holder)
	}

	for name, found := range r.Judge.Verdict().Nodes {
		if want := armed && name == node; found.Cordoned != want {
			r.T.Errorf("%s: cordoned is %t, want %t\n%s", name, found.Cordoned, want, r.Judge.Text())
		}
	}

	if status := r.Annotations()["talos-status"]; status != "failed" {
		r.T.Errorf("talos-status is %q, want failed", status)
	}
}

func TestFallback_NotTriedAgainUntilTold(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct {
		from, to string
		step     model.Step
		effect   model.Effect
	}{
		"lifecycle": {fromLifecycle, toLifecycle, model.StepBoot, model.EffectFallback},
		"legacy":    {fromLegacy, toLegacy, model.StepBoot, model.EffectFallback},
	} {
		for _, node := range []string{"worker-0", "cp-2"} {
			t.Run(name+" "+node, func(t *testing.T) {
				fault := model.Fault{Node: node, Step: hop.step, Effect: hop.effect, Times: 1}

				inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 5, Faults: []model.Fault{fault}}}, func(r *rig) {
					err := r.Worker("run-1").Apply(context.Background(), to(hop.to))
					_ = failure(t, err, say.ErrFallback, node)
					r.Sound()
					r.stopped(node, false)

					again := r.Worker("run-2")
					_ = failure(t, again.Apply(context.Background(), to(hop.to)), say.ErrBlocked, node)

					if _, mutating := again.Client.Calls(); mutating != 0 {
						t.Errorf("the refused run made %d mutating calls", mutating)
					}

					told := to(hop.to)
					told.Policy.Retry = map[string]string{node: r.State(node).BootID}
					r.Must(r.Worker("run-3"), told)
					r.At(hop.to)
				})
			})
		}
	}
}

func TestFault_UnreachableNodeRefusesTheRun(t *testing.T) {
	t.Parallel()

	for _, node := range []string{"worker-0", "cp-0"} {
		t.Run(node, func(t *testing.T) {
			fault := model.Fault{Node: node, Step: model.StepObserve, Effect: model.EffectUnreachable, Times: 1}

			inCluster(t, setup{Options: model.Options{Seed: 9, Faults: []model.Fault{fault}}}, func(r *rig) {
				w := r.Worker("run-1")
				failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrBlocked, node)

				if !errors.Is(failed, cluster.ErrUnreachable) {
					t.Errorf("%v does not say that the node is unreachable", failed)
				}

				if _, mutating := w.Client.Calls(); mutating != 0 {
					t.Errorf("the refused run made %d mutating calls", mutating)
				}

				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestUpgrade_OfTheNodeThatTheRunIsOnIsRefused before anything is touched, and goes on where
// that node is held, or the check is skipped.
func TestUpgrade_OfTheNodeThatTheRunIsOnIsRefused(t *testing.T) {
	t.Parallel()

	runningOn := func(r *rig, node string) engine.Request {
		request := to(toLifecycle)
		request.Policy.OwnBootID = r.State(node).BootID

		return request
	}

	for _, node := range []string{"worker-0", "cp-0"} {
		t.Run(node, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Seed: 9}}, func(r *rig) {
				w := r.Worker("run-1")
				failed := failure(t, w.Apply(context.Background(), runningOn(r, node)), say.ErrBlocked, node)

				if !slices.ContainsFunc(failed.Findings, func(f cluster.Finding) bool { return f.Check == cluster.CheckOwnNode && f.Node == node }) {
					t.Errorf("it does not name the check: %v", failed)
				}

				if _, mutating := w.Client.Calls(); mutating != 0 {
					t.Errorf("the refused run made %d mutating calls", mutating)
				}

				skipping := runningOn(r, node)
				skipping.Policy.SkipChecks = map[string]bool{cluster.CheckOwnNode: true}

				r.Must(r.Worker("run-2"), skipping)
				r.At(toLifecycle)
				r.Once()
			})
		})

		t.Run(node+" is held", func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Seed: 9}, Judging: []checker.Option{checker.Held(node)}}, func(r *rig) {
				request := runningOn(r, node)
				request.Policy.Hold = map[string]bool{node: true}

				r.Must(r.Worker("run-1"), request)
				r.Sound()

				for _, state := range r.World().Nodes() {
					if held := state.Name == node; held == (state.Talos == toLifecycle) || held && state.BootID != request.Policy.OwnBootID {
						t.Errorf("%s runs %s", state.Name, state.Talos)
					}
				}
			})
		})
	}
}

// fastClock is the engine's clock over the one of a simulation that runs fast.
type fastClock struct{ *model.ScaledClock }

func (c fastClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.Real(d))
}

// outside runs an upgrade of a small cluster outside of any bubble, which would
// hide what goes on after the end. It returns when nothing of it may be left.
func outside(t *testing.T, seed uint64, ports func(*ports.Client) cluster.Talos, during func(*model.ScaledClock, *ports.Client, context.CancelFunc)) error {
	t.Helper()

	const factor = 2000

	clock := model.NewScaledClock(factor)
	r := newRig(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1, Clock: clock, Seed: seed}})

	defer r.Stop()

	client := r.Client("run-1")
	w := engine.New(engine.Options{
		Talos: ports(client), Kubernetes: client, Removals: client, Manifests: client, Workloads: client, Run: "run-1", Clock: fastClock{clock},
	})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	during(clock, client, cancel)

	_, err := w.Upgrade(ctx, to(toLifecycle))

	return err
}

func plainly(client *ports.Client) cluster.Talos { return client }

func TestLeak_NoneAfterAnUpgrade(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())

	err := outside(t, 0, plainly, func(*model.ScaledClock, *ports.Client, context.CancelFunc) {})
	if err != nil {
		t.Errorf("the upgrade ended with %v", err)
	}
}

// TestLeak_NoneWhereverItIsCancelled cancels runs at random moments.
func TestLeak_NoneWhereverItIsCancelled(t *testing.T) {
	const (
		moments = 10
		length  = 4 * time.Minute
	)

	random := rand.New(rand.NewPCG(23, 29)) //nolint:gosec // moments, not secrets

	for range moments {
		moment, seed := time.Duration(random.Int64N(int64(length))), random.Uint64()
		before := goleak.IgnoreCurrent()

		err := outside(t, seed, plainly, func(clock *model.ScaledClock, _ *ports.Client, cancel context.CancelFunc) {
			time.AfterFunc(clock.Real(moment), cancel)
		})
		if err == nil {
			t.Errorf("cancelled after %s, the upgrade ended well", moment)
		}

		if leaked := goleak.Find(before); leaked != nil {
			t.Fatalf("cancelled after %s with seed %d: %v", moment, seed, leaked)
		}
	}
}

// TestLeak_NoneWhereTheConnectionDies has every call fail from some mutating
// call on, which hangs until its context ends.
func TestLeak_NoneWhereTheConnectionDies(t *testing.T) {
	const moments, calls = 10, 25

	random := rand.New(rand.NewPCG(31, 37)) //nolint:gosec // moments, not secrets

	for range moments {
		at, seed := 1+random.IntN(calls), random.Uint64()
		before := goleak.IgnoreCurrent()

		err := outside(t, seed, plainly, func(clock *model.ScaledClock, client *ports.Client, cancel context.CancelFunc) {
			client.Intercept(cutAt(at, func() { time.AfterFunc(clock.Real(time.Minute), cancel) }))
		})
		if err == nil {
			t.Errorf("with its connection dead at mutation %d, the upgrade ended well", at)
		}

		if leaked := goleak.Find(before); leaked != nil {
			t.Fatalf("with its connection dead at mutation %d and seed %d: %v", at, seed, leaked)
		}
	}
}

// cutAt has all calls hang until their contexts end, from a mutating call on; then
// is done once.
func cutAt(mutation int, then func()) ports.Interceptor {
	var dead atomic.Bool

	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Mutation >= mutation && !dead.Swap(true) {
			then()
		}

		if !dead.Load() {
			return next(ctx)
		}

		<-ctx.Done()

		return fmt.Errorf("no reply: %w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	}
}

// leaky is a connection that leaves a goroutine behind with each look.
type leaky struct {
	cluster.Talos

	held <-chan struct{}
}

func (l leaky) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	go func() { <-l.held }()

	return l.Talos.Machine(ctx, address, known, extent)
}

// leaksSomething is about L6: what looks for leaks sees one.
func leaksSomething(t *testing.T) {
	held := make(chan struct{})
	before := goleak.IgnoreCurrent()

	err := outside(t, 0, func(client *ports.Client) cluster.Talos { return leaky{client, held} },
		func(*model.ScaledClock, *ports.Client, context.CancelFunc) {})
	if err != nil {
		t.Errorf("the upgrade ended with %v", err)
	}

	if leaked := goleak.Find(before); leaked == nil || !strings.Contains(leaked.Error(), "leaky") {
		t.Errorf("with a connection that leaks, goleak finds %v", leaked)
	}

	close(held)

	if leaked := goleak.Find(before); leaked != nil {
		t.Errorf("with what leaked given free, goleak finds %v", leaked)
	}

	if seen := leaksInBubble(t); !strings.Contains(seen, "goroutines remain") {
		t.Errorf("of a connection that leaks, a bubble says %q", seen)
	}
}

// leaksInBubble is what a bubble says when something is left in it.
func leaksInBubble(t *testing.T) (seen string) {
	defer func() { seen = fmt.Sprint(recover()) }()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, func(r *rig) {
		client := r.Client("run-1")
		r.Must(r.WorkerOver(client, leaky{client, make(chan struct{})}, client), to(toLifecycle))
	})

	return ""
}

// TestUpgrade_SameSeedTellsTheSameStory is what every other test of this kind leans on:
// a failure can be had again.
func TestUpgrade_SameSeedTellsTheSameStory(t *testing.T) {
	t.Parallel()

	const repetitions = 5

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			var first string

			for range repetitions {
				inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 33}}, func(r *rig) {
					r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})
					r.Must(r.Worker("run-1"), to(hop.to))

					// What happens at one and the same instant has no order, nor have the numbers
					// of the writes.
					lines := strings.Split(regexp.MustCompile(`version=\d+`).ReplaceAllString(r.Judge.Text(), ""), "\n")
					slices.Sort(lines)

					if story := strings.Join(lines, "\n"); first == "" {
						first = story
					} else if story != first {
						t.Errorf("another story:\n%s\nthan before:\n%s", story, first)
					}
				})
			}
		})
	}
}
