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

// nodeUpgrade is the upgrade of one node. Its way is
//
//	gates → guards → cordon → drain → guards → install → guards → reboot → verify → uncordon
//
// and an earlier run may have left the node anywhere on it. Its phase, the entry in the
// journal and the cordon say how far it has come; where they disagree with the node, the
// node is right.
type nodeUpgrade struct {
	run  *run
	step plan.Step

	phase nodePhase
	// at is the step that was entered last, and waits is what is waited for before the
	// next one: it completes "until", and is empty where a step is going on.
	at    cluster.NodeStep
	waits string
	// entry is the journal's entry of the node, as last written. One without a phase is
	// not in the journal.
	entry cluster.Entry
	// cordoned tells that the cordon on the node is ours, cordonRemoved that somebody
	// took it away once.
	cordoned, cordonRemoved bool
	// former is what was confirmed of the node before the present intent was recorded.
	former cluster.Entry
	// asked tells that the node is to be sent back because a person wants that: it need
	// not be ill. told tells that observers know that it is being sent back.
	asked, told bool
	// canaries are those that there were when the guards last looked before the cordon;
	// nil before that.
	canaries *[]string
	// seen is the node as the guards last saw it, and acted is when something was last done
	// to it.
	seen  sighting
	acted time.Time
	// look is what the guards looked at last.
	look looked
	// booted is the last boot ID at which the node was seen that it did not have
	// when its new system was installed.
	booted string
	// installs counts the installs of which the installer was heard.
	installs int
	result   nodeResult

	// allowed is the time that the node may take, from cordon to uncordon.
	allowed *allowance
	// untimed is the context of the upgrade without the limit of its time.
	untimed context.Context //nolint:containedctx // the upgrade is one call, and the limit of its time ends within it
}

// nodePhase is how far an upgrade has gone with the system of its node.
type nodePhase int

const (
	// untouched: no installer was called since the last boot.
	untouched nodePhase = iota
	// installCalled: an installer may have run since the last boot. Only a clean
	// refusal, or a boot, shows whether it did.
	installCalled
	// returning: the node is being sent back to its old system, for which it need not
	// be well itself.
	returning
	// inService: the node is back in service with the system that it is to run.
	inService
)

// nodeResult is what an upgrade found out about its node.
type nodeResult struct {
	// runs is the version that the node runs.
	runs version.Version
	// ready is the last transition of the node's Ready condition, as the wait for it
	// saw it.
	ready time.Time
	// leftToPlan tells that the node is left with what it ran, for the next plan to
	// decide about.
	leftToPlan bool
	// logTail are the last lines of the node's log before it was sent back, and
	// rollbackSkipReason is why it was not.
	logTail            []string
	rollbackSkipReason string
}

// recorded tells that the journal has an open entry about the node.
func (u *nodeUpgrade) recorded() bool { return u.entry.Phase != "" && u.entry.Open() }

// mayHaveInstalled tells that the node's next boot may start another system.
func (u *nodeUpgrade) mayHaveInstalled() bool { return u.recorded() && u.phase != untouched }

// outcome is what a reboot showed.
type outcome int

const (
	// arrived: the node runs what it was to run.
	arrived outcome = iota
	// notInstalled: the node runs what it ran, because nothing was installed.
	notInstalled
	// fellBack: the node runs what it ran, because the new system did not come
	// up.
	fellBack
	// outdatedPlan: the node runs something that the plan was not made for, and
	// nothing was done to it.
	outdatedPlan
	// rolledBack: the node runs what it ran, because it was sent back.
	rolledBack
)

// upgradeNode moves one node, or finishes what an earlier run began with it. It
// returns the last transition of the node's Ready condition.
func (r *run) upgradeNode(ctx context.Context, step plan.Step) (ready time.Time, err error) {
	u := &nodeUpgrade{run: r, step: step}
	defer r.shared.done(step.Node)
	defer func() {
		if err == nil {
			r.shared.settling(func(w *soak) { w.watch(step, u.result.ready, r.engine.clock.Now()) })
		}
	}()

	u.entry, _ = r.journal.entry(step.Key)
	if u.recorded() {
		u.phase = installCalled
	}

	if !u.mayHaveInstalled() && !step.Done && step.Image != "" && step.API != "" {
		// Cheap when it is there still; the node drops unused images after a
		// while. It has its own time, so it does not eat up the node's.
		err := r.pullAtTurn(ctx, step.Node, step.Image, func(ctx context.Context) error { return r.pullToInstall(ctx, step, step.Image) })

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
		// This run left nothing behind; what an earlier one left cordoned is put back.
		u.cleanUp(ctx)

		return u.result.ready, err
	}

	if err != nil {
		u.cleanUp(ctx)

		if errors.Is(err, say.ErrDeparted) {
			err = errors.Join(err, u.markDeparted(ctx))
		}

		return u.result.ready, u.failure(ctx, err)
	}

	if u.result.leftToPlan {
		r.engine.emit(cluster.Event{Kind: cluster.EventNodeStopped, Node: step.Node, Text: "the node is left to the next plan"})

		return u.result.ready, nil
	}

	r.engine.emit(cluster.Event{Kind: cluster.EventNodeDone, Node: step.Node, Target: r.request.Target, To: u.result.runs})

	return u.result.ready, nil
}

// upgradeWhenAllowed waits for the gates and moves the node, which has all of its time then.
func (u *nodeUpgrade) upgradeWhenAllowed(ctx context.Context) error {
	return u.run.whileGatesHold(ctx, u.awaitGates, func(ctx context.Context) error {
		bounded, allowed, cancel := allow(ctx, u.run.engine.clock, u.run.request.Policy.NodeTimeout)
		u.allowed = allowed
		err := u.upgrade(bounded)
		unhealthy := u.unhealthy(bounded, err)

		cancel()

		if unhealthy {
			return u.rollBackIfUnhealthy(err)
		}

		return err
	})
}

// awaitGates waits for the gates before a node is taken out of service. One that
// an earlier run has only cordoned is put back when they do not come to hold.
func (u *nodeUpgrade) awaitGates(ctx context.Context) error {
	waits := u.step.Finish && !u.step.Canary && u.run.policy().HasCanaries()
	if u.mayHaveInstalled() || u.step.Done || waits || !u.run.hasGates() {
		return nil
	}

	u.enterStep(cluster.StepGates, "")

	err := u.run.awaitGates(ctx, u.step.Node)
	if err != nil && u.step.Finish {
		u.cordoned = true
	}

	return upgradeGateError(err)
}

// upgrade brings the node to its target, trying an install again that turns out
// not to have happened.
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
			// What the step says of the image was planned before it was known
			// what the node runs, and the image was not pulled. The next plan
			// knows more.
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

// pull brings the node the image that it installs next.
func (u *nodeUpgrade) pull(ctx context.Context) error {
	if err := u.run.pullToInstall(ctx, u.step, u.step.Image); err != nil {
		return &say.PullError{Image: u.step.Image, Err: err}
	}

	return nil
}

// waitBeforeRetry waits before an install is tried again that did not take. No install is pending
// then.
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

// untaken says how often an install did not take, which is not known of a node
// that was not heard to begin it.
func (u *nodeUpgrade) untaken(attempts int) string {
	if u.installs >= attempts {
		return fmt.Sprintf("%s was installed %s and did not take", u.entry.Image, readable.Times(attempts))
	}

	return fmt.Sprintf("the node was asked %s to install %s, and it is not known whether the installer started", readable.Times(attempts), u.entry.Image)
}

// leaveUnplanned leaves a node alone to which nothing was done in this upgrade, but for a
// cordon.
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

// attempt begins where the node is: with an install, with the reboot that an
// installed system still needs, or with nothing but the way back into service.
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
		// Nothing but the cordon is there to be finished: what is installed here
		// has to wait for the canaries.
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

// installAndReboot has the new system installed and the node sent into its reboot.
func (u *nodeUpgrade) installAndReboot(ctx context.Context, api cluster.UpgradeAPI) error {
	if api == cluster.LegacyAPI {
		return u.untilSent(ctx, u.upgradeLegacy)
	}

	err := u.untilSent(ctx, u.install)

	if errors.Is(err, cluster.ErrNotPulled) && !u.recorded() {
		// It was started anew since it pulled, or has waited for so long that it dropped the
		// image.
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

// untilSent repeats a call, with the guards before it, for as long as it certainly
// did not reach the node.
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

// errNotSent is a call that certainly did not reach the node.
var errNotSent = errors.New("the call did not reach the node")

// resume continues with a node that an earlier run left with an install pending. The journal is
// only a hint; the node says what is true.
func (u *nodeUpgrade) resume(ctx context.Context) (outcome, error) {
	u.cordoned, u.entry.Departed = true, false
	u.run.shared.noteResumed(u.step.Node)

	machine, err := u.awaitBootID(ctx)
	if err != nil {
		return arrived, u.neverReturned(ctx, err)
	}

	u.result.runs = machine.Talos

	if u.entry.BootID == "" && !(machine.Talos.Equal(u.entry.Target) && !machine.Talos.Equal(u.entry.Previous)) {
		// Nothing proves that the node went through a boot, so it still has to.
		u.entry.BootID = machine.BootID
	}

	// Of a node that was about to be sent back only a boot tells whether it was
	// told: to be told twice would keep it where it is.
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

// enterStep begins a step of the upgrade. Whether another node may begin depends on
// the steps of those on their way, so it is noted before observers are told.
func (u *nodeUpgrade) enterStep(step cluster.NodeStep, text string) {
	u.at, u.waits = step, ""
	u.run.shared.noteStep(u.step.Node, u.run.journal.ours(u.step.Node), step)
	u.run.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: u.step.Node, Step: step, Text: text})
}

// awaitUntouched waits until a node answers to which nothing has been done yet, for as long
// as guards are waited for: nobody may have asked it since the run began.
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

// awaitBootID waits until the node answers and tells its boot, or turns out to be deleted.
func (u *nodeUpgrade) awaitBootID(ctx context.Context) (cluster.Machine, error) {
	gone := departure{asked: u.run.engine.clock.Now()}

	return u.awaitMachine(ctx, &gone, func(machine cluster.Machine) string {
		if machine.BootID == "" {
			return bootUnknown
		}

		return ""
	})
}

// awaitMachine waits for an answer of the node that lacks nothing. Where gone is given, a node
// that was deleted is not waited for.
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

// atTarget tells whether the machine runs what the step wants.
func (u *nodeUpgrade) atTarget(machine cluster.Machine) bool {
	return machine.Talos.Equal(u.step.To) && (!u.step.Demanded || machine.Schematic == u.step.Schematic)
}

// beyondTarget tells whether the machine is past the step already: somebody else was
// at it since the plan was made, and no version ever goes down.
func (u *nodeUpgrade) beyondTarget(machine cluster.Machine) bool {
	return u.step.To.Less(machine.Talos)
}

// cordonWhenAllowed cordons the node, or ends with permit.ErrYield while it has not touched it.
// Where this run has every node that could take the pods, it waits for another
// upgrade to end; only then may a new plan find something to do.
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

// awaitPeer waits until an upgrade has ended, or is true after a while in which none did.
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

// cordonGuarded cordons the node on the very observation on which that was permitted.
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
		// A cordon whose reply was lost carries our mark, by which it is taken back.
		u.cordoned = u.cordoned || !errors.Is(err, errRefusedByLease)

		return false, err.Error(), permanentOnly(err)
	}

	u.cordoned = ours

	return true, "", nil
}

// cleanUp takes our cordon back from a node whose upgrade failed while the journal
// had nothing open about it. It has a little time of its own, also after the run was cancelled.
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

// uncordon takes our own cordon back; the adapter leaves any other alone.
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

// errAlreadyThere is a node that reached its target without us.
var errAlreadyThere = errors.New("the node runs its target already")

// errStale is a node that no longer runs what the plan was made for: the image
// was chosen for another system, and may even skip a release line.
var errStale = errors.New("the node runs neither what the plan was made for nor its target")

// recordIntent guards the node and records the intent. The record names the boot that
// the guards saw: a node that rebooted since its upgrade began would otherwise
// look as if it had gone through the reboot that its install still needs. It
// returns only while the observation is fresh, and the step is then claimed.
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
			// It was recorded when the time was up, and nothing came of it.
			return errors.Join(cluster.Ended(ctx), u.withdrawIntent(ctx))
		}

		// Installing what another run installs as well could cost the node both of its
		// systems, so the lease is read, however fresh it is.
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

// withdrawIntent takes an intent back that nothing was done about, unless it is another
// run's affair by now.
func (u *nodeUpgrade) withdrawIntent(ctx context.Context) error {
	if _, _, lost := u.run.lock.state(); lost != nil || !u.recorded() {
		return nil
	}

	kept, cancel := u.run.engine.recordContext(ctx)
	defer cancel()

	return u.restore(kept, u.former)
}

// clearDoubtfulIntent takes an intent back of whose record nobody knows whether it was
// written. Where that cannot be had the node is left as one that has none: the next
// run looks at it all the same.
func (u *nodeUpgrade) clearDoubtfulIntent(ctx context.Context) error {
	kept, end := u.run.engine.recordContext(ctx)
	defer end()

	bounded, cancel := u.run.engine.clock.WithTimeout(kept, stopGrace)
	defer cancel()

	err := u.forget(bounded)
	u.forgotten()

	return err
}

// withdrawUnsent takes the intent back of a call that did not reach the node.
func (u *nodeUpgrade) withdrawUnsent(ctx context.Context, cause error) error {
	if err := u.withdrawIntent(ctx); err != nil {
		return errors.Join(cause, err)
	}

	return fmt.Errorf("%w: %w", errNotSent, cause)
}

// install runs the installer beside the running system and leaves the node
// with an install pending. From the record of the intent on, only a clean refusal or a reboot
// ends that.
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

// notSent tells whether the call certainly did not reach the node.
func notSent(err error) bool {
	return errors.Is(err, cluster.ErrUnreachable) && !errors.Is(err, cluster.ErrOutcomeUnknown)
}

// neverRan tells whether the call was certainly refused before the installer
// was started.
func neverRan(err error) bool {
	if errors.Is(err, cluster.ErrOutcomeUnknown) {
		return false
	}

	// Without the lease nothing was called; if it may be had again, the call is repeated.
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
			// It went through a boot without us; that boot tells the rest.
			return nil
		}

		// An intent stays one: only that tells an install which never took from
		// a system that did not come up.
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

// reboot asks for the reboot. Whether a call without a reply took effect, the
// wait for the new boot ID finds out. One that the lease did not allow is [errRefusedByLease].
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
		// A member that cannot be asked is the guards' affair.
		return permanentOnly(err)
	}

	// With a member down the leadership could go to that one.
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

	u.phase = installCalled
	// What was pulled before is in another store than the node installs from.
	downloaded := u.allowed.hold(cluster.PullTimeout)
	result, err := u.run.leased.upgrade(ctx, u.step.Address, u.step.Image, u.run.policy().RebootModeOf(u.step.Node), downloaded)

	downloaded()
	u.noteActed()

	switch {
	case err == nil && result.Exit == 0:
		return u.recordBestEffort(ctx, cluster.PhaseRebooting)
	case err == nil:
		return u.awaitLegacyReturn(ctx, &say.InstallerError{Exit: result.Exit, Output: result.Output})
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

// recordBestEffort records what is known of a node that is on its way down. A single
// control plane takes the Kubernetes API down with it before that is written. What
// is lost then is only the difference between an install that never took and a
// fallback, or that a rollback without any effect is not tried once more.
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

// resumeLegacy looks at a node whose legacy upgrade may or may not have been
// accepted. A node that stays in service was never asked: this API leaves
// no pending install behind.
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

// errStirred ends the watch over a node as soon as it moves.
var errStirred = errors.New("the node is moving")

// rebootAgain is how long a node may be seen running with its old boot ID
// before the reboot is asked for again: the request can have been lost. A node
// that is going down leaves the running stage at once.
const rebootAgain = time.Minute

// rebootPoll is the first pause between two looks at a node that reboots: none is back at
// once.
const rebootPoll = maxPoll

// awayAfter is how long a node has not answered before it counts as away.
const awayAfter = time.Minute

// awaitReboot waits for the node's next boot to finish and tells what it booted.
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

			// One look that failed, or that was cut off because the time is up, says
			// nothing about the node.
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
		// One that answers from its new boot has returned, and is not well.
		if returned := machine.BootID != "" && machine.BootID != u.entry.BootID; !returned {
			err = u.neverReturned(ctx, err)
		}

		return arrived, err
	}

	u.noteActed()

	return u.compareBoot(machine)
}

// suspect notes that the node is seen to have returned to its old system. The upgrade may
// take long yet to find out, as it waits for a system to come up first.
func (u *nodeUpgrade) suspect(machine cluster.Machine) {
	reached := machine.Talos.Equal(u.entry.Target) && (!u.step.Demanded || machine.Schematic == u.step.Schematic)

	// Until it has finished booting it may not tell its schematic, and only the version
	// tells the two systems apart.
	told := machine.Settled() || !u.entry.Target.Equal(u.entry.Previous)

	if told && !reached && machine.Talos.Equal(u.entry.Previous) && machine.Schematic == u.entry.PreviousSchematic {
		u.run.shared.markDoubtful(u.step.Node)
	}
}

// How long a node is waited for before anybody looks whether its Node object is there still, how
// often that is done, and how long both have to be away: a boot through the firmware may take five
// minutes.
const (
	departureAfter = 2 * time.Minute
	departureEvery = 30 * time.Second
	departureGrace = 5 * time.Minute
)

// maintenanceFor is how long a node has to be in maintenance mode before it is not waited for any
// more. No node that finds its configuration passes through it.
const maintenanceFor = time.Minute

// departure is what is known of a node that does not answer and may not do so again.
type departure struct {
	// asked is when Kubernetes was last asked about it, and since is when it said first that
	// there is no such node; zero while there is one.
	asked, since time.Time
	// maintained is since when it is in maintenance mode; zero while it is not.
	maintained time.Time
}

// lost is the error of a node that did not answer, where waiting does not cure it.
func (u *nodeUpgrade) lost(ctx context.Context, err error, gone *departure) error {
	return cmp.Or(permanentOnly(err), u.unconfigured(err, gone), u.departed(ctx, gone))
}

// unconfigured is the error of a node that came back in maintenance mode and stays there.
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

// departed is the error of a worker whose Node object somebody has deleted while it was on its
// way, and that does not answer. Those who delete nodes that do not come back, as autoscalers and
// health checks do, would have an image that does not boot go through all of them.
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

// markDeparted has the journal say that the node was deleted, so that no other run waits for it.
func (u *nodeUpgrade) markDeparted(ctx context.Context) error {
	kept, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	u.entry.Departed = true

	return u.record(kept, u.entry.Phase)
}

// neverReturned is the error of a wait for a node that was sent into a boot: it says so where
// the time was up.
func (u *nodeUpgrade) neverReturned(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(cluster.Ended(ctx), context.DeadlineExceeded) {
		return err
	}

	return fmt.Errorf("%w: %w", say.ErrNeverReturned, err)
}

// noteActed takes note that something was done to the node, or came of it: what was seen
// before is old.
func (u *nodeUpgrade) noteActed() {
	u.acted = u.run.engine.clock.Now()
	u.run.engine.facts.Acted(u.step.Role)
}

// returned asks a node that was sent into a reboot how it is. When it has finished booting,
// it is asked for everything: before that it may not tell yet all that stays the same for as
// long as it runs.
func (u *nodeUpgrade) returned(ctx context.Context, before cluster.Machine) (cluster.Machine, error) {
	e := u.run.engine

	asked, known := e.moment(), e.facts.Known(u.step.Address)
	if before.BootID != "" {
		known = &before
	}

	machine, err := e.talos.Machine(ctx, u.step.Address, known)
	if err != nil || !machine.Settled() {
		return machine, err
	}

	all := known == nil

	if machine.BootID != u.entry.BootID && !(before.Settled() && before.BootID == machine.BootID) {
		asked, all = e.moment(), true
		machine, err = e.talos.Machine(ctx, u.step.Address, nil)
	}

	if err == nil {
		e.facts.Tell(u.step.Address, told(e, asked, &machine, nil), all, nil)
	}

	return machine, err
}

// bootUnknown is what is seen of a machine that does not tell its boot ID.
const bootUnknown = "the boot ID could not be read"

// errNeverBegan ends the wait for a legacy upgrade that was never accepted.
var errNeverBegan = errors.New("the upgrade was never begun")

// onOldBoot handles a node that has not gone down yet.
func (u *nodeUpgrade) onOldBoot(ctx context.Context, machine cluster.Machine, idle *time.Time) (bool, string, error) {
	seen := fmt.Sprintf("still on its old boot, %s", machine.Stage)

	// One that is sent back may never have finished this boot.
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
		// It went through its boot while the guards were waited for.
		return false, seen, nil
	}

	if !u.mayAct() {
		return false, seen, nil
	}

	*idle = u.run.engine.clock.Now()

	return false, seen, permanentOnly(u.reboot(ctx))
}

// bootFinished tells whether the machine is done booting and, where it runs a
// new system, whether that has confirmed itself.
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
		// Where an earlier run had another target, the next plan goes on from
		// here.
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
		// Somebody gave the node another system in the meantime. Its new boot
		// proves that no install is pending; the next plan goes on from what runs.
		u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
			"the node runs Talos %s, which no run of ours installed; its journal entry is closed", machine.Talos)})

		return arrived, nil
	default:
		return arrived, fmt.Errorf("the node came back with Talos %s and schematic %q, which is neither the old system nor the one that was installed", machine.Talos, machine.Schematic)
	}
}

// lostPlatform tells whether the machine runs on another platform than before.
func lostPlatform(before string, machine cluster.Machine) bool {
	return before != "" && machine.Platform != "" && machine.Platform != before
}

// extensionSeparator stands between the names of extensions in the journal.
const extensionSeparator = ","

// joinedExtensions are the extensions of a machine as the journal has them.
func joinedExtensions(machine cluster.Machine) string {
	return strings.Join(machine.Extensions, extensionSeparator)
}

// checkExtensions compares the extensions that the node runs with those that it ran
// before, by their names: their versions change with each release. A node that shows the
// schematic that its image is named after has what somebody chose, and an extension may have
// another name in another release: what is gone there, or where the check is skipped, is said.
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

// onOldSystem is what becomes of a node that runs its old system again.
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

	// Where an earlier run sent it back, nobody saw it arrive.
	return u.finishRolledBack(ctx, nil)
}

// unwanted tells whether what an earlier run installed is not what this one wants:
// that it did not come up is no failure then.
func (u *nodeUpgrade) unwanted(machine cluster.Machine) bool {
	there := u.atTarget(machine) && machine.Talos.Equal(u.run.request.Target.Talos)

	return there || !u.step.Finish && u.step.Image != "" && u.step.Image != u.entry.Image
}

// acceptOldSystem records that a node runs its old system again and brings it into
// service, for the next plan to go on from there.
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

// fallback puts a node back into service that returned to its old system, records
// that, and fails the upgrade.
func (u *nodeUpgrade) fallback(ctx context.Context) error {
	machine, err := u.awaitBootID(ctx)
	if err != nil {
		return err
	}

	failed := &say.FallbackError{Image: u.entry.Image, Previous: machine.Talos.String(), BootID: machine.BootID}

	// The node is as good as it was before: no install is pending any more.
	return errors.Join(failed, u.recordOldSystem(ctx, cluster.PhaseFallback, machine.BootID))
}

// recordOldSystem puts a node back into service with its old system and closes its
// entry of the journal, in this order: whoever finds the entry closed does nothing
// more for the node.
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

// giveUp fails an upgrade whose install did not take, however often it was tried.
func (u *nodeUpgrade) giveUp(ctx context.Context) error {
	failed := fmt.Errorf("%w: %s: the node runs its old system as before", say.ErrInstaller, u.untaken(u.entry.Attempt))

	return errors.Join(failed, u.forget(ctx), u.awaitServing(ctx))
}

// finish brings a node with the right system back into service.
func (u *nodeUpgrade) finish(ctx context.Context) error {
	if err := u.awaitServing(ctx); err != nil {
		return err
	}

	u.phase = inService

	if err := u.syncInstallImage(); err != nil {
		return err
	}

	// The node is done, whether that was in time or not.
	return u.confirm(u.untimed)
}

// awaitServing waits until etcd and Kubernetes have the node back and uncordons it.
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

// awaitEtcd waits until the whole of etcd is healthy with the node in it.
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

// How often a node that is not Ready is asked for the name that it registers under, and for how
// long that has to be another one. A machine may have a passing one until it has been told its own.
const (
	renamedEvery = 30 * time.Second
	renamedFor   = time.Minute
)

// renaming is what is known of the name of a node that is waited for.
type renaming struct {
	// asked is when the machine was last asked, and since is when it first told this name.
	asked, since time.Time
	name         string
}

// renamed is the error of a node whose machine registers under another name than before: the one
// of before will not be Ready any more.
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

// podsSpeak wants Kubernetes to say of every static pod of a control plane how it
// is in this boot: until the kubelet has come to that, their mirrors show them as
// they were before.
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

// installImageTimeout bounds the change of a machine configuration after an
// upgrade that is done. It is worth some patience and no failure.
const installImageTimeout = 2 * time.Minute

// syncInstallImage has the machine configuration name the image that the node was
// upgraded with, so that it is not installed with an older one some day. The
// upgrade is confirmed by then; what keeps this from being done is a warning, and
// so is a node whose time is used up.
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

// nameInstallImage changes the configuration once, unless it names the image
// already or has no place for it.
func (u *nodeUpgrade) nameInstallImage(ctx context.Context) (bool, string, error) {
	machine, err := u.run.engine.machine(ctx, u.step.Address)

	switch {
	case err != nil:
		return false, err.Error(), permanentOnly(err)
	case machine.Config == nil:
		return false, "", errors.New("it cannot be read with these credentials")
	case !machine.Config.Installs, machine.Config.InstallImage == "", machine.Config.InstallImage == u.entry.Image:
		// One that names no image means Talos' own choice, which is kept.
		return true, "", nil
	}

	err = u.run.leased.configure(ctx, u.step.Address, cluster.ImageChange{
		Component: cluster.Installer, From: machine.Config.InstallImage, To: u.entry.Image,
	})
	if err != nil {
		// Whoever wrote it in the meantime is looked at with the next try.
		return false, err.Error(), permanentOnly(err)
	}

	return true, "", nil
}
