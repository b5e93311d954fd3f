// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// rebootAgain is how long a node may be seen running with its old boot ID
// before the reboot is asked for again: the request can have been lost. A node
// that is going down leaves the running stage at once.
const rebootAgain = time.Minute

// awayAfter is how long a node has not answered before it counts as away.
const awayAfter = time.Minute

// awaitReboot waits for the node's next boot to finish and tells what it booted.
func (u *nodeUpgrade) awaitReboot(ctx context.Context) (outcome, error) {
	u.emitStep(cluster.StepReturn, "")

	var (
		machine  cluster.Machine
		answered time.Time
		idle     = u.run.engine.clock.Now()
	)

	err := u.run.engine.wait(ctx, u.step.Node, u.step.Node+" to come back from its reboot", func(ctx context.Context) (bool, string, error) {
		seen, err := u.run.engine.talos.Machine(ctx, u.step.Address)
		if err != nil {
			idle = u.run.engine.clock.Now()

			// One look that failed, or that was cut off because the time is up, says
			// nothing about the node.
			if u.run.engine.clock.Now().Sub(answered) > awayAfter {
				machine = cluster.Machine{}
			}

			return false, err.Error(), permanentOnly(err)
		}

		machine, answered = seen, u.run.engine.clock.Now()

		switch machine.BootID {
		case "":
			return false, bootUnknown, nil
		case u.entry.BootID:
			return u.onOldBoot(ctx, machine, &idle)
		}

		u.booted = machine.BootID

		return u.bootFinished(machine)
	})
	u.runs = machine.Talos

	if errors.Is(err, errNeverBegan) {
		return notInstalled, nil
	}

	if err != nil {
		// One that answers from its new boot has returned, and is not well.
		returned := machine.BootID != "" && machine.BootID != u.entry.BootID
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !returned {
			err = fmt.Errorf("%w: %w", ErrNeverReturned, err)
		}

		return arrived, err
	}

	u.run.coordinator.acted(u.step.Role)

	return u.compareBoot(machine)
}

// bootUnknown is what is seen of a machine that does not tell its boot ID.
const bootUnknown = "the boot ID could not be read"

// errNeverBegan ends the wait for a legacy upgrade that was never accepted.
var errNeverBegan = errors.New("the upgrade was never begun")

// onOldBoot handles a node that has not gone down yet.
func (u *nodeUpgrade) onOldBoot(ctx context.Context, machine cluster.Machine, idle *time.Time) (bool, string, error) {
	seen := fmt.Sprintf("still on its old boot, %s", machine.Stage)

	// One that is sent back may never have finished this boot.
	if machine.Stage != cluster.StageRunning && !(u.returning && machine.Stage == cluster.StageBooting) {
		*idle = u.run.engine.clock.Now()

		return false, seen, nil
	}

	if u.run.engine.clock.Now().Sub(*idle) < rebootAgain {
		return false, seen, nil
	}

	if machine.UpgradeAPI() == cluster.LegacyAPI && !u.returning {
		return false, "", errNeverBegan
	}

	if err := u.awaitGuards(ctx, "reboot"); err != nil {
		return false, "", err
	}

	if u.observed.BootID != u.entry.BootID {
		// It went through its boot while the guards were waited for.
		return false, seen, nil
	}

	if !u.reserve() {
		return false, seen, nil
	}

	*idle = u.run.engine.clock.Now()

	return false, seen, u.reboot(ctx)
}

// bootFinished tells whether the machine is done booting and, where it runs a
// new system, whether that has confirmed itself.
func (u *nodeUpgrade) bootFinished(machine cluster.Machine) (bool, string, error) {
	if !machine.Settled() {
		seen := fmt.Sprintf("on a new boot with Talos %s, %s", machine.Talos, machine.Stage)
		if len(machine.Unmet) > 0 {
			seen += "; not yet: " + strings.Join(machine.Unmet, ", ")
		}

		return false, seen, nil
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
		return arrived, &platformError{image: u.entry.Image, before: u.entry.Platform, now: machine.Platform}
	case installed:
		// Where an earlier run had another target, the next plan goes on from
		// here.
		return arrived, nil
	case unchanged && u.entry.Phase == cluster.PhaseIntent:
		return notInstalled, nil
	case unchanged && u.entry.Phase == cluster.PhaseRollingBack:
		return rolledBack, nil
	case unchanged:
		return fellBack, nil
	case u.entry.Run != u.run.engine.runID:
		// Somebody gave the node another system in the meantime. Its new boot
		// proves that nothing is armed; the next plan goes on from what runs.
		u.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
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

// platformError is a node whose new system is built for another platform.
type platformError struct {
	image, before, now string
}

func (p *platformError) Error() string {
	return fmt.Sprintf("the node ran on platform %s and came back on %s: %s is built for that, and with it the node does not find what %s gives to its machines, such as its name, its addresses and its disks",
		p.before, p.now, p.image, p.before)
}

func (p *platformError) Unwrap() error { return ErrPlatform }

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

	u.returning, u.leftToPlan = false, true

	u.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: fmt.Sprintf(
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

	failed := &fallbackError{image: u.entry.Image, previous: machine.Talos.String(), bootID: machine.BootID}

	// The node is as good as it was before: nothing is armed any more.
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

// fallbackError is a node that returned to its old system by itself.
type fallbackError struct {
	image, previous, bootID string
}

func (f *fallbackError) Error() string {
	return fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself (boot ID %s)", f.image, f.previous, f.bootID)
}

func (f *fallbackError) Unwrap() error { return ErrFallback }

// giveUp fails an upgrade whose install did not take, however often it was tried.
func (u *nodeUpgrade) giveUp(ctx context.Context) error {
	failed := fmt.Errorf("%w: %s: the node runs its old system as before", ErrInstaller, u.untaken(u.entry.Attempt))

	return errors.Join(failed, u.forget(ctx), u.awaitServing(ctx))
}

// finish brings a node with the right system back into service.
func (u *nodeUpgrade) finish(ctx context.Context) error {
	if err := u.awaitServing(ctx); err != nil {
		return err
	}

	u.inService = true

	if err := u.syncInstallImage(); err != nil {
		return err
	}

	// The node is done, whether that was in time or not.
	return u.forget(u.untimed)
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

	u.emitStep(cluster.StepUncordon, "")

	return u.uncordon(ctx)
}

// awaitEtcd waits until the whole of etcd is healthy with the node in it.
func (u *nodeUpgrade) awaitEtcd(ctx context.Context) error {
	u.emitStep(cluster.StepEtcd, "")

	return u.run.engine.wait(ctx, u.step.Node, "etcd to be healthy with "+u.step.Node, func(ctx context.Context) (bool, string, error) {
		snapshot, err := u.run.engine.observe(ctx, func(node cluster.Node) bool { return node.Role == cluster.ControlPlane })
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		if findings := etcdFindings(snapshot); len(findings) > 0 {
			return false, findings[0].String(), fatal(findings)
		}

		return true, "", nil
	})
}

// awaitReady waits until Kubernetes reports the node Ready for its present
// boot: a Ready condition outlives the kubelet that set it by some 40 s.
func (u *nodeUpgrade) awaitReady(ctx context.Context) error {
	u.emitStep(cluster.StepReady, "")

	return u.run.engine.wait(ctx, u.step.Node, u.step.Node+" to be Ready in Kubernetes", func(ctx context.Context) (bool, string, error) {
		machine, err := u.run.engine.talos.Machine(ctx, u.step.Address)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		nodes, err := u.run.engine.kubernetes.Nodes(ctx)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		for _, node := range nodes {
			if node.Name != u.step.Node {
				continue
			}

			if node.BootID != "" && node.BootID != machine.BootID {
				return false, "the kubelet has not registered since the reboot", nil
			}

			u.ready = node.ReadySince
			if !node.Ready || u.step.Role != cluster.ControlPlane {
				return node.Ready, "NotReady: " + node.ReadyReason, nil
			}

			return u.podsSpeak(ctx, machine)
		}

		return false, "there is no such Node object", nil
	})
}

// podsSpeak wants Kubernetes to say of every static pod of a control plane how it
// is in this boot: until the kubelet has come to that, their mirrors show them as
// they were before.
func (u *nodeUpgrade) podsSpeak(ctx context.Context, machine cluster.Machine) (bool, string, error) {
	if machine.PodsSince.IsZero() {
		return false, "it has made no static pods yet", nil
	}

	pods, err := u.run.engine.kubernetes.ComponentPods(ctx)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	for _, pod := range pods {
		if pod.Node != u.step.Node || !pod.Component.Static() {
			continue
		}

		if seen := unready(machine, pod); seen != "" {
			return false, seen, nil
		}
	}

	return true, "", nil
}

// unready says what is wrong with a static pod of a machine; empty where it is Ready
// and what the machine runs.
func unready(machine cluster.Machine, pod cluster.ComponentPod) string {
	why := outdated(machine, pod)

	switch {
	case why != "":
		return fmt.Sprintf("its %s: %s", pod.Component, why)
	case !pod.Ready:
		return fmt.Sprintf("its %s is not Ready%s", pod.Component, troubled(pod))
	default:
		return ""
	}
}
