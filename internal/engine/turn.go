// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// nodeUpgrade is the upgrade of one node, from cordon to uncordon.
type nodeUpgrade struct {
	run *run

	step plan.Step
	// entry is the journal's entry of the node, as last written.
	entry cluster.Entry
	// observed is the node as the guards last saw it, looked is when, and steps are
	// those that upgrades had done by then. Occupied tells that it was cordoned.
	observed    cluster.Machine
	observedAt  time.Time
	steps       generation
	wasCordoned bool
	// member is the version of etcd that its member spoke then, and well tells that
	// nothing was wrong with the node itself.
	member string
	well   bool
	// runs is the version that the node runs as the upgrade found out.
	runs version.Version
	// ready is the last transition of the node's Ready condition, as the wait
	// for it saw it.
	ready time.Time
	// allowed is the time that the node may take, from cordon to uncordon.
	allowed *allowance
	// untimed is the context of the upgrade without the limit of its time.
	untimed context.Context //nolint:containedctx // the upgrade is one call, and the limit of its time ends within it
	// mayHaveInstalled tells that an installer may have run since the last boot, open that
	// the journal says so.
	mayHaveInstalled, pending bool
	// installs counts the installs of which the installer was heard.
	installs int
	// cordoned tells that the cordon on the node is ours.
	cordoned bool
	// uncordoned tells that somebody took that cordon away once.
	uncordoned bool
	// inService tells that the node is back in service.
	inService bool
	// leftToPlan tells that the upgrade leaves the node with what it ran, for the next
	// plan to decide about.
	leftToPlan bool
	// returning tells that the node is being sent back to its old system, for
	// which it need not be well itself.
	returning bool
	// logTail are the last lines of the node's log before it was sent back, and
	// unreturned is why it was not.
	logTail            []string
	rollbackSkipReason string
	// booted is the last boot ID at which the node was seen that it did not have
	// when its new system was installed.
	booted string
}

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
	t := &nodeUpgrade{run: r, step: step}
	defer r.coordinator.done(step.Node)
	defer func() {
		if err == nil {
			r.soak.begin(step, t.ready, r.engine.clock.Now())
		}
	}()

	t.entry, t.mayHaveInstalled = r.journal.entry(step.Key)
	t.mayHaveInstalled = t.mayHaveInstalled && t.entry.Open()
	t.pending = t.mayHaveInstalled

	if !t.mayHaveInstalled && !step.Done && step.Image != "" && step.API != "" {
		// Cheap when it is there still; the node drops unused images after a
		// while. It has its own time, so it does not eat up the node's.
		if err := r.pull(ctx, step, step.Image); err != nil {
			return t.ready, t.failure(ctx, err)
		}
	}

	t.untimed = ctx

	err = t.upgradeWhenAllowed(ctx)
	if errors.Is(err, errYield) || errors.Is(err, errStopped) {
		// Of what this run did nothing is left; what an earlier one left cordoned is
		// put back.
		t.cleanUp(ctx)

		return t.ready, err
	}

	if err != nil {
		t.cleanUp(ctx)

		return t.ready, t.failure(ctx, err)
	}

	if t.leftToPlan {
		r.emit(cluster.Event{Kind: cluster.EventNodeStopped, Node: step.Node, Text: "the node is left to the next plan"})

		return t.ready, nil
	}

	r.emit(cluster.Event{Kind: cluster.EventNodeDone, Node: step.Node, Target: r.request.Target, To: t.runs})

	return t.ready, nil
}

// upgradeWhenAllowed waits for the gates and moves the node, which has all of its time then.
// A gate that closes before the node was touched is waited for anew.
func (u *nodeUpgrade) upgradeWhenAllowed(ctx context.Context) error {
	for range closuresMost {
		if err := u.awaitGates(ctx); err != nil {
			return err
		}

		bounded, allowed, cancel := allow(ctx, u.run.engine.clock, u.run.request.Policy.NodeTimeout)
		u.allowed = allowed
		err := u.upgrade(bounded)
		unhealthy := u.unhealthy(bounded, err)

		cancel()

		switch {
		case unhealthy:
			return u.rollBackIfUnhealthy(err)
		case !errors.Is(err, errGateClosed):
			return err
		}

		// A context that ended is noticed by the wait for the gates.
		_ = u.run.engine.clock.Sleep(ctx, maxPoll)
	}

	return errFlickers
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
			u.leftToPlan = true

			return u.finish(ctx)
		case u.entry.Attempt >= u.run.request.Policy.Repeat.Attempts:
			return u.giveUp(ctx)
		default:
			attempt = u.entry.Attempt + 1
		}

		if err := u.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// leaveUnplanned leaves a node alone to which nothing was done in this upgrade, but for a
// cordon.
func (u *nodeUpgrade) leaveUnplanned(ctx context.Context) error {
	u.leftToPlan = true

	u.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
		"the node runs Talos %s, for which its turn was not planned; it is planned anew", u.runs)})

	if !u.cordoned && !u.step.Finish {
		return nil
	}

	u.cordoned = true

	return u.finish(ctx)
}

// attempt begins where the node is: with an install, with the reboot that an
// armed node still needs, or with nothing but the way back into service.
func (u *nodeUpgrade) attempt(ctx context.Context, number int) (outcome, error) {
	if u.mayHaveInstalled {
		return u.resume(ctx)
	}

	machine, err := u.awaitAnswer(ctx)
	if err != nil {
		return arrived, err
	}

	u.runs = machine.Talos

	switch {
	case u.atTarget(machine) || u.beyondTarget(machine):
		u.cordoned = true

		return arrived, nil
	case u.step.Finish && !u.step.Canary && len(u.run.request.Policy.Canary) > 0:
		// Nothing but the cordon is there to be finished: what is installed here
		// has to wait for the canaries.
		u.cordoned, u.leftToPlan = true, true

		return arrived, nil
	case u.step.API == "" || u.step.Image == "" || !machine.Talos.Equal(u.step.From):
		return outdatedPlan, nil
	}

	u.entry = cluster.Entry{
		Node: u.step.Node, Attempt: number, BootID: machine.BootID, Image: u.step.Image, Target: u.step.To,
		Previous: machine.Talos, PreviousSchematic: machine.Schematic, Schematic: u.step.Schematic,
		Platform: machine.Platform,
	}

	if err := u.cordonAndDrain(ctx); err != nil {
		return arrived, err
	}

	err = u.installAndReboot(ctx, machine.UpgradeAPI())

	switch {
	case errors.Is(err, errAlreadyThere):
		u.runs = u.observed.Talos

		return arrived, nil
	case errors.Is(err, errStale):
		u.runs = u.observed.Talos

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

	if err := u.untilSent(ctx, u.install); err != nil {
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

		if ended := u.run.engine.clock.Sleep(ctx, maxPoll); ended != nil {
			return fmt.Errorf("%w; %w", err, ended)
		}
	}
}

// errNotSent is a call that certainly did not reach the node.
var errNotSent = errors.New("the call did not reach the node")

// resume continues with a node that an earlier run left armed. The journal is
// only a hint; the node says what is true.
func (u *nodeUpgrade) resume(ctx context.Context) (outcome, error) {
	u.cordoned = true
	u.run.coordinator.disturb(u.step.Node)

	machine, err := u.awaitBootID(ctx)
	if err != nil {
		return arrived, err
	}

	u.runs = machine.Talos

	if u.entry.BootID == "" && !(machine.Talos.Equal(u.entry.Target) && !machine.Talos.Equal(u.entry.Previous)) {
		// Nothing proves that the node went through a boot, so it still has to.
		u.entry.BootID = machine.BootID
	}

	// Of a node that was about to be sent back only a boot tells whether it was
	// told: to be told twice would keep it where it is.
	u.returning = u.entry.Phase == cluster.PhaseRollingBack

	if machine.BootID != u.entry.BootID || machine.Stage != cluster.StageRunning {
		return u.awaitReboot(ctx)
	}

	switch legacy := machine.UpgradeAPI() == cluster.LegacyAPI; {
	case legacy && !u.returning:
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

func (u *nodeUpgrade) emitStep(step cluster.NodeStep, text string) {
	u.run.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: u.step.Node, Step: step, Text: text})
}
