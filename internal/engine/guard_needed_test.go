// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// neededGuard is a guard, and what goes wrong without it.
type neededGuard struct {
	name string
	// guards are those that see it: some troubles are seen by more than one.
	guards []string
	want   checker.Invariant
	setup  setup
	// request is the careless one where it is nil.
	request func() engine.Request
	// at is when happens begins. Where it is empty, that is when cp-0 has been cordoned:
	// from there on nothing but the guards before the install and before the reboot
	// look.
	at      event
	happens func(*rig)
	// over ends it, so that the next run can finish.
	over func(*rig)
}

func neededGuards() []neededGuard {
	faulty := func(effect model.Effect) func(*rig) {
		return func(r *rig) {
			r.World().SetFaults([]model.Fault{{Node: "cp-1", Step: model.StepEtcd, Effect: effect}})
		}
	}

	mended := func(r *rig) { r.World().SetFaults(nil) }

	five := setup{Options: model.Options{ControlPlanes: 5}}

	return []neededGuard{
		{
			name: "a label that holds the node", guards: []string{cluster.CheckSelectors}, want: checker.S4,
			setup:   labelled(3),
			request: func() engine.Request { return restraining(to(toLifecycle)) },
			at:      event{method: "Vitals", node: "worker-1", installed: "worker-0"},
			happens: func(r *rig) {
				r.give(restrained, "worker-1")
				time.Sleep(5 * time.Second)
			},
			over: func(r *rig) { r.take(restrained, "worker-1") },
		},
		{name: "an alarm without space", guards: []string{cluster.CheckEtcdAlarms}, want: checker.S2, happens: faulty(model.EffectAlarmNoSpace), over: mended},
		{name: "an alarm of corruption", guards: []string{cluster.CheckEtcdAlarms}, want: checker.S2, happens: faulty(model.EffectAlarmCorrupt), over: mended},
		{name: "a member that lags", guards: []string{cluster.CheckEtcdRaftLag}, want: checker.S2, happens: faulty(model.EffectLagging), over: mended},
		{name: "a member that becomes a learner", guards: []string{cluster.CheckEtcdMembers}, want: checker.S2, setup: five, happens: faulty(model.EffectLearner), over: mended},
		{name: "a member that reports errors", guards: []string{cluster.CheckEtcdQuorum}, want: checker.S2, happens: faulty(model.EffectReports), over: mended},
		{name: "a member that sees no leader", guards: []string{cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum}, want: checker.S2, happens: faulty(model.EffectNoLeader), over: mended},
		{name: "a member that is silent", guards: []string{cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum}, want: checker.S2, happens: faulty(model.EffectSilent), over: mended},
		{
			name: "a control plane that is not Ready", guards: []string{"control-planes", cluster.CheckTalosAPI, cluster.CheckControlPlane}, want: checker.S1,
			happens: func(r *rig) {
				r.World().SetFaults([]model.Fault{{Node: "cp-1", Step: model.StepKubelet, Effect: model.EffectNotReady}})
			},
			over: mended,
		},
		{
			name: "somebody else's upgrade", want: checker.S1, setup: five,
			guards: []string{cluster.CheckExternalChanges, "control-planes", cluster.CheckTalosAPI, cluster.CheckControlPlane, cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum},
			happens: func(r *rig) {
				if err := r.World().RebootByHand("cp-3", model.RebootDefault); err != nil {
					r.T.Error(err)
				}
			},
			over: func(r *rig) {
				r.Until("back", 10*time.Minute, func() bool { return r.State("cp-3").Kubelet.Ready })
			},
		},
	}
}

// careless is a request whose planner overlooks what the guards are there for.
func careless() engine.Request {
	request := to(toLifecycle)
	request.Policy.Order = cluster.ControlPlanesFirst
	request.Policy.Drain.Enabled = true

	return request
}

// TestEachGuardIsNeeded has something go wrong in the middle of a turn: with the
// guard the run stops or waits and breaks nothing, without it the checker sees
// what it must not.
func TestEachGuardIsNeeded(t *testing.T) {
	for _, given := range neededGuards() {
		t.Run(given.name, func(t *testing.T) {
			if given.request == nil {
				given.request = careless
			}

			if given.at.method == "" {
				given.at = event{method: "Cordon", node: "cp-0"}
			}

			inCluster(t, given.setup, func(r *rig) {
				r.AddApp("web", 4, &ports.Budget{MinAvailable: 2})

				guarded := r.Worker("run-1")
				given.at.do = func() { given.happens(r) }
				r.happening(guarded, given.at)

				_ = guarded.Apply(context.Background(), given.request())
				r.Sound()

				given.over(r)
				r.Must(r.Worker("run-2"), given.request())
				r.At(toLifecycle)
			})

			inCluster(t, given.setup, func(r *rig) {
				blind := r.Worker("run-1")
				given.at.do = func() {
					given.happens(r)

					// It has been wrong for longer than one look may be old.
					time.Sleep(40 * time.Second)
				}
				r.happening(blind, given.at)

				for _, guard := range given.guards {
					blind.DropGuard(guard)
				}

				ctx, cancel := context.WithTimeout(context.Background(), plantedMost)
				defer cancel()

				_ = blind.Apply(ctx, given.request())

				if broken := r.Judge.Verdict().Broken(); !slices.Contains(broken, given.want) {
					t.Errorf("without %q the run broke %v, want %s\n%s", given.guards, broken, given.want, r.Judge.Text())
				}
			})
		})
	}
}
