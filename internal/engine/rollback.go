// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// unhealthy reports whether an upgrade ended because its node runs the new system and did not become healthy in
// time. For any other end of an upgrade, the old system would be no cure.
func (u *nodeUpgrade) unhealthy(bounded context.Context, err error) bool {
	return err != nil && u.untimed.Err() == nil && errors.Is(cluster.Ended(bounded), context.DeadlineExceeded) &&
		u.recorded() && u.rebooted() && u.phase != inService && !u.result.runs.IsZero() && u.result.runs.Equal(u.entry.Target)
}

// rebooted reports whether the node has booted since the entry in the journal was written. Each attempt begins
// with a new entry.
func (u *nodeUpgrade) rebooted() bool { return u.booted != "" && u.booted != u.entry.BootID }

// rollBackIfUnhealthy handles a node whose new system did not become healthy. Err is the error of the upgrade.
func (u *nodeUpgrade) rollBackIfUnhealthy(err error) error {
	failed := error(&say.UnhealthyError{Version: u.result.runs.String(), Err: err})
	if u.run.request.Policy.OnFailure != cluster.RollBackOnFailure {
		return failed
	}

	bounded, cancel := u.run.engine.clock.WithTimeout(u.untimed, u.run.request.Policy.NodeTimeout)
	defer cancel()

	u.run.shared.markDoubtful(u.step.Node)
	u.result.logTail = u.run.engine.tailLog(bounded, u.step.Address, serviceMachined)
	u.phase = returning

	result, err := u.rollBack(bounded, failed)

	switch {
	case errors.Is(err, errWell):
		return u.recovered(bounded, failed)
	case err != nil:
		return u.rollbackSkipped(failed, err)
	case result == rolledBack:
		return u.finishRolledBack(bounded, failed)
	}

	// The reboot has cured the node, or it is as it was: the new system has started again.
	u.phase = installCalled

	if err := u.finish(bounded); err != nil {
		return fmt.Errorf("%w\nIt was told to start its old system, started the new one again, and is not healthy with it: %w", failed, err)
	}

	return nil
}

// errWell is returned if nothing is wrong with the node when it is observed again.
var errWell = errors.New("nothing is wrong with the node itself")

// recovered brings a node back into service that is healthy after all: the cause was elsewhere.
func (u *nodeUpgrade) recovered(ctx context.Context, failed error) error {
	u.phase = installCalled

	if err := u.finish(ctx); err != nil {
		u.result.rollbackSkipReason = errWell.Error() + ", and what it waits for is elsewhere"

		return errors.Join(failed, err)
	}

	return nil
}

// rollBack sends the node back to its old system, drained and guarded like an upgrade, and returns what it
// booted.
func (u *nodeUpgrade) rollBack(ctx context.Context, failed error) (outcome, error) {
	if err := u.guardRollback(ctx); err != nil {
		return arrived, err
	}

	if err := u.cordonAndDrain(ctx); err != nil {
		return arrived, err
	}

	if err := u.transferEtcdLeadership(ctx, "roll back"); err != nil {
		return arrived, err
	}

	if err := u.untilSent(ctx, func(ctx context.Context) error { return u.requestRollback(ctx, failed) }); err != nil {
		return arrived, err
	}

	return u.awaitReboot(ctx)
}

// guardRollback observes the cluster and returns what speaks against a rollback.
func (u *nodeUpgrade) guardRollback(ctx context.Context) error {
	var against []string

	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, guardTimeout)
	defer cancel()

	err := u.run.engine.wait(bounded, u.step.Node, "the cluster to tell whether "+u.step.Node+" may be rolled back", func(ctx context.Context) (bool, string, error) {
		observed, err := u.run.observe(ctx, inquiry{claim: u.step.Node, etcd: true, opinions: true, machines: func(node cluster.Node) bool {
			return node.Role == cluster.ControlPlane || node.Name == u.step.Node
		}})
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		if observed.KubernetesError != nil {
			return false, observed.KubernetesError.Error(), permanentOnly(observed.KubernetesError)
		}

		if node, found := observed.Node(u.step.Node); found && rule.Well(node) && !u.asked {
			return false, "", errWell
		}

		against = plan.AgainstRollback(observed, u.step.Node, u.entry)

		return true, "", nil
	})
	if err != nil {
		return err
	}

	if len(against) > 0 {
		return fmt.Errorf("%w: %s", errMustNotReturn, strings.Join(against, "; "))
	}

	return nil
}

// errOtherBoot is returned if the node has booted since it was decided that it may be sent back.
var errOtherBoot = errors.New("it was rebooted or upgraded meanwhile, so that it is not certain any more what is in its other boot slot")

// errMustNotReturn is returned if a rollback of the node would not be safe.
var errMustNotReturn = errors.New("that is not safe")

// finishRolledBack puts a node that was sent back into service with its old system, records that, and fails the
// upgrade.
func (u *nodeUpgrade) finishRolledBack(ctx context.Context, failed error) error {
	machine, err := u.awaitBootID(ctx)
	if err != nil {
		return err
	}

	u.phase = installCalled

	back := &say.RolledBackError{Failed: failed, Image: u.entry.Image, Previous: machine.Talos.String(), BootID: machine.BootID}
	if u.entry.Asked != "" {
		// An earlier run began it.
		back.Failed, back.Asked = nil, plan.AskedFor(u.entry)
	}

	back.Unserved = u.recordOldSystem(ctx, cluster.PhaseRolledBack, machine.BootID)

	return back
}

// rollbackSkipped returns the error of a node that should have been sent back, and was not.
func (u *nodeUpgrade) rollbackSkipped(failed, err error) error {
	switch {
	case u.entry.Phase == cluster.PhaseRollingBack && !errors.Is(err, errMustNotReturn):
		return fmt.Errorf("%w\nIt was to start its old system again: %w", failed, err)
	case errors.Is(err, say.ErrLeaseLost), errors.Is(err, context.Canceled):
		return errors.Join(failed, err)
	}

	u.result.rollbackSkipReason = err.Error()

	// The remedy is about the failure itself.
	return failed
}

// requestRollback records what is about to be done and has the node start its old system. If the call gets no
// reply, only the next boot shows whether it took effect, because a second rollback in the same boot would undo
// the first.
func (u *nodeUpgrade) requestRollback(ctx context.Context, failed error) error {
	before := u.entry

	if err := u.recordRollbackIntent(ctx, failed); err != nil {
		if u.entry.Phase == cluster.PhaseRollingBack && before.Phase != cluster.PhaseRollingBack {
			// It was recorded, but not acted on.
			err = errors.Join(err, u.withdrawRollback(ctx, before))
		}

		return err
	}

	u.enterStep(cluster.StepRollback, "")

	err := u.run.leased.rollBack(ctx, u.step.Address)
	u.noteActed()

	switch {
	case err == nil:
		// The node has accepted the request.
		u.entry.Told = true

		return u.recordBestEffort(ctx, cluster.PhaseRollingBack)
	case notSent(err), neverRan(err):
		if undone := u.withdrawRollback(ctx, before); undone != nil {
			return errors.Join(err, undone)
		}

		if notSent(err) {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}

		return err
	case ctx.Err() != nil:
		return err
	default:
		return nil
	}
}

// clearDoubtfulRollback takes back the record of a rollback that may or may not have been written. Otherwise the next
// apply could send back a node that was said to run as before.
func (u *nodeUpgrade) clearDoubtfulRollback(ctx context.Context, before cluster.Entry) error {
	if _, _, lost := u.run.lock.state(); lost != nil {
		return nil
	}

	bounded, cancel := u.run.engine.clock.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()

	return u.withdrawRollback(bounded, before)
}

// withdrawRollback takes back the record of a rollback that certainly did not reach the node.
func (u *nodeUpgrade) withdrawRollback(ctx context.Context, before cluster.Entry) error {
	kept, cancel := u.run.engine.recordContext(ctx)
	defer cancel()

	if before.Phase == "" {
		// The node was in service, and nothing about it was unfinished.
		err := u.restore(kept, before)
		if err == nil {
			u.entry, u.phase = before, returning
		}

		return err
	}

	said := u.entry
	u.entry = before

	err := u.record(kept, before.Phase)
	if err != nil {
		u.entry = said
	}

	return err
}

// recordRollbackIntent guards the node and records that it is about to be sent back. It returns nil only while
// the observation is fresh, and the step is then counted.
func (u *nodeUpgrade) recordRollbackIntent(ctx context.Context, failed error) error {
	// A rollback that a person asks for requires the boot in which the upgrade was confirmed: before any other
	// boot, something else may have been installed.
	boot := ""
	if u.asked {
		boot = u.entry.ConfirmedBootID
	}

	for {
		if err := u.awaitGuards(ctx, "roll back"); err != nil {
			return err
		}

		if boot == "" {
			boot = u.seen.machine.BootID
		}

		if u.seen.well && !u.asked {
			return errWell
		}

		if u.seen.machine.BootID != boot || !u.seen.machine.Talos.Equal(u.entry.Target) {
			if u.asked {
				return errOtherBoot
			}

			return errStale
		}

		if u.entry.Phase != cluster.PhaseRollingBack || u.entry.BootID != boot {
			before := u.entry
			u.entry.BootID = boot

			if err := u.record(ctx, cluster.PhaseRollingBack); err != nil {
				return errors.Join(err, u.clearDoubtfulRollback(ctx, before))
			}

			u.tellRollingBack(failed)
		}

		if ctx.Err() != nil {
			return cluster.Ended(ctx)
		}

		if u.mayAct() {
			return nil
		}

		// A context that ended is noticed by the guards.
		_ = u.run.engine.clock.Sleep(ctx, minPoll)
	}
}

// tellRollingBack emits that the node is about to be sent back, and why.
func (u *nodeUpgrade) tellRollingBack(failed error) {
	event := cluster.Event{Kind: cluster.EventRollingBack, Node: u.step.Node, Target: u.run.request.Target, To: u.entry.Previous, Err: failed}

	if u.asked {
		event.Asked, event.Text = true, plan.AskedFor(u.entry)
	} else {
		event.Text = failed.Error()
	}

	u.told = true
	u.run.engine.emit(event)
}
