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

// comeBack waits for the node's next boot to finish and tells what it booted.
func (t *turn) comeBack(ctx context.Context) (outcome, error) {
	t.doing(cluster.StepReturn, "")

	var (
		machine cluster.Machine
		idle    = t.clock.Now()
	)

	err := t.wait(ctx, t.step.Node, t.step.Node+" to come back from its reboot", func(ctx context.Context) (bool, string, error) {
		var err error

		machine, err = t.talos.Machine(ctx, t.step.Address)
		if err != nil {
			idle = t.clock.Now()

			return false, err.Error(), onlyFatal(err)
		}

		switch machine.BootID {
		case "":
			return false, bootUnknown, nil
		case t.entry.BootID:
			return t.stillHere(ctx, machine, &idle)
		}

		return t.bootFinished(machine)
	})
	t.runs = machine.Talos

	if errors.Is(err, errNeverBegan) {
		return neverTook, nil
	}

	if err != nil {
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			err = errors.Join(ErrNeverReturned, err)
		}

		return arrived, err
	}

	t.traffic.stepped(t.step.Role)

	return t.judge(machine)
}

// bootUnknown is what is seen of a machine that does not tell its boot ID.
const bootUnknown = "the boot ID could not be read"

// errNeverBegan ends the wait for a legacy upgrade that was never accepted.
var errNeverBegan = errors.New("the upgrade was never begun")

// stillHere handles a node that has not gone down yet.
func (t *turn) stillHere(ctx context.Context, machine cluster.Machine, idle *time.Time) (bool, string, error) {
	seen := fmt.Sprintf("still on its old boot, %s", machine.Stage)

	if machine.Stage != cluster.StageRunning {
		*idle = t.clock.Now()

		return false, seen, nil
	}

	if t.clock.Now().Sub(*idle) < rebootAgain {
		return false, seen, nil
	}

	if machine.UpgradeAPI() == cluster.LegacyAPI {
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

	*idle = t.clock.Now()

	return false, seen, t.reboot(ctx)
}

// bootFinished tells whether the machine is done booting and, where it runs a
// new system, whether that has confirmed itself.
func (t *turn) bootFinished(machine cluster.Machine) (bool, string, error) {
	if !machine.Settled() {
		return false, fmt.Sprintf("on a new boot with Talos %s, %s; not yet: %s", machine.Talos, machine.Stage, strings.Join(machine.Unmet, ", ")), nil
	}

	if machine.UpgradePending && machine.Talos.Equal(t.entry.Target) {
		return false, "the new system has not confirmed itself yet", nil
	}

	return true, "", nil
}

// judge compares what the node booted with what it was to boot.
func (t *turn) judge(machine cluster.Machine) (outcome, error) {
	installed := machine.Talos.Equal(t.entry.Target) &&
		(t.step.Schematic == "" || t.entry.Image != t.step.Image || machine.Schematic == t.step.Schematic)
	unchanged := machine.Talos.Equal(t.entry.Previous) && machine.Schematic == t.entry.PreviousSchematic

	switch {
	case installed:
		// Where an earlier run had another target, the next plan goes on from
		// here.
		return arrived, nil
	case unchanged && t.entry.Phase == cluster.PhaseIntent:
		return neverTook, nil
	case unchanged:
		return fellBack, nil
	case t.entry.Run != t.run.run:
		// Somebody gave the node another system in the meantime. Its new boot
		// proves that nothing is armed; the next plan goes on from what runs.
		t.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: fmt.Sprintf(
			"the node runs Talos %s, which no run of ours installed; its journal entry is closed", machine.Talos)})

		return arrived, nil
	default:
		return arrived, fmt.Errorf("the node came back with Talos %s and schematic %q, which is neither the old system nor the one that was installed", machine.Talos, machine.Schematic)
	}
}

// fallback records that the node returned to its old system, puts it back into
// service, and fails the turn.
func (t *turn) fallback(ctx context.Context) error {
	machine, err := t.identify(ctx)
	if err != nil {
		return err
	}

	t.entry.BootID = machine.BootID
	if err := t.record(ctx, cluster.PhaseFallback); err != nil {
		return err
	}

	failed := &fallbackError{image: t.entry.Image, previous: machine.Talos.String(), bootID: machine.BootID}

	// The node is as good as it was before: nothing is armed any more.
	return errors.Join(failed, t.serve(ctx))
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
	failed := fmt.Errorf("%w: %d installs of %s did not take: after the reboot the node ran the old system each time", ErrInstaller, t.entry.Attempt, t.entry.Image)

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

	return t.wait(ctx, t.step.Node, "etcd to be healthy with "+t.step.Node, func(ctx context.Context) (bool, string, error) {
		snapshot, err := t.observe(ctx, func(node cluster.Node) bool { return node.Role == cluster.ControlPlane })
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

	return t.wait(ctx, t.step.Node, t.step.Node+" to be Ready in Kubernetes", func(ctx context.Context) (bool, string, error) {
		machine, err := t.talos.Machine(ctx, t.step.Address)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		nodes, err := t.kubernetes.Nodes(ctx)
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

			return node.Ready, "NotReady: " + node.ReadyReason, nil
		}

		return false, "there is no such Node object", nil
	})
}
