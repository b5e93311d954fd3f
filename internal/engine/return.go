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

// comeBack waits for the node's next boot to finish and tells what it booted.
func (t *turn) comeBack(ctx context.Context) (outcome, error) {
	t.doing(cluster.StepReturn, "")

	var (
		machine  cluster.Machine
		answered time.Time
		idle     = t.run.engine.clock.Now()
	)

	err := t.run.engine.wait(ctx, t.step.Node, t.step.Node+" to come back from its reboot", func(ctx context.Context) (bool, string, error) {
		seen, err := t.run.engine.talos.Machine(ctx, t.step.Address)
		if err != nil {
			idle = t.run.engine.clock.Now()

			// One look that failed, or that was cut off because the time is up, says
			// nothing about the node.
			if t.run.engine.clock.Now().Sub(answered) > awayAfter {
				machine = cluster.Machine{}
			}

			return false, err.Error(), onlyFatal(err)
		}

		machine, answered = seen, t.run.engine.clock.Now()

		switch machine.BootID {
		case "":
			return false, bootUnknown, nil
		case t.entry.BootID:
			return t.stillHere(ctx, machine, &idle)
		}

		t.booted = machine.BootID

		return t.bootFinished(machine)
	})
	t.runs = machine.Talos

	if errors.Is(err, errNeverBegan) {
		return neverTook, nil
	}

	if err != nil {
		// One that answers from its new boot has returned, and is not well.
		returned := machine.BootID != "" && machine.BootID != t.entry.BootID
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && !returned {
			err = fmt.Errorf("%w: %w", ErrNeverReturned, err)
		}

		return arrived, err
	}

	t.run.traffic.stepped(t.step.Role)

	return t.judge(machine)
}

// bootUnknown is what is seen of a machine that does not tell its boot ID.
const bootUnknown = "the boot ID could not be read"

// errNeverBegan ends the wait for a legacy upgrade that was never accepted.
var errNeverBegan = errors.New("the upgrade was never begun")

// stillHere handles a node that has not gone down yet.
func (t *turn) stillHere(ctx context.Context, machine cluster.Machine, idle *time.Time) (bool, string, error) {
	seen := fmt.Sprintf("still on its old boot, %s", machine.Stage)

	// One that is sent back may never have finished this boot.
	if machine.Stage != cluster.StageRunning && !(t.returning && machine.Stage == cluster.StageBooting) {
		*idle = t.run.engine.clock.Now()

		return false, seen, nil
	}

	if t.run.engine.clock.Now().Sub(*idle) < rebootAgain {
		return false, seen, nil
	}

	if machine.UpgradeAPI() == cluster.LegacyAPI && !t.returning {
		return false, "", errNeverBegan
	}

	if err := t.guarded(ctx, "reboot"); err != nil {
		return false, "", err
	}

	if t.seen.BootID != t.entry.BootID {
		// It went through its boot while the guards were waited for.
		return false, seen, nil
	}

	if !t.claim() {
		return false, seen, nil
	}

	*idle = t.run.engine.clock.Now()

	return false, seen, t.reboot(ctx)
}

// bootFinished tells whether the machine is done booting and, where it runs a
// new system, whether that has confirmed itself.
func (t *turn) bootFinished(machine cluster.Machine) (bool, string, error) {
	if !machine.Settled() {
		seen := fmt.Sprintf("on a new boot with Talos %s, %s", machine.Talos, machine.Stage)
		if len(machine.Unmet) > 0 {
			seen += "; not yet: " + strings.Join(machine.Unmet, ", ")
		}

		return false, seen, nil
	}

	if machine.UpgradePending && machine.Talos.Equal(t.entry.Target) {
		return false, "the new system has not confirmed itself yet", nil
	}

	return true, "", nil
}

// judge compares what the node booted with what it was to boot.
func (t *turn) judge(machine cluster.Machine) (outcome, error) {
	installed := machine.Talos.Equal(t.entry.Target) &&
		(t.entry.Schematic == "" || machine.Schematic == t.entry.Schematic)
	unchanged := machine.Talos.Equal(t.entry.Previous) && machine.Schematic == t.entry.PreviousSchematic

	switch {
	case lostPlatform(t.entry.Platform, machine):
		return arrived, &platformError{image: t.entry.Image, before: t.entry.Platform, now: machine.Platform}
	case installed:
		// Where an earlier run had another target, the next plan goes on from
		// here.
		return arrived, nil
	case unchanged && t.entry.Phase == cluster.PhaseIntent:
		return neverTook, nil
	case unchanged && t.entry.Phase == cluster.PhaseRollingBack:
		return rolledBack, nil
	case unchanged:
		return fellBack, nil
	case t.entry.Run != t.run.engine.run:
		// Somebody gave the node another system in the meantime. Its new boot
		// proves that nothing is armed; the next plan goes on from what runs.
		t.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: fmt.Sprintf(
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

// returnedTo is what becomes of a node that runs its old system again.
func (t *turn) returnedTo(ctx context.Context, result outcome) error {
	if t.entry.Run != t.run.engine.run {
		machine, err := t.identify(ctx)
		if err != nil {
			return err
		}

		if t.unwanted(machine) {
			return t.acquiesce(ctx, result, machine)
		}
	}

	if result == fellBack {
		return t.fallback(ctx)
	}

	// Where an earlier run sent it back, nobody saw it arrive.
	return t.returned(ctx, nil)
}

// unwanted tells whether what an earlier run installed is not what this one wants:
// that it did not come up is no failure then.
func (t *turn) unwanted(machine cluster.Machine) bool {
	there := t.reached(machine) && machine.Talos.Equal(t.run.request.Target.Talos)

	return there || !t.step.Finish && t.step.Image != "" && t.step.Image != t.entry.Image
}

// acquiesce records that a node runs its old system again and brings it into
// service, for the next plan to go on from there.
func (t *turn) acquiesce(ctx context.Context, result outcome, machine cluster.Machine) error {
	phase := cluster.PhaseFallback
	if result == rolledBack {
		phase = cluster.PhaseRolledBack
	}

	t.returning, t.stayed = false, true

	t.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: fmt.Sprintf(
		"the node did not come up with %s, which an earlier run installed, and runs Talos %s as before", t.entry.Image, machine.Talos)})

	return t.settleReturn(ctx, phase, machine.BootID)
}

// fallback puts a node back into service that returned to its old system, records
// that, and fails the turn.
func (t *turn) fallback(ctx context.Context) error {
	machine, err := t.identify(ctx)
	if err != nil {
		return err
	}

	failed := &fallbackError{image: t.entry.Image, previous: machine.Talos.String(), bootID: machine.BootID}

	// The node is as good as it was before: nothing is armed any more.
	return errors.Join(failed, t.settleReturn(ctx, cluster.PhaseFallback, machine.BootID))
}

// settleReturn puts a node back into service with its old system and closes its
// entry of the journal, in this order: whoever finds the entry closed does nothing
// more for the node.
func (t *turn) settleReturn(ctx context.Context, phase cluster.Phase, bootID string) error {
	if err := t.serve(ctx); err != nil {
		return err
	}

	before := t.entry.BootID
	t.entry.BootID = bootID

	err := t.record(ctx, phase)
	if err != nil {
		t.entry.BootID = before
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

// giveUp fails a turn whose install did not take, however often it was tried.
func (t *turn) giveUp(ctx context.Context) error {
	failed := fmt.Errorf("%w: %s: the node runs its old system as before", ErrInstaller, t.untaken(t.entry.Attempt))

	return errors.Join(failed, t.forget(ctx), t.serve(ctx))
}

// rejoin brings a node with the right system back into service.
func (t *turn) rejoin(ctx context.Context) error {
	if err := t.serve(ctx); err != nil {
		return err
	}

	t.served = true

	if err := t.syncInstallImage(); err != nil {
		return err
	}

	// The node is done, whether that was in time or not.
	return t.forget(t.whole)
}

// serve waits until etcd and Kubernetes have the node back and uncordons it.
func (t *turn) serve(ctx context.Context) error {
	if t.step.Role == cluster.ControlPlane {
		if err := t.awaitEtcd(ctx); err != nil {
			return err
		}
	}

	if err := t.awaitReady(ctx); err != nil {
		return err
	}

	if !t.cordoned {
		return nil
	}

	t.doing(cluster.StepUncordon, "")

	return t.uncordon(ctx)
}

// awaitEtcd waits until the whole of etcd is healthy with the node in it.
func (t *turn) awaitEtcd(ctx context.Context) error {
	t.doing(cluster.StepEtcd, "")

	return t.run.engine.wait(ctx, t.step.Node, "etcd to be healthy with "+t.step.Node, func(ctx context.Context) (bool, string, error) {
		snapshot, err := t.run.engine.observe(ctx, func(node cluster.Node) bool { return node.Role == cluster.ControlPlane })
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		if findings := etcdFindings(snapshot); len(findings) > 0 {
			return false, findings[0].String(), fatal(findings)
		}

		return true, "", nil
	})
}

// awaitReady waits until Kubernetes reports the node Ready for its present
// boot: a Ready condition outlives the kubelet that set it by some 40 s.
func (t *turn) awaitReady(ctx context.Context) error {
	t.doing(cluster.StepReady, "")

	return t.run.engine.wait(ctx, t.step.Node, t.step.Node+" to be Ready in Kubernetes", func(ctx context.Context) (bool, string, error) {
		machine, err := t.run.engine.talos.Machine(ctx, t.step.Address)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		nodes, err := t.run.engine.kubernetes.Nodes(ctx)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		for _, node := range nodes {
			if node.Name != t.step.Node {
				continue
			}

			if node.BootID != "" && node.BootID != machine.BootID {
				return false, "the kubelet has not registered since the reboot", nil
			}

			t.ready = node.ReadySince
			if !node.Ready || t.step.Role != cluster.ControlPlane {
				return node.Ready, "NotReady: " + node.ReadyReason, nil
			}

			return t.podsSpeak(ctx, machine)
		}

		return false, "there is no such Node object", nil
	})
}

// podsSpeak wants Kubernetes to say of every static pod of a control plane how it
// is in this boot: until the kubelet has come to that, their mirrors show them as
// they were before.
func (t *turn) podsSpeak(ctx context.Context, machine cluster.Machine) (bool, string, error) {
	if machine.PodsSince.IsZero() {
		return false, "it has made no static pods yet", nil
	}

	pods, err := t.run.engine.kubernetes.ComponentPods(ctx)
	if err != nil {
		return false, err.Error(), onlyFatal(err)
	}

	for _, pod := range pods {
		if pod.Node != t.step.Node || !pod.Component.Static() {
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
