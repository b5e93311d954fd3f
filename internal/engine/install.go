// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// install runs the installer beside the running system and leaves the node
// armed. From the record of the intent on, only a clean refusal or a reboot
// makes the node unarmed again.
func (u *nodeUpgrade) install(ctx context.Context) error {
	if err := u.recordIntent(ctx, "install on"); err != nil {
		return err
	}

	u.emitStep(cluster.StepInstall, u.step.Image)

	u.mayHaveInstalled = true
	result, err := u.run.engine.talos.Install(ctx, u.step.Address, u.step.Image)
	u.run.coordinator.acted(u.step.Role)

	if len(result.Output) > 0 {
		u.installs++
	}

	switch {
	case err == nil && result.Exit == 0:
		kept, cancel := u.run.engine.recordContext(ctx)
		defer cancel()

		return u.record(kept, cluster.PhaseInstalled)
	case err == nil && result.Refused(u.step.To):
		return errors.Join(&installerError{exit: result.Exit, output: result.Output}, u.withdrawIntent(ctx))
	case err == nil:
		return &installerError{exit: result.Exit, output: result.Output}
	case neverRan(err):
		return errors.Join(err, u.withdrawIntent(ctx))
	case ctx.Err() != nil:
		return err
	case notSent(err):
		return u.withdrawUnsent(ctx, err)
	}

	// The stream broke: the installer runs to its end without us. The reboot
	// shows whether it succeeded; running it again could destroy the system
	// that the node would fall back to.
	u.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "the installer's outcome is unknown, a reboot will show it: " + err.Error()})

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

	for _, clean := range []error{cluster.ErrRefused, cluster.ErrBusy, cluster.ErrNotFound, cluster.ErrDenied, cluster.ErrUnsupported, cluster.ErrCredentials} {
		if errors.Is(err, clean) {
			return true
		}
	}

	return false
}

// installerError is an installer that ran and failed.
type installerError struct {
	exit   int32
	output []string
}

func (i *installerError) Error() string {
	text := fmt.Sprintf("the installer exited with code %d", i.exit)
	if len(i.output) > 0 {
		text += ": " + i.output[len(i.output)-1]
	}

	return text
}

func (i *installerError) Unwrap() error { return ErrInstaller }

// awaitInstaller waits until no installer runs on the node.
func (u *nodeUpgrade) awaitInstaller(ctx context.Context) error {
	u.emitStep(cluster.StepInstaller, "")

	return u.run.engine.wait(ctx, u.step.Node, "the installer on "+u.step.Node+" to be idle", func(ctx context.Context) (bool, string, error) {
		idle, err := u.run.engine.talos.InstallerIdle(ctx, u.step.Address)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		return idle, "an installer is running", nil
	})
}

// rebootGuarded reboots an armed node, once the guards hold again.
func (u *nodeUpgrade) rebootGuarded(ctx context.Context) error {
	if err := u.transferEtcdLeadership(ctx, "reboot"); err != nil {
		return err
	}

	for {
		if err := u.awaitGuards(ctx, "reboot"); err != nil {
			return err
		}

		if u.observed.BootID != u.entry.BootID {
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

		if u.reserve() {
			return u.reboot(ctx)
		}

		// A context that ended is noticed by the guards.
		_ = u.run.engine.clock.Sleep(ctx, minPoll)
	}
}

// reboot asks for the reboot. Whether a call without a reply took effect, the
// wait for the new boot ID finds out.
func (u *nodeUpgrade) reboot(ctx context.Context) error {
	u.emitStep(cluster.StepReboot, "")

	err := u.run.engine.callWhole(ctx, func(ctx context.Context) error {
		return u.run.engine.talos.Reboot(ctx, u.step.Address, u.run.request.Policy.RebootMode)
	})
	if err != nil && cluster.Heals(err) {
		return nil
	}

	return err
}

// transferEtcdLeadership moves etcd leadership away from a control plane before it goes
// down, so that the others need no election.
func (u *nodeUpgrade) transferEtcdLeadership(ctx context.Context, before string) error {
	if u.step.Role != cluster.ControlPlane {
		return nil
	}

	// With a member down the leadership could go to that one.
	if err := u.awaitGuards(ctx, before); err != nil {
		return err
	}

	view, err := u.run.engine.talos.Etcd(ctx, u.step.Address)
	if err != nil || view.Status.Leader != view.Status.MemberID || len(view.Members) < 2 {
		// A member that cannot be asked is the guards' affair.
		return permanentOnly(err)
	}

	if ok, _, err := u.run.lock.holds(ctx); err != nil || !ok {
		return err
	}

	// Best effort: an election after the reboot is the worst that can happen.
	if err := u.run.engine.callWhole(ctx, func(ctx context.Context) error { return u.run.engine.talos.ForfeitLeadership(ctx, u.step.Address) }); err != nil {
		u.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "etcd leadership could not be moved away: " + err.Error()})
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

	u.emitStep(cluster.StepLegacy, u.step.Image)

	u.mayHaveInstalled = true
	// What was pulled before is in another store than the node installs from.
	downloaded := u.allowed.hold(cluster.PullTimeout)
	result, err := u.run.engine.talos.Upgrade(ctx, u.step.Address, u.step.Image, u.run.request.Policy.RebootMode, downloaded)

	downloaded()
	u.run.coordinator.acted(u.step.Role)

	switch {
	case err == nil && result.Exit == 0:
		return u.recordBestEffort(ctx, cluster.PhaseRebooting)
	case err == nil:
		return u.awaitLegacyReturn(ctx, &installerError{exit: result.Exit, output: result.Output})
	case neverRan(err):
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
// reboots into its old system by itself, and nothing is armed any more.
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
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrLeaseLost) {
		return err
	}

	u.entry.Phase = phase

	return nil
}

// resumeLegacy looks at a node whose legacy upgrade may or may not have been
// accepted. A node that stays in service was never asked: this API leaves
// nothing armed behind.
func (u *nodeUpgrade) resumeLegacy(ctx context.Context) (outcome, error) {
	since := u.run.engine.clock.Now()

	err := u.run.engine.wait(ctx, u.step.Node, "the legacy upgrade of "+u.step.Node+" to show itself", func(ctx context.Context) (bool, string, error) {
		machine, err := u.run.engine.talos.Machine(ctx, u.step.Address)

		switch {
		case err != nil && !cluster.Heals(err):
			return false, "", err
		case err == nil && machine.BootID == "":
			since = u.run.engine.clock.Now()

			return false, bootUnknown, nil
		case err != nil || machine.BootID != u.entry.BootID || machine.Stage != cluster.StageRunning:
			return false, "", errStirred
		}

		u.runs = machine.Talos

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
