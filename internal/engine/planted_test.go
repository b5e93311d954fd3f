// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// plantedMost is how long an engine with a planted bug may go on.
const plantedMost = 20 * time.Minute

// planted is a bug, and the invariants that it must break: no other ones.
type planted struct {
	name string
	want []checker.Invariant
	// alsoOthers: what goes wrong may break other invariants too.
	alsoOthers bool
	setup      setup
	// target is toLifecycle when empty; request replaces it.
	target  string
	request func(*rig) engine.Request
	// prepare changes the cluster before the run.
	prepare func(*rig)
	// plant puts the bug between the engine and the cluster.
	plant func(*rig, *liar)
	// meddle does more than the engine asks for.
	meddle meddling
	// lie makes the publisher claim something.
	lie func(map[string]string)
	// blind drops all guards, forgets some of them.
	blind   bool
	forgets []string
	// share is how many workers may be unavailable as far as the engine knows.
	share string
	// skips is a check that is only a warning.
	skips string
	// die has a first run with the same bug end at its first install.
	die bool
	// does replaces the upgrade.
	does func(context.Context, *worker, engine.Request) error
}

// silence claims nothing: what a liar makes an engine believe is another bug.
func silence(claims map[string]string) { clear(claims) }

func plantedBugs() []planted {
	return slices.Concat(
		plantedDisruptions(), plantedVersions(), plantedComponents(), plantedRestarts(), plantedWriters(), plantedClaims(), plantedPolicies(),
		plantedRollbacks(), neglected(), plantedOperators(), plantedStatuses(),
	)
}

// TestPlantedBugIsCaught shows that the checker sees what it is there for: each
// sentence that it can say is said of some bug.
func TestPlantedBugIsCaught(t *testing.T) {
	said := newSayings(t)
	bugs := plantedBugs()

	var ran atomic.Int32

	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			ran.Add(1)
			inCluster(t, bug.setup, func(r *rig) { said.heard(r.run(bug)) })
		})
	}

	if int(ran.Load()) == len(bugs) {
		said.complete(t)
	}
}

// run lets an engine with the bug upgrade the cluster, and tells what the checker
// said about it.
func (r *rig) run(bug planted) []checker.Violation {
	if bug.prepare != nil {
		bug.prepare(r)
	}

	request := to(cmp.Or(bug.target, toLifecycle))
	if bug.request != nil {
		request = bug.request(r)
	}

	if bug.share != "" {
		request.Policy.MaxUnavailable = sharing(r.T, toLifecycle, bug.share).Policy.MaxUnavailable
	}

	if bug.skips != "" {
		request.Policy.SkipChecks = map[string]bool{bug.skips: true}
	}

	ctx, cancel := context.WithTimeout(context.Background(), plantedMost)
	defer cancel()

	if bug.die {
		r.dieInstalling(ctx, r.lying("run-1", bug), request)
	}

	does := func(ctx context.Context, w *worker, request engine.Request) error { return w.Apply(ctx, request) }
	if bug.does != nil {
		does = bug.does
	}

	// What becomes of the run does not matter.
	err := does(ctx, r.lying("run-2", bug), request)

	verdict := r.Judge.Verdict()
	broken := verdict.Broken()

	if bug.alsoOthers {
		broken = slices.DeleteFunc(broken, func(i checker.Invariant) bool { return !slices.Contains(bug.want, i) })
	}

	if !slices.Equal(broken, bug.want) {
		r.T.Errorf("broke %v, want %v: %+v\nthe run ended with %v\n%s", broken, bug.want, verdict.Violations, err, r.Judge.Text())
	}

	return verdict.Violations
}

// dieInstalling has a run end behind its first install.
func (r *rig) dieInstalling(ctx context.Context, first *worker, request engine.Request) {
	dying, end := context.WithCancel(ctx)
	defer end()

	hit := newStrike(dieAfter, atWill, end)
	first.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == "Install" {
			call.Mutation = atWill
		}

		return hit.Intercept(ctx, call, next)
	})

	_ = first.Apply(dying, request)
}

// lying connects an engine with the bug between it and the cluster.
func (r *rig) lying(run string, bug planted) *worker {
	client := r.Client(run)
	between := &liar{Client: client}

	if bug.plant != nil {
		bug.plant(r, between)
	}

	made := r.WorkerOver(client, between, between)
	made.Notes.Lie = bug.lie

	for _, guard := range bug.forgets {
		made.DropGuard(guard)
	}

	if bug.blind {
		made.DropGuards()
	}

	if bug.meddle != nil {
		client.Intercept(bug.meddle(r, client))
	}

	return made
}

// loseForGood has a person reboot a machine that does not come back.
func (r *rig) loseForGood(node string) {
	r.T.Helper()

	r.World().SetFaults([]model.Fault{{Node: node, Step: model.StepBoot, Effect: model.EffectNeverReturns}})

	if _, err := r.World().Reboot(context.Background(), node, model.RebootDefault); err != nil {
		r.T.Fatal(err)
	}

	r.Until("dead", 5*time.Minute, func() bool { return r.State(node).Dead })
}
