// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// runMost is how long a single run may take in simulated time, whatever strikes it: several times the sum of its own
// deadlines.
const runMost = 24 * time.Hour

// never is later than any time.
const never = time.Duration(math.MaxInt64)

// toldMost is how often the last run is repeated with permission to retry nodes that have returned to their old
// system.
const toldMost = 3

// account is the result of a case.
type account struct {
	// points are the calls of the first run, in order.
	points []point
	// came is true if the call came at which the run was to be struck.
	came bool
	// struck is true if the fault had an effect, early if it had one before the first run had changed anything.
	struck, early bool
	// took is the simulated time of the first run.
	took time.Duration
	// failed is the error of the first run; nil if it was killed.
	failed error
	// wrong is everything that was wrong.
	wrong []string
}

// life is a case while it happens.
type life struct {
	*harness.Rig

	unit  unit
	blow  strike
	vault *ports.Vault
	noted *harness.Note
	// coming brings the fault into force; nil if it is in force from the beginning.
	coming *time.Timer
	// begun is when the first run changed something for the first time; never if it did not.
	begun time.Duration
	done  account
}

// live runs a case in a bubble of its own.
func live(t *testing.T, u unit, blow strike) (done account) {
	noted := &harness.Note{TB: t}

	// A bubble that deadlocks panics where it was created.
	noted.Guarded(func() {
		synctest.Test(t, func(*testing.T) {
			noted.Guarded(func() {
				l := &life{unit: u, blow: blow, vault: ports.NewVault(), noted: noted, begun: never}
				defer func() { done = l.done }()

				l.happen()
			})
		})
	})

	done.wrong = noted.All()

	return done
}

func (l *life) happen() {
	begins := l.unit.script()
	if !l.unit.faulty() || l.unit.from > 0 {
		begins = nil
	}

	l.Rig = harness.New(l.noted, l.unit.setup(begins))
	defer l.Stop()

	furnish(l.Rig)

	if l.unit.from > 0 {
		l.coming = time.AfterFunc(l.unit.from, func() { l.World().SetFaults(append(l.unit.options.Faults, l.unit.fault)) })
		defer l.coming.Stop()
	}

	defer l.judge()

	if l.unit.asked != "" {
		l.upgraded()
	}

	rest := l.first()
	defer rest()

	// Without a fault the run after the crash finds the nodes as the crash left them.
	switch {
	case l.unit.faulty() || l.unit.options.ControlPlanes == 1:
		// An only control plane may be on its way down when the next run begins, and then no API server can grant the
		// lease.
		l.despite()
		l.lift()
	case l.unit.victim != "":
		l.returned()
		l.lift()
	case l.unit.asked != "":
		l.obeyed()
	}

	l.last()
	l.still()
}

// judge records whether and when the fault had an effect.
func (l *life) judge() {
	for _, event := range l.ofFault() {
		l.done.struck = true
		l.done.early = l.done.early || event.Sim < l.begun.Seconds()
	}
}

// ofFault returns the events in which the unit's fault had an effect.
func (l *life) ofFault() []history.Event {
	var found []history.Event

	for _, event := range l.Judge.Of(history.KindFault) {
		if event.Detail["step"] == string(l.unit.fault.Step) && event.Detail["effect"] == string(l.unit.fault.Effect) && event.Node == l.unit.fault.Node {
			found = append(found, event)
		}
	}

	return found
}

// first runs the upgrade that is struck. It returns a function that waits for what is left of a dead process.
func (l *life) first() (rest func()) {
	var mu sync.Mutex

	ctx, cancel := context.WithTimeout(context.Background(), runMost)
	calls := counter{}
	lost := false
	hits := map[int]bool{}
	worker := l.Worker("run-1")
	blow := harness.NewStrike(l.blow.crash, func(call ports.Call) bool {
		mu.Lock()
		defer mu.Unlock()

		return hits[call.Number]
	}, cancel)

	worker.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		mu.Lock()
		at := calls.point(call)
		l.done.points = append(l.done.points, at)

		if at.mutates {
			l.begun = min(l.begun, l.World().Now())
		}

		hits[call.Number] = l.blow.crash != "" && at == l.blow.at
		lose := hits[call.Number] && l.blow.crash == loseRequest
		lost = lost || lose
		mu.Unlock()

		if lose {
			return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
		}

		return blow.Intercept(ctx, call, l.unit.honest(call, next))
	})

	ended := make(chan error, 1)

	go func() {
		defer close(ended)

		if l.unit.asked != "" {
			ended <- worker.RollBack(ctx, l.unit.asked)

			return
		}

		ended <- worker.Apply(ctx, l.unit.request(l.vault, nil))
	}()

	var err error

	select {
	case err = <-ended:
	case <-blow.Killed():
	}

	mu.Lock()
	l.done.came, l.done.took = blow.Struck() != "" || lost, l.World().Now()
	mu.Unlock()

	// A run may end at the very moment at which it is killed.
	select {
	case <-blow.Killed():
	default:
		l.done.failed = err
		l.ended("the first run", err)
		l.expected(err)
	}

	return func() {
		for range ended {
		}

		cancel()
	}
}

// expected fails the case if a run failed that was not disturbed, or that only did not learn that something had
// worked.
func (l *life) expected(err error) {
	if err != nil && !l.unit.faulty() && l.unit.victim == "" {
		l.T.Errorf("the first run failed: %v\n%s", err, l.Judge.Text())
	}
}

// apply runs a whole upgrade.
func (l *life) apply(name string, told map[string]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), runMost)
	defer cancel()

	worker := l.Worker(name)
	worker.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		return l.unit.honest(call, next)(ctx)
	})

	err := worker.Apply(ctx, l.unit.request(l.vault, told))
	l.ended(name, err)

	return err
}

// despite runs an upgrade with the fault still in force. It may fail, but has to say why.
func (l *life) despite() { _ = l.apply("run-2", l.told()) }

// lift ends the fault and lets the cluster recover. A fault with a duration lasts that long whatever the script says,
// and a moment longer.
func (l *life) lift() {
	if l.coming != nil {
		l.coming.Stop()
	}

	l.World().SetFaults(nil)
	time.Sleep(l.unit.fault.For + time.Second)
	l.Until("all in service", 2*time.Hour, l.whole)
}

// last runs the upgrade that has to end at the target. Nodes may have returned to their old system while no run was
// there to notice; once they are found, they may be retried.
func (l *life) last() {
	var err error

	for attempt := range toldMost {
		told := l.told()
		err = l.apply(fmt.Sprintf("run-last-%d", attempt), told)

		if err == nil || len(l.told()) == 0 || len(l.told()) == len(told) && !errors.Is(err, say.ErrFallback) {
			break
		}
	}

	if err != nil {
		l.T.Fatalf("the last run failed: %v\n%s", err, l.Judge.Text())
	}

	l.arrived()
}

// still runs one more upgrade, which must not change anything.
func (l *life) still() {
	ctx, cancel := context.WithTimeout(context.Background(), runMost)
	defer cancel()

	var mu sync.Mutex

	var changed []string

	again := l.Worker("run-again")
	again.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Mutation > 0 {
			mu.Lock()
			changed = append(changed, call.String())
			mu.Unlock()
		}

		return next(ctx)
	})

	if err := again.Apply(ctx, l.unit.request(l.vault, nil)); err != nil {
		l.T.Fatalf("a run at the target failed: %v\n%s", err, l.Judge.Text())
	}

	if len(changed) > 0 {
		l.T.Errorf("L2: a run at the target changed something: %v\n%s", changed, l.Judge.Text())
	}

	l.sound()
}

// sound fails the case if an invariant was broken.
func (l *life) sound() {
	for _, broken := range l.Judge.Verdict().Violations {
		l.T.Fatalf("violation: %+v\n%s", broken, l.Judge.Text())
	}
}

// told returns the boots from which nodes that have returned to their old system may be retried.
func (l *life) told() map[string]string {
	told := map[string]string{}

	for _, entry := range l.Journal().Entries {
		if entry.Returned() {
			told[entry.Node] = entry.BootID
		}
	}

	return told
}

// whole reports whether every machine is in service.
func (l *life) whole() bool {
	for _, state := range l.World().Nodes() {
		if !state.Reachable || !state.Ready || !state.Kubelet.Ready || state.Stage != model.StageRunning {
			return false
		}

		if state.Role != model.ControlPlane {
			continue
		}

		if !state.APIServerUp || !state.EtcdHealthy || !state.EtcdServed {
			return false
		}
	}

	return true
}

// ended checks how a run ended that was not killed: within its time, with a complete message if it failed, and
// without anything left that keeps others out.
func (l *life) ended(name string, err error) {
	l.sound()

	if err == nil {
		return
	}

	var failed *say.Failure

	switch {
	case l.World().Now() >= runMost || errors.Is(err, context.Canceled):
		l.T.Fatalf("L3: %s did not end by itself: %v\n%s", name, err, l.Judge.Text())
	case !errors.As(err, &failed):
		l.T.Errorf("L5: %s ended with %v, which is no failure that says what to do\n%s", name, err, l.Judge.Text())
	default:
		l.explained(name, failed)
	}

	// Without an API server nothing can be released.
	if !l.World().Serving() {
		return
	}

	if holder := l.Lease().Holder; strings.HasPrefix(holder, name) {
		l.T.Errorf("L4: %s ended with %v and still holds the lease\n%s", name, err, l.Judge.Text())
	}
}

// explained wants a failure to say what was seen, how that leaves the cluster, and a remedy.
func (l *life) explained(name string, failed *say.Failure) {
	remedy := failed.Remedy
	for _, finding := range failed.Findings {
		if remedy == "" {
			remedy = finding.Remedy
		}
	}

	if failed.Summary == "" || failed.State == "" || remedy == "" || failed.Seen == "" && len(failed.Findings) == 0 {
		l.T.Errorf("L5: %s ended with a failure without summary, what was seen, state or remedy: %+v", name, failed)
	}
}

// arrived fails the case unless the target is reached, nothing was broken and
// nothing was left behind.
func (l *life) arrived() {
	l.sound()
	l.AllRun(l.unit.talos)
	l.Tidy()

	if l.Journal().Manifests != nil {
		l.T.Error("the journal still says that manifests are due")
	}

	want := map[string]string{"talos-status": "completed", "talos-current": l.unit.talos}

	if target := l.unit.kubernetes; target != "" {
		want["kubernetes-status"], want["kubernetes-current"] = "completed", target

		for _, node := range l.World().Nodes() {
			if runs := componentsOf(node); slices.ContainsFunc(runs, func(version string) bool { return version != target }) {
				l.T.Errorf("%s runs %+v, want Kubernetes %s", node.Name, node.Components, target)
			}
		}
	}

	notes := l.Annotations()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if notes[key] != want[key] {
			l.T.Errorf("annotation %s is %q, want %q", key, notes[key], want[key])
		}
	}

	if l.T.Failed() {
		l.T.Fatal(l.Judge.Text())
	}
}

func componentsOf(node model.NodeState) []string {
	runs := []string{node.Components.Proxy, node.Components.Kubelet}
	if node.Role == model.ControlPlane {
		runs = append(runs, node.Components.APIServer, node.Components.ControllerManager, node.Components.Scheduler)
	}

	return runs
}

// returned wants the victim to be rolled back: by the first run, or if that was killed by the next one, which has to
// finish what the first one began and then fail as well.
func (l *life) returned() {
	err := l.done.failed
	if err == nil {
		err = l.apply("run-2", nil)
	}

	switch {
	case errors.Is(err, say.ErrRolledBack), errors.Is(err, say.ErrBlocked) && len(l.told()) > 0:
		l.sentBack()
	case err == nil && l.recorded(cluster.PhaseRollingBack) && l.State(l.unit.victim).Reboots > 1:
		// If it is not known whether the rollback was requested, the node is rebooted to find out. It started the new
		// system again, and is healthy now.
	case err == nil || l.recorded(cluster.PhaseInstalled):
		l.T.Errorf("the run ended with %v, want a node that was sent back\n%s", err, l.Judge.Text())
	default:
		// If the end of the installer was not observed, it is not certain what the other slot has, and the node is left
		// to a person.
	}
}

// recorded reports whether the journal has had the victim in a phase.
func (l *life) recorded(phase cluster.Phase) bool {
	return slices.ContainsFunc(l.Judge.Of(history.KindJournal), func(event history.Event) bool {
		return event.Node == l.unit.victim && event.Detail["phase"] == string(phase)
	})
}

// sentBack fails the case unless the victim runs its old system, is in service, and is recorded as rolled back, once.
func (l *life) sentBack() {
	victim := l.State(l.unit.victim)
	entry := l.Journal().Entries[victim.MachineID]

	if victim.Talos != l.unit.options.Talos || victim.Unschedulable || !victim.Kubelet.Ready || victim.Reboots != 2 {
		l.T.Errorf("%s runs Talos %s after %d reboots, cordoned %t, ready %t, want Talos %s again, and in service\n%s",
			victim.Name, victim.Talos, victim.Reboots, victim.Unschedulable, victim.Kubelet.Ready, l.unit.options.Talos, l.Judge.Text())
	}

	if entry.Phase != cluster.PhaseRolledBack || entry.BootID != victim.BootID {
		l.T.Errorf("the journal says of %s: %+v, want it rolled back on boot %s\n%s", victim.Name, entry, victim.BootID, l.Judge.Text())
	}
}

// upgraded runs the upgrade from which a person rolls a node back.
func (l *life) upgraded() {
	if err := l.apply("run-0", nil); err != nil {
		l.T.Fatalf("the upgrade before the rollback failed: %v\n%s", err, l.Judge.Text())
	}

	time.Sleep(time.Minute)
}

// obeyed wants the node rolled back that a person asked for: by the first run, or if that was killed by another
// rollback, or by an apply, which has to finish what was begun and then say that the node is kept as it is.
func (l *life) obeyed() {
	next := func(run string) error { return l.apply(run, nil) }
	if !l.unit.applies {
		next = func(run string) error {
			ctx, cancel := context.WithTimeout(context.Background(), runMost)
			defer cancel()

			err := l.Worker(run).RollBack(ctx, l.unit.asked)
			l.ended(run, err)

			return err
		}
	}

	err := next("run-2")
	if errors.Is(err, say.ErrLocked) {
		// A renewal that was under way when the first run was killed looks like one of a run that lives.
		time.Sleep(time.Minute)

		err = next("run-3")
	}

	if l.unit.applies {
		l.explainedBy(err)

		return
	}

	if err != nil {
		l.T.Fatalf("the rollback was not finished: %v\n%s", err, l.Judge.Text())
	}

	l.keptBack()
}

// explainedBy wants an apply after a rollback that was killed to say what became of the rollback.
func (l *life) explainedBy(err error) {
	rolledBack := l.rollbacks() > 0

	switch {
	case err == nil && rolledBack:
		l.T.Errorf("%s was rolled back, and the next run reports success\n%s", l.unit.asked, l.Judge.Text())
	case err == nil:
		// Nothing was begun, or a reboot has shown that the rollback was not requested.
	case !strings.Contains(err.Error(), "was rolled back to Talos") || !strings.Contains(err.Error(), " asked at "):
		l.T.Errorf("the next run does not say who asked for the rollback: %v\n%s", err, l.Judge.Text())
	default:
		l.keptBack()
	}
}

// rollbacks counts the rollbacks that nodes carried out.
func (l *life) rollbacks() (count int) {
	for _, event := range l.Judge.Of(history.KindBoot) {
		if event.Detail["cause"] == "rollback" {
			count++
		}
	}

	return count
}

// keptBack fails the case unless the node runs its old system, is in service, was rolled back once and has a journal
// entry that says so.
func (l *life) keptBack() {
	node := l.State(l.unit.asked)
	entry := l.Journal().Entries[node.MachineID]

	if node.Talos != l.unit.options.Talos || node.Unschedulable || !node.Kubelet.Ready {
		l.T.Errorf("%s runs Talos %s, cordoned %t, ready %t, want Talos %s again, and in service\n%s",
			node.Name, node.Talos, node.Unschedulable, node.Kubelet.Ready, l.unit.options.Talos, l.Judge.Text())
	}

	if entry.Phase != cluster.PhaseRolledBack || entry.BootID != node.BootID || entry.Asked == "" {
		l.T.Errorf("the journal says of %s: %+v, want it rolled back on boot %s, and who asked\n%s", node.Name, entry, node.BootID, l.Judge.Text())
	}

	if count := l.rollbacks(); count != 1 {
		l.T.Errorf("%s was rolled back %d times\n%s", node.Name, count, l.Judge.Text())
	}
}
