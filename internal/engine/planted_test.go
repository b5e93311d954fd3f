// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// plantedMost is how long an engine with a planted bug may go on.
const plantedMost = 20 * time.Minute

// planted is a bug, and the invariants that it must break: no other ones.
type planted struct {
	name  string
	want  []checker.Invariant
	setup setup
	// target is toLifecycle when empty.
	target string
	// prepare changes the cluster before the run.
	prepare func(*rig)
	// plant puts the bug between the engine and the cluster.
	plant func(*rig, *liar)
	// lie makes the publisher claim something.
	lie func(map[string]string)
	// blind drops all guards, and has a control plane fall silent behind the
	// first install.
	blind bool
	// forgets is a guard that is not asked; a worker falls ill meanwhile.
	forgets string
	// share is how many workers may be unavailable as far as the engine knows.
	share string
	// skips is a check that is only a warning.
	skips string
	// die has a first run with the same bug end at its first install.
	die bool
}

// silence claims nothing: what a liar makes an engine believe is another bug.
func silence(claims map[string]string) { clear(claims) }

func plantedBugs() []planted {
	return []planted{
		{
			name: "a control plane that is down goes unnoticed", want: []checker.Invariant{checker.S1},
			setup:   setup{Options: model.Options{ControlPlanes: 5}},
			prepare: func(r *rig) { r.loseForGood("cp-4") },
			plant:   func(_ *rig, l *liar) { l.hide("cp-4", "cp-3") },
			lie:     silence,
		},
		{
			// With three members every second one that is down costs quorum too.
			name: "a lost member of etcd goes unnoticed", want: []checker.Invariant{checker.S1, checker.S2},
			setup:   setup{Options: model.Options{ControlPlanes: 3}},
			prepare: func(r *rig) { r.loseForGood("cp-2") },
			plant:   func(_ *rig, l *liar) { l.hide("cp-2", "cp-1") },
			lie:     silence,
		},
		{
			name: "observations are remembered", want: []checker.Invariant{checker.S3},
			plant: func(_ *rig, l *liar) { l.remember = 45 * time.Second },
		},
		{
			name: "no guard is asked", want: []checker.Invariant{checker.S3}, blind: true,
		},
		{
			name: "the journal is not kept", want: []checker.Invariant{checker.S4}, die: true,
			plant: func(_ *rig, l *liar) { l.noJournal = true },
		},
		{
			name: "a node at the target is taken for one behind it", want: []checker.Invariant{checker.S4},
			setup: setup{Options: model.Options{Talos: toLifecycle}},
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) { m.Talos = version.MustParse(fromLifecycle) }
			},
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
			name: "the support matrix is not asked", want: []checker.Invariant{checker.S6}, target: "1.14.1",
			setup: setup{Options: model.Options{Kubernetes: "1.31.4"}},
			plant: func(_ *rig, l *liar) { l.kubernetes = kubernetes },
		},
		{
			name: "the lease of somebody else is ignored", want: []checker.Invariant{checker.S7},
			prepare: func(r *rig) {
				if err := r.HoldLease("somebody"); err != nil {
					r.t.Fatal(err)
				}
			},
			plant: func(_ *rig, l *liar) { l.noLease = true },
			setup: setup{judging: []checker.Option{checker.LeaseDuration(plantedMost)}},
		},
		{
			name: "completion is claimed too early", want: []checker.Invariant{checker.S8},
			lie: func(claims map[string]string) { claims["talos-status"] = "completed" },
		},
		{
			name: "progress is counted too high", want: []checker.Invariant{checker.S8},
			lie: func(claims map[string]string) {
				claims["talos-progress"] = strings.NewReplacer("0/", "1/", "1/", "2/", "2/", "3/", "3/", "4/").Replace(claims["talos-progress"])
			},
		},
		{
			name: "the target is claimed to run", want: []checker.Invariant{checker.S8},
			lie: func(claims map[string]string) { claims["talos-current"] = toLifecycle },
		},
		{
			name: "every cordon is lifted", want: []checker.Invariant{checker.S9},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 1}},
			prepare: func(r *rig) {
				if err := r.CordonAsPerson("worker-0", true); err != nil {
					r.t.Fatal(err)
				}
			},
			plant: func(r *rig, l *liar) { l.uncordon = r.UncordonAnyway },
		},
		{
			name: "cordoned workers are not counted", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 3}},
			prepare: func(r *rig) {
				if err := r.CordonAsPerson("worker-2", true); err != nil {
					r.t.Fatal(err)
				}
			},
			plant: func(_ *rig, l *liar) { l.schedulable = "worker-2" },
		},
		{
			name: "more workers move at a time than may", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, judging: []checker.Option{checker.MaxUnavailable(2)}},
			share: "3",
		},
		{
			name: "a worker that fell ill meanwhile is not counted", want: []checker.Invariant{checker.S10}, forgets: "nodes-ready",
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, judging: []checker.Option{checker.MaxUnavailable(2)}},
			share: "2",
		},
		{
			name: "canaries are not known", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, judging: []checker.Option{checker.Canary("worker-1")}},
		},
		{
			name: "holds are not known", want: []checker.Invariant{checker.S4},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, judging: []checker.Option{checker.Held("worker-1")}},
			lie:   silence,
		},
		{
			name: "pods are deleted instead of evicted", want: []checker.Invariant{checker.S11}, skips: cluster.CheckDrain,
			prepare: func(r *rig) { r.AddPod("precious", "worker-0", &ports.Budget{MinAvailable: 1}) },
			plant:   func(_ *rig, l *liar) { l.deletes = true },
		},
		{
			name: "no lease is taken", want: []checker.Invariant{checker.S12},
			plant: func(_ *rig, l *liar) { l.noLease = true },
		},
	}
}

// TestPlantedBugIsCaught shows that the checker sees what it is there for.
func TestPlantedBugIsCaught(t *testing.T) {
	for _, bug := range plantedBugs() {
		t.Run(bug.name, func(t *testing.T) {
			inCluster(t, bug.setup, func(r *rig) { r.run(bug) })
		})
	}
}

func (r *rig) run(bug planted) {
	if bug.prepare != nil {
		bug.prepare(r)
	}

	request := to(cmp.Or(bug.target, toLifecycle))
	if bug.share != "" {
		request.Policy.MaxUnavailable = sharing(r.t, toLifecycle, bug.share).Policy.MaxUnavailable
	}

	request.Policy.SkipChecks = map[string]bool{bug.skips: true}

	ctx, cancel := context.WithTimeout(context.Background(), plantedMost)
	defer cancel()

	if bug.die {
		dying, end := context.WithCancel(ctx)
		first := r.lying("run-1", bug)
		hit := newStrike(dieAfter, -1, end)
		first.client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Install" {
				call.Mutation = hit.mutation
			}

			return hit.intercept(ctx, call, next)
		})

		_ = first.upgrade(dying, request)
	}

	// What becomes of the run does not matter.
	err := r.lying("run-2", bug).upgrade(ctx, request)

	verdict := r.judge.verdict()
	if broken := verdict.Broken(); !slices.Equal(broken, bug.want) {
		r.t.Errorf("broke %v, want %v: %+v\nthe run ended with %v\n%s", broken, bug.want, verdict.Violations, err, r.judge.text())
	}
}

// lying connects an engine with the bug between it and the cluster.
func (r *rig) lying(run string, bug planted) *worker {
	client := r.Client(run)
	between := &liar{Client: client}

	if bug.plant != nil {
		bug.plant(r, between)
	}

	made := r.workerOver(client, between, between)
	made.notes.lie = bug.lie

	if bug.forgets != "" {
		made.DropGuard(bug.forgets)
		client.Intercept(r.fallsIll("worker-3"))
	}

	if bug.blind {
		made.DropGuards()
		r.during(made, "Install", "worker-0", func() { r.World().SetFaults(silent("cp-2")) })
	}

	return made
}

// loseForGood has a person reboot a machine that does not come back.
func (r *rig) loseForGood(node string) {
	r.t.Helper()

	r.World().SetFaults([]model.Fault{{Node: node, Step: model.StepBoot, Effect: model.EffectNeverReturns}})

	if _, err := r.World().Reboot(context.Background(), node, model.RebootDefault); err != nil {
		r.t.Fatal(err)
	}

	r.until("dead", 5*time.Minute, func() bool { return r.node(node).Dead })
}
