// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// failure fails the test unless the error is of the kind, about the node, and
// says what was seen and what to do.
func failure(t testing.TB, err, kind error, node string) *engine.Failure {
	t.Helper()

	var failed *engine.Failure
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
	// armed tells that the node stays cordoned until the next run.
	armed bool
	// again tells that the node itself needs another install or reboot later.
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
		{name: "installer fails", fault: once(model.StepInstall, model.EffectFail), want: engine.ErrInstaller, armed: true, again: true},
		{name: "installer fails having switched", fault: once(model.StepInstall, model.EffectFailArmed), want: engine.ErrInstaller, armed: true, again: true},
		{name: "installer's end lost", fault: once(model.StepInstall, model.EffectConnectionLost)},
		{name: "installer's start lost", fault: once(model.StepInstall, model.EffectConnectionLostEarly)},
		{name: "apid away after the install", fault: lasting(model.StepInstall, model.EffectUnreachable, 2*time.Minute)},
		{name: "apid away after the install for long", fault: lasting(model.StepInstall, model.EffectUnreachable, 20*time.Minute)},
		{name: "reply to reboot lost", fault: once(model.StepReboot, model.EffectConnectionLost)},
		{name: "reboot fails", fault: once(model.StepReboot, model.EffectFail)},
		{name: "never returns", fault: once(model.StepBoot, model.EffectNeverReturns), want: engine.ErrNeverReturned, armed: true},
		{name: "returns late", fault: lasting(model.StepBoot, model.EffectNeverReturns, 10*time.Minute)},
		{name: "apid away after the boot", fault: lasting(model.StepBoot, model.EffectUnreachable, 4*time.Minute)},
		{name: "drain blocked by a budget", fault: always(model.StepDrain, model.EffectBlockedByBudget), want: engine.ErrDrain},
		{name: "replies to patches lost", fault: model.Fault{Step: model.StepPatch, Effect: model.EffectConnectionLost, Times: 2}},
		{name: "legacy: pull fails", legacy: true, fault: always(model.StepPull, model.EffectFail), says: unpulled},
		{name: "legacy: call fails", legacy: true, fault: once(model.StepLegacyUpgrade, model.EffectFail)},
		{name: "legacy: reply lost", legacy: true, fault: once(model.StepLegacyUpgrade, model.EffectConnectionLost)},
		{name: "legacy: never returns", legacy: true, fault: once(model.StepBoot, model.EffectNeverReturns), want: engine.ErrNeverReturned, armed: true},
		{name: "legacy: installer fails", legacy: true, fault: once(model.StepInstall, model.EffectFail), want: engine.ErrInstaller, again: true},
		{name: "legacy: drain blocked by a budget", legacy: true, fault: always(model.StepDrain, model.EffectBlockedByBudget), want: engine.ErrDrain},
		{name: "legacy: apid away after the boot", legacy: true, fault: lasting(model.StepBoot, model.EffectUnreachable, 4*time.Minute)},
	}
}

// TestFaultIsSafeNamedAndGotOver strikes a worker and a control plane with each
// fault, looks at how the run ends, takes the fault away and applies again.
func TestFaultIsSafeNamedAndGotOver(t *testing.T) {
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
		r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

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

func TestFallbackIsNotTriedAgainUntilTold(t *testing.T) {
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
					_ = failure(t, err, engine.ErrFallback, node)
					r.Sound()
					r.stopped(node, false)

					again := r.Worker("run-2")
					_ = failure(t, again.Apply(context.Background(), to(hop.to)), engine.ErrBlocked, node)

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

func TestUnreachableNodeRefusesTheRun(t *testing.T) {
	for _, node := range []string{"worker-0", "cp-0"} {
		t.Run(node, func(t *testing.T) {
			fault := model.Fault{Node: node, Step: model.StepObserve, Effect: model.EffectUnreachable, Times: 1}

			inCluster(t, setup{Options: model.Options{Seed: 9, Faults: []model.Fault{fault}}}, func(r *rig) {
				w := r.Worker("run-1")
				failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), engine.ErrBlocked, node)

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
