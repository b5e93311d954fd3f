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

// turn is the upgrade of one node, from cordon to uncordon.
type turn struct {
	run *run

	step plan.Step
	// entry is the journal's entry of the node, as last written.
	entry cluster.Entry
	// seen is the node as the guards last saw it, looked is when, and steps are
	// those that turns had done by then. Occupied tells that it was cordoned.
	seen     cluster.Machine
	looked   time.Time
	steps    mark
	occupied bool
	// member is the version of etcd that its member spoke then, and well tells that
	// nothing was wrong with the node itself.
	member string
	well   bool
	// runs is the version that the node runs as the turn found out.
	runs version.Version
	// ready is the last transition of the node's Ready condition, as the wait
	// for it saw it.
	ready time.Time
	// allowed is the time that the node may take, from cordon to uncordon.
	allowed *allowance
	// whole is the context of the turn without the limit of its time.
	whole context.Context //nolint:containedctx // the turn is one call, and the limit of its time ends within it
	// armed tells that an installer may have run since the last boot, open that
	// the journal says so.
	armed, open bool
	// ran counts the installs of which the installer was heard.
	ran int
	// cordoned tells that the cordon on the node is ours.
	cordoned bool
	// uncordoned tells that somebody took that cordon away once.
	uncordoned bool
	// served tells that the node is back in service.
	served bool
	// stayed tells that the turn leaves the node with what it ran, for the next
	// plan to decide about.
	stayed bool
	// returning tells that the node is being sent back to its old system, for
	// which it need not be well itself.
	returning bool
	// words are the last lines of the node's log before it was sent back, and
	// unreturned is why it was not.
	words      []string
	unreturned string
	// booted is the last boot ID at which the node was seen that it did not have
	// when its new system was installed.
	booted string
}

// outcome is what a reboot showed.
type outcome int

const (
	// arrived: the node runs what it was to run.
	arrived outcome = iota
	// neverTook: the node runs what it ran, because nothing was installed.
	neverTook
	// fellBack: the node runs what it ran, because the new system did not come
	// up.
	fellBack
	// unplanned: the node runs something that the plan was not made for, and
	// nothing was done to it.
	unplanned
	// rolledBack: the node runs what it ran, because it was sent back.
	rolledBack
)

// turn moves one node, or finishes what an earlier run began with it. It
// returns the last transition of the node's Ready condition.
func (r *run) turn(ctx context.Context, step plan.Step) (ready time.Time, err error) {
	t := &turn{run: r, step: step}
	defer r.traffic.calm(step.Node)
	defer func() {
		if err == nil {
			r.settling.begin(step, t.ready, r.engine.clock.Now())
		}
	}()

	t.entry, t.armed = r.journal.entry(step.Key)
	t.armed = t.armed && t.entry.Open()
	t.open = t.armed

	if !t.armed && !step.Done && step.Image != "" && step.API != "" {
		// Cheap when it is there still; the node drops unused images after a
		// while. It has its own time, so it does not eat up the node's.
		if err := r.pull(ctx, step, step.Image); err != nil {
			return t.ready, t.failure(ctx, err)
		}
	}

	t.whole = ctx

	err = t.inTurn(ctx)
	if errors.Is(err, errNoRoom) || errors.Is(err, errStoodDown) {
		// Of what this run did nothing is left; what an earlier one left cordoned is
		// put back.
		t.tidy(ctx)

		return t.ready, err
	}

	if err != nil {
		t.tidy(ctx)

		return t.ready, t.failure(ctx, err)
	}

	if t.stayed {
		r.emit(cluster.Event{Kind: cluster.EventNodeStopped, Node: step.Node, Text: "the node is left to the next plan"})

		return t.ready, nil
	}

	r.emit(cluster.Event{Kind: cluster.EventNodeDone, Node: step.Node, Target: r.request.Target, To: t.runs})

	return t.ready, nil
}

// inTurn waits for the gates and moves the node, which has all of its time then.
// A gate that closes before the node was touched is waited for anew.
func (t *turn) inTurn(ctx context.Context) error {
	for range closuresMost {
		if err := t.awaitGates(ctx); err != nil {
			return err
		}

		bounded, allowed, cancel := allow(ctx, t.run.engine.clock, t.run.request.Policy.NodeTimeout)
		t.allowed = allowed
		err := t.move(bounded)
		unhealthy := t.unhealthy(bounded, err)

		cancel()

		switch {
		case unhealthy:
			return t.answer(err)
		case !errors.Is(err, errGateClosed):
			return err
		}

		// A context that ended is noticed by the wait for the gates.
		_ = t.run.engine.clock.Sleep(ctx, pollMost)
	}

	return errFlickers
}

// move brings the node to its target, trying an install again that turns out
// not to have happened.
func (t *turn) move(ctx context.Context) error {
	attempt := 1

	for {
		result, err := t.attempt(ctx, attempt)
		if err != nil {
			return err
		}

		switch result {
		case arrived:
			return t.rejoin(ctx)
		case fellBack, rolledBack:
			return t.returnedTo(ctx, result)
		case unplanned:
			return t.withdraw(ctx)
		case neverTook:
		}

		switch {
		case t.step.Finish, t.entry.Run != t.run.engine.run:
			// What the step says of the image was planned before it was known
			// what the node runs, and the image was not pulled. The next plan
			// knows more.
			t.stayed = true

			return t.rejoin(ctx)
		case t.entry.Attempt >= t.run.request.Policy.Repeat.Attempts:
			return t.giveUp(ctx)
		default:
			attempt = t.entry.Attempt + 1
		}

		if err := t.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// withdraw leaves a node alone to which nothing was done in this turn, but for a
// cordon.
func (t *turn) withdraw(ctx context.Context) error {
	t.stayed = true

	t.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: fmt.Sprintf(
		"the node runs Talos %s, for which its turn was not planned; it is planned anew", t.runs)})

	if !t.cordoned && !t.step.Finish {
		return nil
	}

	t.cordoned = true

	return t.rejoin(ctx)
}

// attempt begins where the node is: with an install, with the reboot that an
// armed node still needs, or with nothing but the way back into service.
func (t *turn) attempt(ctx context.Context, number int) (outcome, error) {
	if t.armed {
		return t.resume(ctx)
	}

	machine, err := t.reach(ctx)
	if err != nil {
		return arrived, err
	}

	t.runs = machine.Talos

	switch {
	case t.reached(machine) || t.passed(machine):
		t.cordoned = true

		return arrived, nil
	case t.step.Finish && !t.step.Canary && len(t.run.request.Policy.Canary) > 0:
		// Nothing but the cordon is there to be finished: what is installed here
		// has to wait for the canaries.
		t.cordoned, t.stayed = true, true

		return arrived, nil
	case t.step.API == "" || t.step.Image == "" || !machine.Talos.Equal(t.step.From):
		return unplanned, nil
	}

	t.entry = cluster.Entry{
		Node: t.step.Node, Attempt: number, BootID: machine.BootID, Image: t.step.Image, Target: t.step.To,
		Previous: machine.Talos, PreviousSchematic: machine.Schematic, Schematic: t.step.Schematic,
		Platform: machine.Platform,
	}

	if err := t.vacate(ctx); err != nil {
		return arrived, err
	}

	err = t.renew(ctx, machine.UpgradeAPI())

	switch {
	case errors.Is(err, errAlreadyThere):
		t.runs = t.seen.Talos

		return arrived, nil
	case errors.Is(err, errStale):
		t.runs = t.seen.Talos

		return unplanned, nil
	case err != nil:
		return arrived, err
	}

	return t.comeBack(ctx)
}

// renew has the new system installed and the node sent into its reboot.
func (t *turn) renew(ctx context.Context, api cluster.UpgradeAPI) error {
	if api == cluster.LegacyAPI {
		return t.sent(ctx, t.upgradeLegacy)
	}

	if err := t.sent(ctx, t.install); err != nil {
		return err
	}

	return t.restart(ctx)
}

// sent repeats a call, with the guards before it, for as long as it certainly
// did not reach the node.
func (t *turn) sent(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		if !errors.Is(err, errNotSent) {
			return err
		}

		if ended := t.run.engine.clock.Sleep(ctx, pollMost); ended != nil {
			return fmt.Errorf("%w; %w", err, ended)
		}
	}
}

// errNotSent is a call that certainly did not reach the node.
var errNotSent = errors.New("the call did not reach the node")

// resume continues with a node that an earlier run left armed. The journal is
// only a hint; the node says what is true.
func (t *turn) resume(ctx context.Context) (outcome, error) {
	t.cordoned = true
	t.run.traffic.disturb(t.step.Node)

	machine, err := t.identify(ctx)
	if err != nil {
		return arrived, err
	}

	t.runs = machine.Talos

	if t.entry.BootID == "" && !(machine.Talos.Equal(t.entry.Target) && !machine.Talos.Equal(t.entry.Previous)) {
		// Nothing proves that the node went through a boot, so it still has to.
		t.entry.BootID = machine.BootID
	}

	// Of a node that was about to be sent back only a boot tells whether it was
	// told: to be told twice would keep it where it is.
	t.returning = t.entry.Phase == cluster.PhaseRollingBack

	if machine.BootID != t.entry.BootID || machine.Stage != cluster.StageRunning {
		return t.comeBack(ctx)
	}

	switch legacy := machine.UpgradeAPI() == cluster.LegacyAPI; {
	case legacy && !t.returning:
		return t.resumeLegacy(ctx)
	case !legacy:
		if err := t.awaitInstaller(ctx); err != nil {
			return arrived, err
		}
	}

	if err := t.vacate(ctx); err != nil {
		return arrived, err
	}

	if err := t.restart(ctx); err != nil {
		return arrived, err
	}

	return t.comeBack(ctx)
}

// vacate takes the node out of service: guards, cordon, drain.
func (t *turn) vacate(ctx context.Context) error {
	if err := t.occupy(ctx); err != nil {
		return err
	}

	return t.drain(ctx)
}

func (t *turn) doing(step cluster.NodeStep, text string) {
	t.run.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: t.step.Node, Step: step, Text: text})
}
