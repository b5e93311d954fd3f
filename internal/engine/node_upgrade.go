// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// nodeUpgrade is the upgrade of one node. Its steps are
//
//	gates → guards → cordon → drain → guards → install → guards → reboot → verify → uncordon
//
// and an earlier run may have left the node at any of them. The phase, the entry in the journal and the cordon say
// how far it has got; if they disagree with the node, the node is right.
type nodeUpgrade struct {
	run  *run
	step plan.Step

	phase nodePhase
	// at is the step that was entered last. waits is what has to become true before the upgrade goes on, worded to
	// follow "waiting until"; it is empty if nothing has to.
	at    cluster.NodeStep
	waits string
	// entry is the entry of the node in the journal, as last written. An entry without a phase is not in the
	// journal.
	entry cluster.Entry
	// cordoned is true if the cordon on the node is ours, or may be; cordonRemoved is true once somebody has
	// removed it.
	cordoned, cordonRemoved bool
	// former is the confirmed entry that the journal had for the node before the present intent was recorded.
	former cluster.Entry
	// asked is true for a rollback that a user requested, which is allowed on a healthy node. told is true once
	// observers know that the node is being sent back.
	asked, told bool
	// canaries are the canaries in the last observation of the guards before the cordon; nil before that.
	canaries *[]string
	// seen is the node as the guards last observed it, and acted is when something was last done to it.
	seen  sighting
	acted time.Time
	// look is what the guards last observed, until it has been acted on.
	look looked
	// booted is the ID of the last boot in which the node was seen to be back from a reboot; empty if it never was.
	booted string
	// installs counts the installs whose installer printed something.
	installs int
	// busy is why the node did not begin the last legacy upgrade that it was asked for, because it was at work already;
	// nil if it was not.
	busy   error
	result nodeResult

	// allowed is the time that the node may take, from cordon to uncordon.
	allowed *allowance
	// untimed is the context of the upgrade without its time limit.
	untimed context.Context //nolint:containedctx // the upgrade is one call, and the limit of its time ends within it
}

// nodePhase is how far an upgrade has gone with the system of its node.
type nodePhase int

const (
	// untouched: no install is pending.
	untouched nodePhase = iota
	// installCalled: an installer may have been called for the entry in the journal, and the node is not back in
	// service. If it turns out that nothing was installed, the phase is untouched again.
	installCalled
	// returning: the node is being sent back to its old system, for which it need not be healthy.
	returning
	// inService: the node is back in service.
	inService
)

// nodeResult is what an upgrade found out about its node.
type nodeResult struct {
	// runs is the version that the node runs.
	runs version.Version
	// ready is the last transition of the node's Ready condition, as seen by the wait for it.
	ready time.Time
	// leftToPlan is true if the node keeps what it ran and the next plan decides about it.
	leftToPlan bool
	// logTail are the last lines of the node's log before it was sent back, and rollbackSkipReason is why it was
	// not sent back.
	logTail            []string
	rollbackSkipReason string
}

// recorded reports whether the journal has an open entry about the node.
func (u *nodeUpgrade) recorded() bool { return u.entry.Phase != "" && u.entry.Open() }

// mayHaveInstalled reports whether the journal has an open entry for which an installer may have been called.
func (u *nodeUpgrade) mayHaveInstalled() bool { return u.recorded() && u.phase != untouched }

// outcome is how an attempt ended.
type outcome int

const (
	// arrived: the node only has to return to service. It runs what it was to run, or the next plan decides about it.
	arrived outcome = iota
	// notInstalled: the node runs its old system. As far as is known, the install did not take effect.
	notInstalled
	// fellBack: the node runs its old system, because the new one did not come up.
	fellBack
	// outdatedPlan: the node runs something that the plan was not made for, and no install is pending. The node may
	// be cordoned and drained.
	outdatedPlan
	// rolledBack: the node runs its old system, because it was sent back.
	rolledBack
)

// upgradeNode upgrades one node, or finishes what an earlier run began with it. It returns the last transition of
// the node's Ready condition.
func (r *run) upgradeNode(ctx context.Context, step plan.Step) (ready time.Time, err error) {
	u := &nodeUpgrade{run: r, step: step}
	defer r.shared.done(step.Node)
	defer func() {
		if err == nil && !step.MovesLater {
			r.shared.settling(func(w *soak) { w.watch(step, u.result.ready, r.engine.clock.Now()) })
		}
	}()

	u.entry, _ = r.journal.entry(step.Key)
	if u.recorded() {
		u.phase = installCalled
	}

	if step.Finish && !step.Done && !u.recorded() && r.suspendedNow(ctx) {
		// An earlier run has only cordoned the node, which need not stay so until the upgrades are resumed.
		u.abandon(ctx)

		return u.result.ready, &permit.LeftError{Why: "upgrades of this cluster are suspended"}
	}

	if !u.mayHaveInstalled() && !step.Done && step.Image != "" && step.API != "" {
		// This is cheap if the image is still there: the node drops unused images after a while. The pull has its
		// own timeout and uses up none of the node's time.
		err := r.pullAtTurn(ctx, step.Node, step.Image, func(ctx context.Context) error { return r.pullToInstall(ctx, step, step.Image) })
		if err != nil {
			u.abandon(ctx)
		}

		switch {
		case errors.Is(err, permit.ErrStopped):
			return u.result.ready, err
		case err != nil:
			return u.result.ready, u.failure(ctx, &say.PullError{Image: step.Image, Err: err})
		}
	}

	u.untimed = ctx

	err = u.upgradeWhenAllowed(ctx)
	if errors.Is(err, permit.ErrYield) || errors.Is(err, permit.ErrStopped) {
		// The node may have our cordon, from an earlier run or from a call whose reply was lost.
		u.cleanUp(ctx)

		return u.result.ready, err
	}

	if err != nil {
		u.abandon(ctx)

		if errors.Is(err, say.ErrDeparted) {
			err = errors.Join(err, u.markDeparted(ctx))
		}

		return u.result.ready, u.failure(ctx, err)
	}

	switch {
	case u.result.leftToPlan:
		r.engine.emit(cluster.Event{Kind: cluster.EventNodeStopped, Node: step.Node, Text: "the node is left to the next plan"})

		return u.result.ready, nil
	case step.MovesLater:
		r.engine.emit(cluster.Event{Kind: cluster.EventNodeStopped, Node: step.Node, Text: "the node is back in service and is upgraded later"})

		return u.result.ready, nil
	}

	r.engine.emit(cluster.Event{Kind: cluster.EventNodeDone, Node: step.Node, Target: r.request.Target, To: u.result.runs})

	return u.result.ready, nil
}

// upgradeWhenAllowed waits for the gates and then upgrades the node, whose time starts at that moment.
func (u *nodeUpgrade) upgradeWhenAllowed(ctx context.Context) error {
	return u.run.whileGatesHold(ctx, u.awaitGates, func(ctx context.Context) error {
		bounded, allowed, cancel := allow(ctx, u.run.engine.clock, u.run.request.Policy.NodeTimeout)
		u.allowed = allowed
		err := u.upgrade(bounded)
		curable := u.curableByRollback(bounded, err)

		cancel()

		if curable {
			return u.rollBackUnhealthy(err)
		}

		return err
	})
}

// awaitGates waits for the gates before a node is taken out of service. A node that an earlier run has only cordoned is
// put back into service if they do not hold, and left to the next plan: its cordon may be what keeps them closed.
func (u *nodeUpgrade) awaitGates(ctx context.Context) error {
	waits := u.step.Finish && !u.step.Canary && u.run.policy().HasCanaries()
	if u.mayHaveInstalled() || u.step.Done || waits || !u.run.hasGates() {
		return nil
	}

	u.enterStep(cluster.StepGates, "")

	if u.step.Finish {
		closed := slices.DeleteFunc(u.run.closedGates(ctx, u.step.Node), func(f cluster.Finding) bool { return f.Unknown })
		if len(closed) > 0 {
			u.abandon(ctx)

			if _, _, lost := u.run.lock.state(); lost == nil && !u.cordoned {
				return &permit.WaitsError{Why: "it was put back into service, because " + closed[0].Found}
			}
		}
	}

	err := u.run.awaitGates(ctx, u.step.Node)
	if err != nil && u.step.Finish {
		u.cordoned = true
	}

	return upgradeGateError(err)
}

// upgrade brings the node to its target. If an install turns out not to have happened, it is tried again.
func (u *nodeUpgrade) upgrade(ctx context.Context) error {
	attempt := 1

	for {
		result, err := u.attempt(ctx, attempt)
		if err != nil {
			return err
		}

		switch result {
		case arrived:
			return u.finish(ctx)
		case fellBack, rolledBack:
			return u.onOldSystem(ctx, result)
		case outdatedPlan:
			return u.leaveUnplanned(ctx)
		case notInstalled:
		}

		switch {
		case u.step.Finish, u.entry.Run != u.run.engine.runID:
			// The step was planned before it was known what the node runs, and its image was not pulled. The next
			// plan knows more.
			u.result.leftToPlan = true

			return u.finish(ctx)
		case u.entry.Attempt >= u.run.request.Policy.Repeat.Attempts:
			return u.giveUp(ctx)
		default:
			attempt = u.entry.Attempt + 1
		}

		if err := u.waitBeforeRetry(ctx, attempt); err != nil {
			return err
		}

		// The node has booted since it pulled.
		if err := u.pull(ctx); err != nil {
			return err
		}
	}
}

// pull has the node pull the image that it installs next.
func (u *nodeUpgrade) pull(ctx context.Context) error {
	if err := u.run.pullToInstall(ctx, u.step, u.step.Image); err != nil {
		return &say.PullError{Image: u.step.Image, Err: err}
	}

	return nil
}

// waitBeforeRetry waits before an install that did not take effect is tried again. It first removes the entry from
// the journal, because no install is pending then.
func (u *nodeUpgrade) waitBeforeRetry(ctx context.Context, attempt int) error {
	if err := u.forget(ctx); err != nil {
		return fmt.Errorf("%s: %w", u.untaken(attempt-1), err)
	}

	pause := backoff(u.run.request.Policy.Repeat, attempt)
	u.waits = "the install on " + u.step.Node + " could be tried again"

	if u.run.engine.clock.Sleep(ctx, pause) != nil {
		return fmt.Errorf("%s; the next attempt, %s later, was not made: %w", u.untaken(attempt-1), pause, cluster.Ended(ctx))
	}

	return nil
}

// untaken says how often an install did not take effect or, if an installer was not heard each time, that it is not
// known whether it started.
func (u *nodeUpgrade) untaken(attempts int) string {
	if u.installs >= attempts {
		return fmt.Sprintf("%s was installed %s and did not take", u.entry.Image, readable.Times(attempts))
	}

	return fmt.Sprintf("the node was asked %s to install %s, and it is not known whether the installer started", readable.Times(attempts), u.entry.Image)
}

// leaveUnplanned leaves the node to the next plan. If the node may have our cordon, it is first brought back into
// service with what it runs.
func (u *nodeUpgrade) leaveUnplanned(ctx context.Context) error {
	u.result.leftToPlan = true

	u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
		"the node runs Talos %s, which is not what its upgrade was planned for; it is planned again", u.result.runs)})

	if !u.cordoned && !u.step.Finish {
		return nil
	}

	u.cordoned = true

	return u.finish(ctx)
}

// attempt begins at the state of the node: with an install, with the reboot that an installed system still needs,
// or only with the return to service.
func (u *nodeUpgrade) attempt(ctx context.Context, number int) (outcome, error) {
	if u.mayHaveInstalled() {
		return u.resume(ctx)
	}

	machine, err := u.awaitUntouched(ctx)
	if err != nil {
		return arrived, err
	}

	u.result.runs = machine.Talos

	switch {
	case u.atTarget(machine) || u.beyondTarget(machine):
		u.cordoned = true

		return arrived, nil
	case u.step.Finish && !u.step.Canary && u.run.policy().HasCanaries():
		// An install has to wait for the canaries, so only the cordon of the earlier run is removed.
		u.cordoned, u.result.leftToPlan = true, true

		return arrived, nil
	case u.step.API == "" || u.step.Image == "" || !machine.Talos.Equal(u.step.From):
		return outdatedPlan, nil
	}

	u.entry = cluster.Entry{
		Node: u.step.Node, Attempt: number, BootID: machine.BootID, Image: u.step.Image, Target: u.step.To,
		Previous: machine.Talos, PreviousSchematic: machine.Schematic, Schematic: u.step.Schematic,
		Extensions: joinedExtensions(machine), Platform: machine.Platform,
	}

	if err := u.cordonAndDrain(ctx); err != nil {
		return arrived, err
	}

	err = u.installAndReboot(ctx, machine.UpgradeAPI())

	switch {
	case errors.Is(err, errAlreadyThere):
		u.result.runs = u.seen.machine.Talos

		return arrived, nil
	case errors.Is(err, errStale):
		u.result.runs = u.seen.machine.Talos

		return outdatedPlan, nil
	case err != nil:
		return arrived, err
	}

	return u.awaitReboot(ctx)
}

// installAndReboot installs the new system and has the node reboot.
func (u *nodeUpgrade) installAndReboot(ctx context.Context, api cluster.UpgradeAPI) error {
	if api == cluster.LegacyAPI {
		return u.untilSent(ctx, u.upgradeLegacy)
	}

	err := u.untilSent(ctx, u.install)

	if errors.Is(err, cluster.ErrNotPulled) && !u.recorded() {
		// The node has booted since the pull, or has waited for so long that it dropped the image.
		if err := u.pull(ctx); err != nil {
			return err
		}

		err = u.untilSent(ctx, u.install)
	}

	if err != nil {
		return err
	}

	return u.rebootGuarded(ctx)
}

// untilSent repeats a call, including the guards before it, as long as it certainly did not reach the node.
func (u *nodeUpgrade) untilSent(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		if !errors.Is(err, errNotSent) {
			return err
		}

		if u.run.engine.clock.Sleep(ctx, maxPoll) != nil {
			return fmt.Errorf("%w; %w", err, cluster.Ended(ctx))
		}
	}
}

// errNotSent is the error of a call that certainly did not reach the node.
var errNotSent = errors.New("the call did not reach the node")

// resume continues with a node that an earlier run left with an install pending. The journal is only a hint: what
// the node reports is true.
func (u *nodeUpgrade) resume(ctx context.Context) (outcome, error) {
	u.cordoned, u.entry.Departed = true, false
	u.run.shared.noteResumed(u.step.Node)

	machine, err := u.awaitBootID(ctx)
	if err != nil {
		return arrived, u.neverReturned(ctx, err)
	}

	u.result.runs = machine.Talos

	if u.entry.BootID == "" && !(machine.Talos.Equal(u.entry.Target) && !machine.Talos.Equal(u.entry.Previous)) {
		// Nothing proves that the node has rebooted, so it still has to.
		u.entry.BootID = machine.BootID
	}

	// If the node was about to be sent back, only a boot shows whether it received the request: a second request
	// would undo the first.
	if u.entry.Phase == cluster.PhaseRollingBack {
		u.phase = returning
	}

	if machine.BootID != u.entry.BootID || machine.Stage != cluster.StageRunning {
		return u.awaitReboot(ctx)
	}

	switch legacy := machine.UpgradeAPI() == cluster.LegacyAPI; {
	case legacy && u.phase != returning:
		return u.resumeLegacy(ctx)
	case !legacy:
		if err := u.awaitInstaller(ctx); err != nil {
			return arrived, err
		}
	}

	if err := u.cordonAndDrain(ctx); err != nil {
		return arrived, err
	}

	if err := u.rebootGuarded(ctx); err != nil {
		return arrived, err
	}

	return u.awaitReboot(ctx)
}

// cordonAndDrain takes the node out of service: guards, cordon, drain.
func (u *nodeUpgrade) cordonAndDrain(ctx context.Context) error {
	if err := u.cordonWhenAllowed(ctx); err != nil {
		return err
	}

	return u.drain(ctx)
}

// enterStep begins a step of the upgrade. Whether another node may begin depends on the steps of the nodes in
// progress, so the step is recorded before observers are informed.
func (u *nodeUpgrade) enterStep(step cluster.NodeStep, text string) {
	u.at, u.waits = step, ""
	u.run.shared.noteStep(u.step.Node, u.run.journal.ours(u.step.Node), step)
	u.run.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: u.step.Node, Step: step, Text: text})
}

// awaitUntouched waits until a node to which nothing has been done yet answers, for as long as guards are waited
// for: it may not have been asked since the run began.
func (u *nodeUpgrade) awaitUntouched(ctx context.Context) (cluster.Machine, error) {
	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, guardTimeout)
	defer cancel()

	machine, err := u.awaitAnswer(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = &say.GuardError{Before: "cordon", Err: err}
	}

	return machine, err
}

// awaitAnswer waits until the node answers.
func (u *nodeUpgrade) awaitAnswer(ctx context.Context) (cluster.Machine, error) {
	return u.awaitMachine(ctx, nil, func(cluster.Machine) string { return "" })
}

// awaitBootID waits until the node answers with its boot ID. It fails if the node is lost, such as by being
// deleted.
func (u *nodeUpgrade) awaitBootID(ctx context.Context) (cluster.Machine, error) {
	gone := departure{asked: u.run.engine.clock.Now()}

	return u.awaitMachine(ctx, &gone, func(machine cluster.Machine) string {
		if machine.BootID == "" {
			return bootUnknown
		}

		return ""
	})
}

// awaitMachine waits until the node answers and lacks returns an empty string. If gone is not nil, it fails if the
// node is lost.
func (u *nodeUpgrade) awaitMachine(ctx context.Context, gone *departure, lacks func(cluster.Machine) string) (cluster.Machine, error) {
	var machine cluster.Machine

	err := u.run.engine.wait(ctx, u.step.Node, "the Talos API of "+u.step.Node+" to answer", func(ctx context.Context) (bool, string, error) {
		var err error

		machine, err = u.run.engine.machine(ctx, u.step.Address)

		switch {
		case err != nil && gone != nil:
			return false, err.Error(), u.lost(ctx, err, gone)
		case err != nil:
			return false, err.Error(), permanentOnly(err)
		}

		missing := lacks(machine)

		return missing == "", missing, nil
	})

	return machine, err
}

// atTarget reports whether the machine runs the target of the step.
func (u *nodeUpgrade) atTarget(machine cluster.Machine) bool {
	return machine.Talos.Equal(u.step.To) && (!u.step.Demanded || machine.Schematic == u.step.Schematic)
}

// beyondTarget reports whether the machine is already past the target of the step: somebody else has upgraded it
// since the plan was made, and no version ever goes down.
func (u *nodeUpgrade) beyondTarget(machine cluster.Machine) bool {
	return u.step.To.Less(machine.Talos)
}

// cordonWhenAllowed cordons the node, or returns permit.ErrYield. The node then has no cordon of ours, unless the
// reply to one was lost. If no other node can take the pods, ErrYield is returned only once another upgrade has
// ended: a plan made before that would begin this upgrade again.
func (u *nodeUpgrade) cordonWhenAllowed(ctx context.Context) error {
	for announced := false; ; announced = true {
		ended := u.run.shared.peerDone()

		err := u.cordonGuarded(ctx)

		var full *permit.NoPlaceError
		if !errors.As(err, &full) {
			return err
		}

		if !announced {
			u.run.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Node: u.step.Node, Text: u.step.Node + " has to wait: " + full.Error()})
		}

		if !u.awaitPeer(ctx, ended) {
			return err
		}
	}
}

// awaitPeer waits for another upgrade to end, for [lookAgain] at most. It reports whether to try again, which is
// false if one has ended or ctx is done.
func (u *nodeUpgrade) awaitPeer(ctx context.Context, ended <-chan struct{}) bool {
	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, lookAgain)
	defer cancel()

	select {
	case <-ended:
		return false
	case <-bounded.Done():
		return ctx.Err() == nil
	}
}

// cordonGuarded cordons the node based on the very observation on which that was permitted.
func (u *nodeUpgrade) cordonGuarded(ctx context.Context) error {
	announced := false

	return u.awaitGuardsThen(ctx, "cordon", func(ctx context.Context) (bool, string, error) {
		if !announced {
			u.enterStep(cluster.StepCordon, "")

			announced = true
		}

		return u.cordon(ctx)
	})
}

// cordon marks the node unschedulable, unless somebody else already did.
func (u *nodeUpgrade) cordon(ctx context.Context) (bool, string, error) {
	u.acted = u.run.engine.clock.Now()

	ours, err := u.run.leased.cordon(ctx, u.step.Node)
	if err != nil {
		// If the reply was lost, the cordon carries our mark, by which it is found and removed.
		u.cordoned = u.cordoned || !errors.Is(err, errRefusedByLease)

		return false, err.Error(), permanentOnly(err)
	}

	u.cordoned = ours

	return true, "", nil
}

// abandon is [nodeUpgrade.cleanUp] for an upgrade that failed. Unless the lease is lost, it also removes the cordon of an
// earlier run.
func (u *nodeUpgrade) abandon(ctx context.Context) {
	if _, _, lost := u.run.lock.state(); lost == nil {
		u.cordoned = u.cordoned || u.step.Finish && !u.recorded()
	}

	u.cleanUp(ctx)
}

// cleanUp removes our cordon from a node whose upgrade ended without an open entry in the journal. It has some time
// of its own, even if the run was cancelled.
func (u *nodeUpgrade) cleanUp(ctx context.Context) {
	if u.recorded() || !u.cordoned {
		return
	}

	bounded, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	if err := u.uncordon(bounded); err != nil {
		u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "the node could not be uncordoned: " + err.Error()})
	}
}

// uncordon removes our cordon; the adapter leaves any other alone.
func (u *nodeUpgrade) uncordon(ctx context.Context) error {
	err := u.run.engine.wait(ctx, u.step.Node, "the uncordon of "+u.step.Node, func(ctx context.Context) (bool, string, error) {
		if err := u.run.leased.uncordon(ctx, u.step.Node); err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		return true, "", nil
	})
	if err == nil {
		u.cordoned = false
	}

	return err
}

// errAlreadyThere is returned if a node has reached its target without us.
var errAlreadyThere = errors.New("the node runs its target already")

// errStale is returned if a node no longer runs what the plan was made for: the image was chosen for another
// system, and may even skip a minor version.
var errStale = errors.New("the node runs neither what the plan was made for nor its target")

// recordIntent waits for the guards and records the intent with the boot ID that they observed. If an older one were
// recorded, a reboot before the install would be taken for the reboot after it. If nil is returned, the observation
// is recent enough to act on it, and what other upgrades observed before is out of date.
func (u *nodeUpgrade) recordIntent(ctx context.Context, before string) error {
	for {
		if err := u.awaitGuards(ctx, before); err != nil {
			return errors.Join(err, u.withdrawIntent(ctx))
		}

		if u.atTarget(u.seen.machine) || u.beyondTarget(u.seen.machine) {
			return errors.Join(errAlreadyThere, u.withdrawIntent(ctx))
		}

		if !u.seen.machine.Talos.Equal(u.step.From) {
			return errors.Join(errStale, u.withdrawIntent(ctx))
		}

		if !u.recorded() || u.entry.BootID != u.seen.machine.BootID {
			u.entry.BootID, u.entry.Previous, u.entry.PreviousSchematic = u.seen.machine.BootID, u.seen.machine.Talos, u.seen.machine.Schematic
			u.entry.Extensions, u.entry.Platform, u.entry.PreviousEtcd = joinedExtensions(u.seen.machine), u.seen.machine.Platform, u.seen.etcdVersion

			if err := u.record(ctx, cluster.PhaseIntent); err != nil {
				return errors.Join(err, u.clearDoubtfulIntent(ctx))
			}
		}

		if ctx.Err() != nil {
			// The time ran out while the intent was being recorded, and it was not acted on.
			return errors.Join(cluster.Ended(ctx), u.withdrawIntent(ctx))
		}

		// If two runs installed at the same time, the node could lose both of its systems, so the lease is read,
		// however recently it was renewed.
		ok, _, err := u.run.lock.stillOurs(ctx)

		switch {
		case err != nil:
			return errors.Join(err, u.withdrawIntent(ctx))
		case ok && u.mayAct():
			return nil
		}

		// A context that ended is noticed by the guards.
		_ = u.run.engine.clock.Sleep(ctx, minPoll)
	}
}

// withdrawIntent takes back an intent that was not acted on. If the lease is lost, the intent is left to its new
// holder.
func (u *nodeUpgrade) withdrawIntent(ctx context.Context) error {
	if _, _, lost := u.run.lock.state(); lost != nil || !u.recorded() {
		return nil
	}

	kept, cancel := u.run.engine.recordContext(ctx)
	defer cancel()

	return u.restore(kept, u.former)
}

// clearDoubtfulIntent takes back an intent that may or may not have been written. If that fails, the node is
// treated as one without an intent: the next run looks at it in any case.
func (u *nodeUpgrade) clearDoubtfulIntent(ctx context.Context) error {
	kept, end := u.run.engine.recordContext(ctx)
	defer end()

	bounded, cancel := u.run.engine.clock.WithTimeout(kept, stopGrace)
	defer cancel()

	err := u.forget(bounded)
	u.forgotten()

	return err
}

// withdrawUnsent takes back the intent of a call that did not reach the node, and returns the cause with
// [errNotSent].
func (u *nodeUpgrade) withdrawUnsent(ctx context.Context, cause error) error {
	if err := u.withdrawIntent(ctx); err != nil {
		return errors.Join(cause, err)
	}

	return fmt.Errorf("%w: %w", errNotSent, cause)
}

// install runs the installer beside the running system. If it certainly installed nothing, the intent is taken back.
// Otherwise an install is pending until the next boot.
func (u *nodeUpgrade) install(ctx context.Context) error {
	if err := u.recordIntent(ctx, "install on"); err != nil {
		return err
	}

	u.enterStep(cluster.StepInstall, u.step.Image)

	u.phase = installCalled
	result, err := u.run.leased.install(ctx, u.step.Address, u.step.Image)
	u.noteActed()

	if len(result.Output) > 0 {
		u.installs++
	}

	switch {
	case err == nil && result.Exit == 0:
		kept, cancel := u.run.engine.recordContext(ctx)
		defer cancel()

		return u.record(kept, cluster.PhaseInstalled)
	case err == nil && result.Refused(u.step.To):
		return errors.Join(&say.InstallerError{Exit: result.Exit, Output: result.Output}, u.withdrawIntent(ctx))
	case err == nil:
		return &say.InstallerError{Exit: result.Exit, Output: result.Output}
	case neverRan(err):
		if errors.Is(err, errRefusedByLease) {
			u.phase = untouched
		}

		return errors.Join(err, u.withdrawIntent(ctx))
	case ctx.Err() != nil:
		return err
	case notSent(err):
		return u.withdrawUnsent(ctx, err)
	}

	// The stream broke: the installer runs to its end without us. The reboot
	// shows whether it succeeded; running it again could destroy the system
	// that the node would fall back to.
	u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "the installer's outcome is unknown, a reboot will show it: " + err.Error()})

	return u.awaitInstaller(ctx)
}

// notSent reports whether the call certainly did not reach the node.
func notSent(err error) bool {
	return errors.Is(err, cluster.ErrUnreachable) && !errors.Is(err, cluster.ErrOutcomeUnknown)
}

// unreached reports whether the error of a call says that the call certainly had no effect.
func unreached(err error) bool {
	return errors.Is(err, errRefusedByLease) || notSent(err) || neverRan(err)
}

// neverRan reports whether the installer was certainly not started and the call is not to be repeated.
func neverRan(err error) bool {
	if errors.Is(err, cluster.ErrOutcomeUnknown) {
		return false
	}

	// Without the lease, no call was made. The call is repeated unless the lease is lost.
	if errors.Is(err, errRefusedByLease) {
		return errors.Is(err, say.ErrLeaseLost)
	}

	for _, clean := range []error{cluster.ErrRefused, cluster.ErrBusy, cluster.ErrNotFound, cluster.ErrDenied, cluster.ErrUnsupported, cluster.ErrCredentials} {
		if errors.Is(err, clean) {
			return true
		}
	}

	return false
}

// awaitInstaller waits until no installer runs on the node.
func (u *nodeUpgrade) awaitInstaller(ctx context.Context) error {
	u.enterStep(cluster.StepInstaller, "")

	return u.run.engine.wait(ctx, u.step.Node, "the installer on "+u.step.Node+" to be idle", func(ctx context.Context) (bool, string, error) {
		idle, err := u.run.engine.talos.InstallerIdle(ctx, u.step.Address)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		return idle, "an installer is running", nil
	})
}

// rebootGuarded reboots a node with a pending install, once the guards hold again.
func (u *nodeUpgrade) rebootGuarded(ctx context.Context) error {
	if err := u.transferEtcdLeadership(ctx, "reboot"); err != nil {
		return err
	}

	for {
		if err := u.awaitGuards(ctx, "reboot"); err != nil {
			return err
		}

		if u.seen.machine.BootID != u.entry.BootID {
			// The node has booted without us, and that boot shows the result.
			return nil
		}

		// PhaseIntent is kept: if the node then runs its old system, the install did not take effect. After
		// PhaseRebooting, that would mean that the new system did not come up.
		if u.entry.Phase == cluster.PhaseInstalled {
			if err := u.record(ctx, cluster.PhaseRebooting); err != nil {
				return err
			}
		}

		if u.mayAct() {
			err := u.reboot(ctx)
			if !errors.Is(err, errRefusedByLease) || permanentOnly(err) != nil {
				return err
			}
		}

		// A context that ended is noticed by the guards.
		_ = u.run.engine.clock.Sleep(ctx, minPoll)
	}
}

// reboot requests the reboot. If there is no reply, the wait for the new boot ID shows whether the request took
// effect. If the lease did not allow the request, the error wraps [errRefusedByLease].
func (u *nodeUpgrade) reboot(ctx context.Context) error {
	u.enterStep(cluster.StepReboot, "")

	err := u.run.leased.reboot(ctx, u.step.Address, u.run.policy().RebootModeOf(u.step.Node))
	if errors.Is(err, errRefusedByLease) {
		return err
	}

	return permanentOnly(err)
}

// transferEtcdLeadership moves etcd leadership away from a control plane before it goes
// down, so that the others need no election.
func (u *nodeUpgrade) transferEtcdLeadership(ctx context.Context, before string) error {
	if u.step.Role != cluster.ControlPlane {
		return nil
	}

	view, err := u.run.engine.talos.Etcd(ctx, u.step.Address, true)
	if err != nil || view.Status.Leader != view.Status.MemberID || len(view.Members) < 2 {
		// The guards deal with a member that does not answer.
		return permanentOnly(err)
	}

	// If another member is down, it could be given the leadership.
	if err := u.awaitGuards(ctx, before); err != nil {
		return err
	}

	u.acted = u.run.engine.clock.Now()

	err = u.run.leased.forfeitLeadership(ctx, u.step.Address)

	switch {
	case errors.Is(err, errRefusedByLease):
		return permanentOnly(err)
	case err != nil:
		// Best effort: an election after the reboot is the worst that can happen.
		u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "etcd leadership could not be moved away: " + err.Error()})
	}

	return nil
}

// legacyQuiet is how long a node must be seen running, with its old boot ID,
// before a legacy upgrade counts as never begun. The node starts the sequence
// within a second of accepting the call.
const legacyQuiet = 15 * time.Second

// upgradeLegacy asks a node below Talos 1.13 to upgrade itself: it validates,
// drains, installs and reboots in one call.
func (u *nodeUpgrade) upgradeLegacy(ctx context.Context) error {
	if err := u.transferEtcdLeadership(ctx, "upgrade"); err != nil {
		return err
	}

	if err := u.recordIntent(ctx, "upgrade"); err != nil {
		return err
	}

	u.enterStep(cluster.StepLegacy, u.step.Image)

	u.phase, u.busy = installCalled, nil
	// The node does not install from the store that was pulled into before. It downloads the image again, which
	// uses up none of its time.
	downloaded := u.allowed.hold(cluster.PullTimeout)
	result, err := u.run.leased.upgrade(ctx, u.step.Address, u.step.Image, u.run.policy().RebootModeOf(u.step.Node), downloaded)

	downloaded()
	u.noteActed()

	switch {
	case err == nil && result.Exit == 0:
		return u.recordBestEffort(ctx, cluster.PhaseRebooting)
	case err == nil:
		return u.awaitLegacyReturn(ctx, &say.InstallerError{Exit: result.Exit, Output: result.Output})
	case errors.Is(err, cluster.ErrBusy):
		// The other sequence may be that of an earlier request, whose answer was lost. Unless it shuts the node down, it
		// ends in a boot, which shows what the node runs.
		u.busy = err
		u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "the node is at work already and did not begin the upgrade; its next boot is waited for: " + err.Error()})

		return nil
	case neverRan(err):
		if errors.Is(err, errRefusedByLease) {
			u.phase = untouched
		}

		return errors.Join(err, u.withdrawIntent(ctx))
	case ctx.Err() != nil:
		return err
	case notSent(err):
		return u.withdrawUnsent(ctx, err)
	default:
		return nil
	}
}

// awaitLegacyReturn waits for a node whose legacy upgrade failed in the installer: it
// reboots into its old system by itself, and no install is pending any more.
func (u *nodeUpgrade) awaitLegacyReturn(ctx context.Context, failed error) error {
	result, err := u.awaitReboot(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}

	if result == arrived {
		return nil
	}

	return errors.Join(failed, u.forget(ctx), u.awaitServing(ctx))
}

// recordBestEffort records the phase of a node that is going down. If the node is the only control plane, the
// Kubernetes API goes down with it. So if the write fails, nil is returned, unless ctx has ended or the lease is
// lost. A later run then cannot distinguish a fallback from an install that did not take effect, or it repeats the
// request for a rollback that the node has accepted and that had no effect.
func (u *nodeUpgrade) recordBestEffort(ctx context.Context, phase cluster.Phase) error {
	kept, end := u.run.engine.recordContext(ctx)
	defer end()

	bounded, cancel := u.run.engine.clock.WithTimeout(kept, stopGrace)
	defer cancel()

	err := u.record(bounded, phase)
	if err == nil || ctx.Err() != nil || errors.Is(err, say.ErrLeaseLost) {
		return err
	}

	u.entry.Phase = phase

	return nil
}

// resumeLegacy watches a node whose legacy upgrade may or may not have been accepted. If it stays in service, it
// never received the request, or it still downloads the image, which it does not show. Talos ends that download when
// the connection ends. If Talos does not learn of the end because the machine of the earlier run is lost, the request
// may take effect up to PullTimeout later: the node then reboots out of turn, a control plane after Talos has found every
// member of etcd healthy. This API leaves no install pending.
func (u *nodeUpgrade) resumeLegacy(ctx context.Context) (outcome, error) {
	since := u.run.engine.clock.Now()

	err := u.run.engine.wait(ctx, u.step.Node, "the legacy upgrade of "+u.step.Node+" to show itself", func(ctx context.Context) (bool, string, error) {
		machine, err := u.run.engine.machine(ctx, u.step.Address)

		switch {
		case err != nil && !cluster.Heals(err):
			return false, "", err
		case err == nil && machine.BootID == "":
			since = u.run.engine.clock.Now()

			return false, bootUnknown, nil
		case err != nil || machine.BootID != u.entry.BootID || machine.Stage != cluster.StageRunning:
			return false, "", errStirred
		}

		u.result.runs = machine.Talos

		return u.run.engine.clock.Now().Sub(since) >= legacyQuiet, "the node is running as before", nil
	})

	switch {
	case err == nil:
		return notInstalled, nil
	case errors.Is(err, errStirred):
		return u.awaitReboot(ctx)
	default:
		return arrived, err
	}
}

// errStirred is returned once a watched node does not answer, is in another boot or is not in the running stage.
var errStirred = errors.New("the node is moving")

// rebootAgain is how long a node may be seen running with its old boot ID before the reboot is requested again,
// because the request may have been lost. A node that is going down leaves the running stage at once.
const rebootAgain = time.Minute

// rebootPoll is the first pause between two observations of a node that reboots: no node is back at once.
const rebootPoll = maxPoll

// awayAfter is how long a node must not have answered before it counts as away.
const awayAfter = time.Minute

// awaitReboot waits for the node's next boot to finish and returns what it booted.
func (u *nodeUpgrade) awaitReboot(ctx context.Context) (outcome, error) {
	u.enterStep(cluster.StepReturn, "")

	var (
		machine  cluster.Machine
		answered time.Time
		idle     = u.run.engine.clock.Now()
		gone     = departure{asked: idle.Add(departureAfter)}
	)

	err := u.run.engine.waitPaced(ctx, u.step.Node, u.step.Node+" to come back from its reboot", rebootPoll, maxPoll, func(ctx context.Context) (bool, string, error) {
		seen, err := u.returned(ctx, machine)
		if err != nil {
			idle = u.run.engine.clock.Now()

			// One observation that failed, or that was cut off because the time is up, says nothing about the node.
			if u.run.engine.clock.Now().Sub(answered) > awayAfter {
				machine = cluster.Machine{}
			}

			return false, err.Error(), u.lost(ctx, err, &gone)
		}

		machine, answered = seen, u.run.engine.clock.Now()
		gone.since, gone.maintained = time.Time{}, time.Time{}

		switch machine.BootID {
		case "":
			return false, bootUnknown, nil
		case u.entry.BootID:
			return u.onOldBoot(ctx, machine, &idle)
		}

		u.booted = machine.BootID
		u.suspect(machine)

		return u.bootFinished(machine)
	})
	u.result.runs = machine.Talos

	if errors.Is(err, errNeverBegan) {
		return notInstalled, nil
	}

	if err != nil {
		// A node that answers from its new boot has returned, but is not healthy.
		if returned := machine.BootID != "" && machine.BootID != u.entry.BootID; !returned {
			err = u.neverReturned(ctx, err)
		}

		return arrived, err
	}

	u.noteActed()

	return u.compareBoot(machine)
}

// suspect marks a node that is seen to have returned to its old system as doubtful. The upgrade may find out much
// later, because it waits for the system to come up first.
func (u *nodeUpgrade) suspect(machine cluster.Machine) {
	reached := machine.Talos.Equal(u.entry.Target) && (!u.step.Demanded || machine.Schematic == u.step.Schematic)

	// Until it has finished booting, it may not report its schematic, and only the version distinguishes the two
	// systems.
	told := machine.Settled() || !u.entry.Target.Equal(u.entry.Previous)
	before := machine.Talos.Equal(u.entry.Previous) && (!machine.Settled() || machine.Schematic == u.entry.PreviousSchematic)

	if told && !reached && before {
		u.run.shared.markDoubtful(u.step.Node)
	}
}

// departureAfter is how long a rebooting node is waited for before its Node object is checked, departureEvery is
// how often it is checked, and departureGrace is how long node and object must both be missing: a boot through the
// firmware may take five minutes.
const (
	departureAfter = 2 * time.Minute
	departureEvery = 30 * time.Second
	departureGrace = 5 * time.Minute
)

// maintenanceFor is how long a node must be in maintenance mode before it is no longer waited for. A node that
// finds its configuration never enters that mode.
const maintenanceFor = time.Minute

// departure is what is known about a node that does not answer and may never do so again.
type departure struct {
	// asked is when Kubernetes was last asked about it, and since is when the answer first was that there is no
	// such node; zero while there is one.
	asked, since time.Time
	// maintained is since when the node has been in maintenance mode; zero if it is not.
	maintained time.Time
}

// lost returns the error of a node that did not answer if waiting does not cure it; nil otherwise.
func (u *nodeUpgrade) lost(ctx context.Context, err error, gone *departure) error {
	return cmp.Or(permanentOnly(err), u.unconfigured(err, gone), u.departed(ctx, gone))
}

// unconfigured returns the error of a node that came back in maintenance mode and stays there; nil otherwise.
func (u *nodeUpgrade) unconfigured(err error, gone *departure) error {
	now := u.run.engine.clock.Now()

	switch {
	case !errors.Is(err, cluster.ErrForeign):
		gone.maintained = time.Time{}
	case gone.maintained.IsZero():
		gone.maintained = now
	case now.Sub(gone.maintained) >= maintenanceFor:
		return fmt.Errorf("%w: %w", say.ErrUnconfigured, err)
	}

	return nil
}

// departed returns the error of a worker that does not answer and whose Node object somebody has deleted during its
// upgrade; nil otherwise. Without that error, autoscalers and health checks, which delete nodes that do not come
// back, would let an image that does not boot go through all of them.
func (u *nodeUpgrade) departed(ctx context.Context, gone *departure) error {
	now := u.run.engine.clock.Now()
	if u.step.Role != cluster.Worker || now.Sub(gone.asked) < departureEvery {
		return nil
	}

	gone.asked = now

	_, err := u.run.engine.kubernetes.Node(ctx, u.step.Node)

	switch {
	case err == nil:
		gone.since = time.Time{}
	case !errors.Is(err, cluster.ErrNotFound):
	case gone.since.IsZero():
		gone.since = now
	case now.Sub(gone.since) >= departureGrace:
		return fmt.Errorf("%w: was deleted from Kubernetes while it was on its way, and its machine has not answered for %s since then", say.ErrDeparted, departureGrace)
	}

	return nil
}

// markDeparted records in the journal that the node was deleted, so that no other run waits for it.
func (u *nodeUpgrade) markDeparted(ctx context.Context) error {
	kept, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	u.entry.Departed = true

	return u.record(kept, u.entry.Phase)
}

// neverReturned returns the error of a wait for a node that was sent into a boot. It wraps [say.ErrNeverReturned]
// if the time was up.
func (u *nodeUpgrade) neverReturned(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(cluster.Ended(ctx), context.DeadlineExceeded) {
		return err
	}

	return fmt.Errorf("%w: %w", say.ErrNeverReturned, err)
}

// noteActed records that something was done to the node, or has happened to it as a result. Earlier observations are
// then out of date.
func (u *nodeUpgrade) noteActed() {
	u.acted = u.run.engine.clock.Now()
	u.run.engine.facts.Acted(u.step.Role)
}

// returned observes a node that was sent into a reboot. Once the node has finished its new boot, everything is asked.
// Before that, the node may not report all of what is asked only once in a boot.
func (u *nodeUpgrade) returned(ctx context.Context, before cluster.Machine) (cluster.Machine, error) {
	e := u.run.engine

	asked, known := e.moment(), e.facts.Known(u.step.Address)
	if before.BootID != "" {
		known = &before
	}

	// If the machine has finished its new boot, only the confirmation of its system is missing, and BootOnly does not
	// ask for that.
	extent := cluster.BootOnly
	if known == nil || before.Settled() && before.BootID != u.entry.BootID {
		extent = cluster.Everything
	}

	machine, err := e.talos.Machine(ctx, u.step.Address, known, extent)
	if err != nil || !machine.Settled() {
		return machine, err
	}

	all := known == nil

	if machine.Partial || machine.BootID != u.entry.BootID && !(before.Settled() && before.BootID == machine.BootID) {
		asked, all, extent = e.moment(), true, cluster.Everything
		machine, err = e.talos.Machine(ctx, u.step.Address, nil, extent)
	}

	// With BootOnly, earlier facts are repeated without having been asked again, so they are not stored.
	if err == nil && extent == cluster.Everything {
		e.facts.Tell(u.step.Address, told(e, asked, &machine, nil), all, nil)
	}

	return machine, err
}

// bootUnknown is what is seen of a machine that does not report its boot ID.
const bootUnknown = "the boot ID could not be read"

// errNeverBegan ends the wait for a legacy upgrade that was never accepted.
var errNeverBegan = errors.New("the upgrade was never begun")

// onOldBoot handles a node that has not gone down yet.
func (u *nodeUpgrade) onOldBoot(ctx context.Context, machine cluster.Machine, idle *time.Time) (bool, string, error) {
	seen := fmt.Sprintf("still on its old boot, %s", machine.Stage)

	// A node that is sent back may never have finished this boot.
	if machine.Stage != cluster.StageRunning && !(u.phase == returning && machine.Stage == cluster.StageBooting) {
		*idle = u.run.engine.clock.Now()

		return false, seen, nil
	}

	if u.run.engine.clock.Now().Sub(*idle) < rebootAgain {
		return false, seen, nil
	}

	if machine.UpgradeAPI() == cluster.LegacyAPI && u.phase != returning {
		return false, "", errNeverBegan
	}

	if err := u.awaitGuards(ctx, "reboot"); err != nil {
		return false, "", err
	}

	u.waits = ""

	if u.seen.machine.BootID != u.entry.BootID {
		// It has booted while the guards were waited for.
		return false, seen, nil
	}

	if !u.mayAct() {
		return false, seen, nil
	}

	*idle = u.run.engine.clock.Now()

	return false, seen, permanentOnly(u.reboot(ctx))
}

// bootFinished reports whether the machine has finished booting and, if it runs a new system, whether that has
// confirmed itself.
func (u *nodeUpgrade) bootFinished(machine cluster.Machine) (bool, string, error) {
	if !machine.Settled() {
		return false, fmt.Sprintf("on a new boot with Talos %s, %s%s", machine.Talos, machine.Stage, rule.Unmet(machine)), nil
	}

	if machine.UpgradePending && machine.Talos.Equal(u.entry.Target) {
		return false, "the new system has not confirmed itself yet", nil
	}

	return true, "", nil
}

// compareBoot compares what the node booted with what it was to boot.
func (u *nodeUpgrade) compareBoot(machine cluster.Machine) (outcome, error) {
	installed := machine.Talos.Equal(u.entry.Target) &&
		(u.entry.Schematic == "" || machine.Schematic == u.entry.Schematic)
	unchanged := machine.Talos.Equal(u.entry.Previous) && machine.Schematic == u.entry.PreviousSchematic

	switch {
	case lostPlatform(u.entry.Platform, machine):
		return arrived, &say.PlatformError{Image: u.entry.Image, Before: u.entry.Platform, Now: machine.Platform}
	case installed:
		// If an earlier run had another target, the next plan continues from here.
		return arrived, u.checkExtensions(machine)
	case unchanged && u.entry.Phase == cluster.PhaseIntent:
		return notInstalled, nil
	case unchanged && u.entry.Phase == cluster.PhaseRollingBack:
		return rolledBack, nil
	case unchanged:
		return fellBack, nil
	case machine.Talos.Equal(u.entry.Target) && !(u.entry.Run != u.run.engine.runID && u.run.request.Policy.Skips(cluster.CheckSchematic)):
		return arrived, &say.SchematicError{Image: u.entry.Image, Installed: u.entry.Schematic, Now: machine.Schematic, Talos: machine.Talos}
	case u.entry.Run != u.run.engine.runID:
		// Somebody installed another system on the node in the meantime. Its new boot proves that no install is
		// pending; the next plan continues from what runs.
		u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
			"the node runs Talos %s, which no run of ours installed; its journal entry is closed", machine.Talos)})

		return arrived, nil
	default:
		return arrived, errors.Join(fmt.Errorf("the node came back with Talos %s and schematic %q, which is neither the old system nor the one that was installed",
			machine.Talos, machine.Schematic), u.busy)
	}
}

// lostPlatform reports whether the machine runs on another platform than before; false if either is unknown.
func lostPlatform(before string, machine cluster.Machine) bool {
	return before != "" && machine.Platform != "" && machine.Platform != before
}

// extensionSeparator separates the names of extensions in the journal.
const extensionSeparator = ","

// joinedExtensions returns the extensions of a machine as the journal stores them.
func joinedExtensions(machine cluster.Machine) string {
	return strings.Join(machine.Extensions, extensionSeparator)
}

// checkExtensions compares the names of the extensions that the node runs with those that it ran before; their
// versions change with each release. If the node runs the schematic that its image is named after, somebody chose
// its extensions, and an extension may have another name in another release: a missing one is then only a warning,
// as it is if the check is skipped.
func (u *nodeUpgrade) checkExtensions(machine cluster.Machine) error {
	missing := slices.DeleteFunc(strings.Split(u.entry.Extensions, extensionSeparator), func(name string) bool {
		return name == "" || slices.Contains(machine.Extensions, name)
	})
	if len(missing) == 0 {
		return nil
	}

	lost := &say.ExtensionsError{Image: u.entry.Image, Missing: missing}

	if u.entry.Schematic == "" && !u.run.request.Policy.Skips(cluster.CheckSchematic) {
		return lost
	}

	u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: lost.Error()})

	return nil
}

// onOldSystem handles a node that runs its old system again.
func (u *nodeUpgrade) onOldSystem(ctx context.Context, result outcome) error {
	if u.entry.Run != u.run.engine.runID {
		machine, err := u.awaitBootID(ctx)
		if err != nil {
			return err
		}

		if u.unwanted(machine) {
			return u.acceptOldSystem(ctx, result, machine)
		}
	}

	if result == fellBack {
		return u.fallback(ctx)
	}

	// An earlier run sent the node back, and its reason is not known.
	return u.finishRolledBack(ctx, nil)
}

// unwanted reports whether this run does not want what an earlier run installed, in which case it is no failure
// that it did not come up.
func (u *nodeUpgrade) unwanted(machine cluster.Machine) bool {
	there := u.atTarget(machine) && machine.Talos.Equal(u.run.request.Target.Talos)

	return there || !u.step.Finish && u.step.Image != "" && u.step.Image != u.entry.Image
}

// acceptOldSystem brings a node that runs its old system again into service and records that. The next plan
// continues from there.
func (u *nodeUpgrade) acceptOldSystem(ctx context.Context, result outcome, machine cluster.Machine) error {
	phase := cluster.PhaseFallback
	if result == rolledBack {
		phase = cluster.PhaseRolledBack
	}

	u.phase, u.result.leftToPlan = installCalled, true

	u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
		"the node did not come up with %s, which an earlier run installed, and runs Talos %s as before", u.entry.Image, machine.Talos)})

	return u.recordOldSystem(ctx, phase, machine.BootID)
}

// fallback brings a node that returned to its old system back into service, records that, and fails the upgrade.
func (u *nodeUpgrade) fallback(ctx context.Context) error {
	machine, err := u.awaitBootID(ctx)
	if err != nil {
		return err
	}

	failed := &say.FallbackError{Image: u.entry.Image, Previous: machine.Talos.String(), BootID: machine.BootID}

	// The node is as it was before: no install is pending any more.
	return errors.Join(failed, u.recordOldSystem(ctx, cluster.PhaseFallback, machine.BootID))
}

// recordOldSystem brings a node back into service with its old system and then closes its entry in the journal, in
// this order, because a run that finds the entry closed does nothing more for the node.
func (u *nodeUpgrade) recordOldSystem(ctx context.Context, phase cluster.Phase, bootID string) error {
	if err := u.awaitServing(ctx); err != nil {
		return err
	}

	before := u.entry.BootID
	u.entry.BootID = bootID

	err := u.record(ctx, phase)
	if err != nil {
		u.entry.BootID = before
	}

	return err
}

// giveUp fails an upgrade whose install did not take effect in any attempt.
func (u *nodeUpgrade) giveUp(ctx context.Context) error {
	const old = "the node runs its old system as before"

	failed := fmt.Errorf("%w: %s: "+old, say.ErrInstaller, u.untaken(u.entry.Attempt))
	if u.busy != nil {
		failed = fmt.Errorf("%s: "+old+": %w", u.untaken(u.entry.Attempt), u.busy)
	}

	return errors.Join(failed, u.forget(ctx), u.awaitServing(ctx))
}

// finish brings the node back into service with the system that it runs, and removes its entry from the journal.
func (u *nodeUpgrade) finish(ctx context.Context) error {
	if err := u.awaitServing(ctx); err != nil {
		return err
	}

	u.phase = inService

	if err := u.syncInstallImage(); err != nil {
		return err
	}

	// The node is done, whether in time or not.
	return u.confirm(u.untimed)
}

// awaitServing waits until the node is healthy in etcd and Ready in Kubernetes, and then removes our cordon.
func (u *nodeUpgrade) awaitServing(ctx context.Context) error {
	if u.step.Role == cluster.ControlPlane {
		if err := u.awaitEtcd(ctx); err != nil {
			return err
		}
	}

	if err := u.awaitReady(ctx); err != nil {
		return err
	}

	if !u.cordoned {
		return nil
	}

	u.enterStep(cluster.StepUncordon, "")

	return u.uncordon(ctx)
}

// awaitEtcd waits until etcd as a whole, including the member on the node, is healthy.
func (u *nodeUpgrade) awaitEtcd(ctx context.Context) error {
	u.enterStep(cluster.StepEtcd, "")

	return u.run.engine.wait(ctx, u.step.Node, "etcd to be healthy with "+u.step.Node, func(ctx context.Context) (bool, string, error) {
		observed, err := u.run.observe(ctx, inquiry{claim: u.step.Node, etcd: true, opinions: true, machines: nobody})
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		if findings := rule.Etcd(observed); len(findings) > 0 {
			return false, findings[0].String(), permit.Fatal(findings)
		}

		return true, "", nil
	})
}

// awaitReady waits until Kubernetes reports the node Ready for its present
// boot: a Ready condition outlives the kubelet that set it by some 40 s.
func (u *nodeUpgrade) awaitReady(ctx context.Context) error {
	u.enterStep(cluster.StepReady, "")

	name := renaming{asked: u.run.engine.clock.Now()}

	return u.run.engine.wait(ctx, u.step.Node, u.step.Node+" to be Ready in Kubernetes", func(ctx context.Context) (bool, string, error) {
		node, err := u.run.engine.kubernetes.Node(ctx, u.step.Node)

		switch {
		case errors.Is(err, cluster.ErrNotFound):
			return false, "there is no such Node object", u.renamed(ctx, &name)
		case err != nil:
			return false, err.Error(), permanentOnly(err)
		case !node.Ready:
			return false, "NotReady: " + node.ReadyReason, u.renamed(ctx, &name)
		}

		machine, err := u.run.engine.machineOf(ctx, u.step.Address, &node)

		switch {
		case err != nil:
			return false, err.Error(), permanentOnly(err)
		case node.BootID != "" && node.BootID != machine.BootID:
			return false, "the kubelet has not registered since the reboot", u.renamed(ctx, &name)
		}

		u.result.ready = node.ReadySince
		if u.step.Role != cluster.ControlPlane {
			return true, "", nil
		}

		return u.podsSpeak(ctx, machine)
	})
}

// renamedEvery is how often a node that is not Ready is asked for the name under which it registers, and renamedFor
// is how long that must be another name: a machine may have a temporary name until it receives its own.
const (
	renamedEvery = 30 * time.Second
	renamedFor   = time.Minute
)

// renaming is what is known about the name of a node that is waited for.
type renaming struct {
	// asked is when the machine was last asked, and since is when it first reported this name.
	asked, since time.Time
	name         string
}

// renamed returns the error of a node whose machine registers under another name than before, because the former
// name will never be Ready again; nil otherwise.
func (u *nodeUpgrade) renamed(ctx context.Context, seen *renaming) error {
	now := u.run.engine.clock.Now()
	if now.Sub(seen.asked) < renamedEvery {
		return nil
	}

	seen.asked = now

	machine, err := u.run.engine.machine(ctx, u.step.Address)
	if err != nil || machine.NodeName == "" || machine.NodeName == u.step.Node {
		seen.name = ""

		return permanentOnly(err)
	}

	if machine.NodeName != seen.name {
		seen.name, seen.since = machine.NodeName, now
	}

	other, err := u.run.engine.kubernetes.Node(ctx, machine.NodeName)
	registered := err == nil && machine.MachineID != "" && other.MachineID == machine.MachineID

	if !registered && now.Sub(seen.since) < renamedFor {
		return nil
	}

	return &say.RenamedError{Before: u.step.Node, Now: machine.NodeName, Registered: registered}
}

// podsSpeak reports whether Kubernetes shows every static pod of a control plane Ready and as it is in this boot:
// until the kubelet has updated them, their mirror pods show the state of the previous boot.
func (u *nodeUpgrade) podsSpeak(ctx context.Context, machine cluster.Machine) (bool, string, error) {
	if machine.PodsSince.IsZero() {
		return false, "it has made no static pods yet", nil
	}

	pods, err := u.run.engine.kubernetes.StaticPods(ctx, u.step.Node)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	for _, pod := range pods {
		if seen := fact.Unready(machine, pod); seen != "" {
			return false, seen, nil
		}
	}

	return true, "", nil
}

// installImageTimeout bounds the change of a machine configuration after a finished upgrade. The change is worth
// some patience, but no failure.
const installImageTimeout = 2 * time.Minute

// syncInstallImage sets the image that the node was upgraded with in its machine configuration, so that the node is
// not installed with an older one some day. The node already runs the new system, so a failure is only a warning,
// unless the run was cancelled or has lost its lease. The time limit of the node does not apply.
func (u *nodeUpgrade) syncInstallImage() error {
	ctx := u.untimed
	confirmed := u.recorded() && u.entry.Image != "" && u.result.runs.Equal(u.entry.Target)
	if !u.run.request.Policy.SyncInstallImage || !confirmed {
		return nil
	}

	u.enterStep(cluster.StepInstallImage, u.entry.Image)

	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, installImageTimeout)
	defer cancel()

	err := u.run.engine.wait(bounded, u.step.Node, "the installer image of "+u.step.Node+" to be configured", func(ctx context.Context) (bool, string, error) {
		return u.nameInstallImage(ctx)
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, say.ErrLeaseLost) {
		return err
	}

	u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
		"the node runs %s, and its machine configuration could not be made to name it: %v", u.entry.Image, err)})

	return nil
}

// nameInstallImage changes the configuration once, unless it names the image already, names none or has no place
// for one.
func (u *nodeUpgrade) nameInstallImage(ctx context.Context) (bool, string, error) {
	machine, err := u.run.engine.machine(ctx, u.step.Address)

	switch {
	case err != nil:
		return false, err.Error(), permanentOnly(err)
	case machine.Config == nil:
		return false, "", errors.New("it cannot be read with these credentials")
	case u.entry.Schematic != "" && machine.Schematic != u.entry.Schematic:
		// The node does not run that image: its install never began, or somebody installed another one.
		return true, "", nil
	case !machine.Config.Installs, machine.Config.InstallImage == "", machine.Config.InstallImage == u.entry.Image:
		// A configuration that names no image leaves the choice to Talos, which is kept.
		return true, "", nil
	}

	err = u.run.leased.configure(ctx, u.step.Address, cluster.ImageChange{
		Component: cluster.Installer, From: machine.Config.InstallImage, To: u.entry.Image,
	})
	if err != nil {
		// If somebody else wrote it in the meantime, the next try reads that.
		return false, err.Error(), permanentOnly(err)
	}

	return true, "", nil
}
