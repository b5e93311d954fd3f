// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// plantedVersions are bugs about what is installed where: S4, S5 and S6.
func plantedVersions() []planted {
	return []planted{
		{
			name: "the journal is not kept", want: []checker.Invariant{checker.S4}, die: true,
			plant: func(_ *rig, l *liar) { l.noJournal = true },
		},
		{
			name: "the journal goes by the UUID of the hardware, which two machines share", want: []checker.Invariant{checker.S4},
			die: true, blind: true, alsoOthers: true, lie: silence,
			prepare: func(r *rig) {
				if err := r.World().SetUUID("worker-1", r.State("worker-0").UUID); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(r *rig, l *liar) {
				// The one that is armed is silent for as long as the journal tells of it.
				armed := r.State("worker-0")
				l.mute = func(address string) bool {
					_, told := r.Journal().Entries[armed.UUID]

					return address == armed.Address && told && r.State("worker-0").Installs > 0
				}
				l.uuids = map[string]string{}
				for _, state := range r.World().Nodes() {
					l.uuids[state.MachineID] = state.UUID
				}
			},
		},
		{
			name: "a node at the target is taken for one behind it", want: []checker.Invariant{checker.S4},
			setup: setup{Options: model.Options{Talos: toLifecycle}},
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) { m.Talos = version.MustParse(fromLifecycle) }
			},
		},
		{
			// The next worker may be cordoned by a look from before it.
			name: "a node at the target is rebooted", want: []checker.Invariant{checker.S4}, alsoOthers: true,
			meddle: behind("Uncordon", "worker-0", 1, func(ctx context.Context, h hand) { h.reboot(ctx, "worker-0") }),
		},
		{
			name: "an install that never began is taken for one that may have run", want: []checker.Invariant{checker.S4},
			setup: setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectNotStarted, Times: 1}}}},
			plant: func(_ *rig, l *liar) { l.install = forgetful },
		},
		{
			name: "an installer that wrote nothing is taken for one that may have", want: []checker.Invariant{checker.S4}, target: "1.14.1",
			setup: setup{Options: model.Options{
				Talos: "1.14.0", Faults: []model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectRefuse, Times: 1}},
			}},
			plant: func(_ *rig, l *liar) { l.install = forgetful },
		},
		{
			name: "holds are not known", want: []checker.Invariant{checker.S4},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, Judging: []checker.Option{checker.Held("worker-1")}},
			lie:   silence,
		},
		{
			name: "holds are not known of in the other half", want: []checker.Invariant{checker.S4}, request: newKubernetes,
			setup: setup{Options: model.Options{Kubernetes: fromKubernetes}, Judging: []checker.Option{checker.Held("worker-1")}}, lie: silence,
		},
		{
			name: "a minor is skipped", want: []checker.Invariant{checker.S5}, target: toLegacy,
			setup: setup{Options: model.Options{Talos: "1.11.5"}},
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) {
					if m.Talos.Minor().Minor == 11 {
						m.Talos = version.MustParse(fromLegacy)
					}
				}
			},
			lie: silence,
		},
		{
			name: "an older release is installed over a newer one", want: []checker.Invariant{checker.S5}, target: "1.13.3",
			setup: setup{Options: model.Options{Talos: toLifecycle}}, lie: silence,
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) { m.Talos = version.MustParse(fromLifecycle) }
			},
		},
		{
			name: "kubelets move along with Talos", want: []checker.Invariant{checker.S5}, target: toLegacy,
			setup: setup{Options: model.Options{Talos: fromLegacy, Unpinned: true}},
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) {
					m.Config.Images = map[cluster.Component]string{}
					for _, component := range cluster.Components(m.Role) {
						m.Config.Images[component] = "registry.k8s.io/" + string(component) + ":v" + kubernetes
					}
				}
			},
		},
		{
			name: "a node that boots a UKI is taken for one that does not", want: []checker.Invariant{checker.S5},
			setup: setup{Options: model.Options{Platform: "aws", UKI: true}}, lie: silence,
			plant: func(_ *rig, l *liar) { l.machine = func(m *cluster.Machine) { m.BootedWithUKI = false } },
		},
		{
			name: "the support matrix is not asked", want: []checker.Invariant{checker.S6}, target: "1.14.1",
			setup: setup{Options: model.Options{Kubernetes: "1.31.4"}},
			plant: func(_ *rig, l *liar) { l.kubernetes = kubernetes },
		},
	}
}

// plantedComponents are bugs about what components run: S4 and S5.
func plantedComponents() []planted {
	// moves has a kubelet run a version before the run changes anything.
	moves := func(to string) meddling {
		return ahead("Configure", "cp-0", 1, func(ctx context.Context, h hand) {
			h.look(ctx)
			h.configure(ctx, "worker-1", cluster.Kubelet, fromKubernetes, to)
			h.rig.Until("moved", 5*time.Minute, func() bool { return h.rig.State("worker-1").Kubelet.Version == to })
			h.look(ctx)
		})
	}

	return []planted{
		{
			name: "a component goes back", want: []checker.Invariant{checker.S5}, setup: oldKubernetes(), request: newKubernetes, meddle: moves("1.34.1"),
		},
		{
			name: "a component skips a minor", want: []checker.Invariant{checker.S5}, setup: oldKubernetes(), request: newKubernetes, meddle: moves("1.36.1"),
		},
		{
			name: "a configuration is applied that changes nothing", want: []checker.Invariant{checker.S4},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.reapply(ctx, "worker-1"))
				h.look(ctx)
			}),
		},
		{
			name: "a component restarts for what it runs already", want: []checker.Invariant{checker.S4},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", 1, func(ctx context.Context, h hand) {
				const runs, passes = "1.34.3", "1.34.4"

				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, fromKubernetes, runs)
				h.rig.Until("moved", 5*time.Minute, func() bool { return h.rig.State("worker-1").Kubelet.Version == runs })
				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, runs, passes)
				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, passes, runs)
				h.look(ctx)
			}),
		},
	}
}

// plantedRollbacks are bugs about the way back: S4 and S5.
func plantedRollbacks() []planted {
	ill := setup{Options: model.Options{Faults: []model.Fault{neverReady("worker-0")}}}

	return []planted{
		{
			// It is no journalled one, so it is a reboot at the target too.
			name: "a node is rolled back that nobody gave up", want: []checker.Invariant{checker.S5}, alsoOthers: true, lie: silence,
			meddle: behind("Uncordon", "worker-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.Rollback(ctx, "worker-0"))
			}),
		},
		{
			name: "a rollback is asked for twice", want: []checker.Invariant{checker.S4}, setup: ill, lie: silence,
			request: impatient,
			meddle: behind("Rollback", "worker-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.Rollback(ctx, "worker-0"))
			}),
		},
		{
			name: "a rollback is not journalled", want: []checker.Invariant{checker.S5}, alsoOthers: true, setup: ill, lie: silence,
			request: impatient,
			plant:   func(_ *rig, l *liar) { l.forgets = cluster.PhaseRollingBack },
		},
		{
			name: "a rollback that a person asks for has no guards", want: []checker.Invariant{checker.S1, checker.S2}, alsoOthers: true, lie: silence,
			prepare: func(r *rig) {
				r.upgraded(toLifecycle)
				r.loseForGood("cp-2")
			},
			plant: func(_ *rig, l *liar) { l.hidden, l.like = "cp-2", "cp-1" },
			does:  func(ctx context.Context, w *worker, _ engine.Request) error { return w.RollBack(ctx, "cp-1") },
			blind: true,
		},
		{
			name: "a rollback that a person asks for undoes itself", want: []checker.Invariant{checker.S4}, lie: silence,
			prepare: func(r *rig) { r.upgraded(toLifecycle) },
			does:    func(ctx context.Context, w *worker, _ engine.Request) error { return w.RollBack(ctx, "worker-0") },
			meddle: behind("Rollback", "worker-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.Rollback(ctx, "worker-0"))
			}),
		},
		{
			name: "a rollback that a person asks for is not journalled", want: []checker.Invariant{checker.S5}, alsoOthers: true, lie: silence,
			prepare: func(r *rig) { r.upgraded(toLifecycle) },
			does:    func(ctx context.Context, w *worker, _ engine.Request) error { return w.RollBack(ctx, "worker-0") },
			plant:   func(_ *rig, l *liar) { l.forgets = cluster.PhaseRollingBack },
		},
	}
}

// impatient is a request that soon sends a node back.
func impatient(*rig) engine.Request {
	request := returning(to(toLifecycle))
	request.Policy.NodeTimeout = 6 * time.Minute

	return request
}

// forgetful does not tell an install that was refused from one whose end is lost.
func forgetful(done cluster.Installation, err error) (cluster.Installation, error) {
	if err != nil || done.Exit != 0 {
		return cluster.Installation{}, cluster.ErrOutcomeUnknown
	}

	return done, nil
}
