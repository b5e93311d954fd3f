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
func (t *turn) install(ctx context.Context) error {
	if err := t.intend(ctx, "install on"); err != nil {
		return err
	}

	t.doing(cluster.StepInstall, t.step.Image)

	t.armed = true
	result, err := t.run.engine.talos.Install(ctx, t.step.Address, t.step.Image)
	t.run.traffic.stepped(t.step.Role)

	if len(result.Output) > 0 {
		t.ran++
	}

	switch {
	case err == nil && result.Exit == 0:
		kept, cancel := t.run.engine.outlasting(ctx)
		defer cancel()

		return t.record(kept, cluster.PhaseInstalled)
	case err == nil && result.Refused(t.step.To):
		return errors.Join(&installerError{exit: result.Exit, output: result.Output}, t.recall(ctx))
	case err == nil:
		return &installerError{exit: result.Exit, output: result.Output}
	case neverRan(err):
		return errors.Join(err, t.recall(ctx))
	case ctx.Err() != nil:
		return err
	case notSent(err):
		return t.unsent(ctx, err)
	}

	// The stream broke: the installer runs to its end without us. The reboot
	// shows whether it succeeded; running it again could destroy the system
	// that the node would fall back to.
	t.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: "the installer's outcome is unknown, a reboot will show it: " + err.Error()})

	return t.awaitInstaller(ctx)
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
func (t *turn) awaitInstaller(ctx context.Context) error {
	t.doing(cluster.StepInstaller, "")

	return t.run.engine.wait(ctx, t.step.Node, "the installer on "+t.step.Node+" to be idle", func(ctx context.Context) (bool, string, error) {
		idle, err := t.run.engine.talos.InstallerIdle(ctx, t.step.Address)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		return idle, "an installer is running", nil
	})
}

// restart reboots an armed node, once the guards hold again.
func (t *turn) restart(ctx context.Context) error {
	if err := t.abdicate(ctx, "reboot"); err != nil {
		return err
	}

	for {
		if err := t.guarded(ctx, "reboot"); err != nil {
			return err
		}

		if t.seen.BootID != t.entry.BootID {
			// It went through a boot without us; that boot tells the rest.
			return nil
		}

		// An intent stays one: only that tells an install which never took from
		// a system that did not come up.
		if t.entry.Phase == cluster.PhaseInstalled {
			if err := t.record(ctx, cluster.PhaseRebooting); err != nil {
				return err
			}
		}

		if t.claim() {
			return t.reboot(ctx)
		}

		// A context that ended is noticed by the guards.
		_ = t.run.engine.clock.Sleep(ctx, pollFirst)
	}
}

// reboot asks for the reboot. Whether a call without a reply took effect, the
// wait for the new boot ID finds out.
func (t *turn) reboot(ctx context.Context) error {
	t.doing(cluster.StepReboot, "")

	err := t.run.engine.once(ctx, func(ctx context.Context) error {
		return t.run.engine.talos.Reboot(ctx, t.step.Address, t.run.request.Policy.RebootMode)
	})
	if err != nil && cluster.Heals(err) {
		return nil
	}

	return err
}

// abdicate moves etcd leadership away from a control plane before it goes
// down, so that the others need no election.
func (t *turn) abdicate(ctx context.Context, before string) error {
	if t.step.Role != cluster.ControlPlane {
		return nil
	}

	// With a member down the leadership could go to that one.
	if err := t.guarded(ctx, before); err != nil {
		return err
	}

	view, err := t.run.engine.talos.Etcd(ctx, t.step.Address)
	if err != nil || view.Status.Leader != view.Status.MemberID || len(view.Members) < 2 {
		// A member that cannot be asked is the guards' affair.
		return onlyFatal(err)
	}

	if ok, _, err := t.run.lock.holds(ctx); err != nil || !ok {
		return err
	}

	// Best effort: an election after the reboot is the worst that can happen.
	if err := t.run.engine.once(ctx, func(ctx context.Context) error { return t.run.engine.talos.ForfeitLeadership(ctx, t.step.Address) }); err != nil {
		t.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: "etcd leadership could not be moved away: " + err.Error()})
	}

	return nil
}

// legacyQuiet is how long a node must be seen running, with its old boot ID,
// before a legacy upgrade counts as never begun. The node starts the sequence
// within a second of accepting the call.
const legacyQuiet = 15 * time.Second

// upgradeLegacy asks a node below Talos 1.13 to upgrade itself: it validates,
// drains, installs and reboots in one call.
func (t *turn) upgradeLegacy(ctx context.Context) error {
	if err := t.abdicate(ctx, "upgrade"); err != nil {
		return err
	}

	if err := t.intend(ctx, "upgrade"); err != nil {
		return err
	}

	t.doing(cluster.StepLegacy, t.step.Image)

	t.armed = true
	// What was pulled before is in another store than the node installs from.
	downloaded := t.allowed.hold(cluster.PullTimeout)
	result, err := t.run.engine.talos.Upgrade(ctx, t.step.Address, t.step.Image, t.run.request.Policy.RebootMode, downloaded)

	downloaded()
	t.run.traffic.stepped(t.step.Role)

	switch {
	case err == nil && result.Exit == 0:
		return t.recordGoing(ctx, cluster.PhaseRebooting)
	case err == nil:
		return t.undone(ctx, &installerError{exit: result.Exit, output: result.Output})
	case neverRan(err):
		return errors.Join(err, t.recall(ctx))
	case ctx.Err() != nil:
		return err
	case notSent(err):
		return t.unsent(ctx, err)
	default:
		return nil
	}
}

// undone waits for a node whose legacy upgrade failed in the installer: it
// reboots into its old system by itself, and nothing is armed any more.
func (t *turn) undone(ctx context.Context, failed error) error {
	result, err := t.comeBack(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}

	if result == arrived {
		return nil
	}

	return errors.Join(failed, t.forget(ctx), t.serve(ctx))
}

// recordGoing records what is known of a node that is on its way down. A single
// control plane takes the Kubernetes API down with it before that is written. What
// is lost then is only the difference between an install that never took and a
// fallback, or that a rollback without any effect is not tried once more.
func (t *turn) recordGoing(ctx context.Context, phase cluster.Phase) error {
	kept, end := t.run.engine.outlasting(ctx)
	defer end()

	bounded, cancel := t.run.engine.clock.WithTimeout(kept, hurriedPatience)
	defer cancel()

	err := t.record(bounded, phase)
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrLeaseLost) {
		return err
	}

	t.entry.Phase = phase

	return nil
}

// resumeLegacy looks at a node whose legacy upgrade may or may not have been
// accepted. A node that stays in service was never asked: this API leaves
// nothing armed behind.
func (t *turn) resumeLegacy(ctx context.Context) (outcome, error) {
	since := t.run.engine.clock.Now()

	err := t.run.engine.wait(ctx, t.step.Node, "the legacy upgrade of "+t.step.Node+" to show itself", func(ctx context.Context) (bool, string, error) {
		machine, err := t.run.engine.talos.Machine(ctx, t.step.Address)

		switch {
		case err != nil && !cluster.Heals(err):
			return false, "", err
		case err == nil && machine.BootID == "":
			since = t.run.engine.clock.Now()

			return false, bootUnknown, nil
		case err != nil || machine.BootID != t.entry.BootID || machine.Stage != cluster.StageRunning:
			return false, "", errStirred
		}

		t.runs = machine.Talos

		return t.run.engine.clock.Now().Sub(since) >= legacyQuiet, "the node is running as before", nil
	})

	switch {
	case err == nil:
		return neverTook, nil
	case errors.Is(err, errStirred):
		return t.comeBack(ctx)
	default:
		return arrived, err
	}
}

// errStirred ends the watch over a node as soon as it moves.
var errStirred = errors.New("the node is moving")
