// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// installAttempts is how often an install is tried that a reboot showed never
// to have taken.
const installAttempts = 2

// turn is the upgrade of one node, from cordon to uncordon.
type turn struct {
	*run

	step plan.Step
	// entry is the journal's entry of the node, as last written.
	entry cluster.Entry
	// seen is the node as the guards last saw it, looked is when, and steps are
	// those that turns had done by then.
	seen   cluster.Machine
	looked time.Time
	steps  int
	// ready is the last transition of the node's Ready condition, as the wait
	// for it saw it.
	ready time.Time
	// armed tells that an installer may have run since the last boot.
	armed bool
	// cordoned tells that the cordon on the node is ours.
	cordoned bool
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
)

// turn moves one node, or finishes what an earlier run began with it. It
// returns the last transition of the node's Ready condition.
func (r *run) turn(ctx context.Context, step plan.Step) (time.Time, error) {
	t := &turn{run: r, step: step}
	defer r.traffic.calm(step.Node)

	t.entry, t.armed = r.journal.entry(step.UUID)
	t.armed = t.armed && t.entry.Open()

	if !t.armed && !step.Done {
		// Cheap when it is there still; the node drops unused images after a
		// while. It has its own time, so it does not eat up the node's.
		if err := r.pull(ctx, step, step.Image); err != nil {
			return t.ready, t.failure(ctx, err)
		}
	}

	bounded, cancel := r.clock.WithTimeout(ctx, r.request.Policy.NodeTimeout)
	defer cancel()

	err := t.move(bounded)
	if errors.Is(err, errNoRoom) {
		return t.ready, err
	}

	if err != nil {
		t.tidy(ctx)

		return t.ready, t.failure(ctx, err)
	}

	r.emit(cluster.Event{Kind: cluster.EventNodeDone, Node: step.Node, Target: r.request.Target, To: step.To})

	return t.ready, nil
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
		case fellBack:
			return t.fallback(ctx)
		case neverTook:
		}

		switch {
		case t.step.API == "":
			// The node was away when the plan was made, so the step does not
			// say what to install. The next plan will.
			return t.rejoin(ctx)
		case t.entry.Image != t.step.Image, t.entry.Run != t.run.run:
			// What an earlier run meant to install may never have been tried.
			attempt = 1
		case t.entry.Attempt >= installAttempts:
			return t.giveUp(ctx)
		default:
			attempt = t.entry.Attempt + 1
		}

		t.armed = false
	}
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

	if t.reached(machine) || t.passed(machine) {
		t.cordoned = true

		return arrived, nil
	}

	t.entry = cluster.Entry{
		Node: t.step.Node, Attempt: number, BootID: machine.BootID, Image: t.step.Image, Target: t.step.To,
		Previous: machine.Talos, PreviousSchematic: machine.Schematic,
	}

	if machine.BootID == "" {
		return arrived, fmt.Errorf("the boot ID cannot be read, and without it a reboot cannot be proven: %w", cluster.ErrDenied)
	}

	if err := t.vacate(ctx); err != nil {
		return arrived, err
	}

	err = t.renew(ctx, machine.UpgradeAPI())
	if errors.Is(err, errAlreadyThere) {
		return arrived, nil
	}

	if err != nil {
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

		if err := t.clock.Sleep(ctx, pollMost); err != nil {
			return err
		}
	}
}

// errNotSent is a call that certainly did not reach the node.
var errNotSent = errors.New("the call did not reach the node")

// resume continues with a node that an earlier run left armed. The journal is
// only a hint; the node says what is true.
func (t *turn) resume(ctx context.Context) (outcome, error) {
	t.cordoned = true
	t.traffic.disturb(t.step.Node)

	machine, err := t.reach(ctx)
	if err != nil {
		return arrived, err
	}

	if machine.BootID != t.entry.BootID || machine.Stage != cluster.StageRunning {
		return t.comeBack(ctx)
	}

	if machine.UpgradeAPI() == cluster.LegacyAPI {
		return t.resumeLegacy(ctx)
	}

	if err := t.awaitInstaller(ctx); err != nil {
		return arrived, err
	}

	if err := t.vacate(ctx); err != nil {
		return arrived, err
	}

	if err := t.restart(ctx); err != nil {
		return arrived, err
	}

	return t.comeBack(ctx)
}

// reach waits until the node answers and no longer looks like going down.
func (t *turn) reach(ctx context.Context) (cluster.Machine, error) {
	var machine cluster.Machine

	err := t.wait(ctx, t.step.Node, "the Talos API of "+t.step.Node+" to answer", func(ctx context.Context) (bool, string, error) {
		var err error

		machine, err = t.talos.Machine(ctx, t.step.Address)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		return true, "", nil
	})

	return machine, err
}

// reached tells whether the machine runs what the step wants.
func (t *turn) reached(machine cluster.Machine) bool {
	return machine.Talos.Equal(t.step.To) && (!t.step.Demanded || machine.Schematic == t.step.Schematic)
}

// passed tells whether the machine is past the step already: somebody else was
// at it since the plan was made, and no version ever goes down.
func (t *turn) passed(machine cluster.Machine) bool { return t.step.To.Less(machine.Talos) }

// vacate takes the node out of service: guards, cordon, drain.
func (t *turn) vacate(ctx context.Context) error {
	if err := t.occupy(ctx); err != nil {
		return err
	}

	return t.drain(ctx)
}

func (t *turn) doing(step cluster.NodeStep, text string) {
	t.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: t.step.Node, Step: step, Text: text})
}
