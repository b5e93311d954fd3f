// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
)

// failure puts an upgrade's error into words: what was seen, how the node and the
// cluster are left, and what to do.
func (u *nodeUpgrade) failure(ctx context.Context, err error) *Failure {
	failed := &Failure{
		Summary: fmt.Sprintf("Unable to upgrade node %s to Talos %s", u.step.Node, u.step.To),
		Node:    u.step.Node, Seen: err.Error(), Excerpts: u.excerpts(ctx, err), State: u.state(), Remedy: resumeRemedy, Err: err,
	}

	if u.rollbackSkipReason != "" {
		failed.State += " It was not rolled back: " + withFullStop(u.rollbackSkipReason)
	}

	switch {
	case failed.explained(ctx, err):
	case ctx.Err() != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled during the turn of node %s", u.step.Node)
	case errors.Is(err, ErrRolledBack), errors.Is(err, ErrFallback):
		failed.State = returnedState(err)
		failed.Remedy = u.lookRemedy()

		if !u.pending {
			failed.Remedy = u.retryRemedy()
		}
	case errors.Is(err, ErrUnhealthy):
		failed.Remedy = u.lookRemedy()
	case errors.Is(err, ErrPlatform):
		failed.Remedy = fmt.Sprintf("Start its old system again (talosctl -n %s rollback), which has its platform. Then choose an installer_image that is built for %s, and run terraform apply again.",
			u.step.Address, u.entry.Platform)
	case errors.Is(err, ErrInstaller):
		failed.Remedy = "Cure what the installer says, or choose another talos_version or installer_image, then run terraform apply again"
		if u.mayHaveInstalled {
			failed.Remedy += ": it drains and reboots this node first, which shows what was installed"
		}

		failed.Remedy += "."
	case errors.Is(err, ErrNeverReturned):
		waited := strings.TrimPrefix(err.Error(), ErrNeverReturned.Error()+": ")
		failed.Seen = fmt.Sprintf("Node %s did not come back online: %s", u.step.Node, withFullStop(waited))
		failed.Remedy = "Look at its console. When it is back, run terraform apply again: it continues with this node."
	case errors.Is(err, ErrUncordoned):
		failed.Remedy = "Find out who uncordons it (a person, an autoscaler, a controller that looks after cordons) and have the node left alone while it is upgraded, then run terraform apply again."
	case errors.Is(err, ErrDrain):
		failed.Remedy = drainRemedy(err)
	case errors.Is(err, ErrGate):
		failed.Remedy = gateRemedy(err)
	case errors.Is(err, cluster.ErrBusy):
		failed.Remedy = "Somebody else is installing on this node; find out who, then run terraform apply again."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials, then run terraform apply again."
	}

	if u.step.Canary && ctx.Err() == nil {
		failed.State += " " + canaryState
	}

	failed.Remedy += u.storedImage(ctx, err)

	return failed
}

// storedImage says what the node has under the tag of an image that was to no avail. A
// node does not download a tag that it has, whatever was pushed there since; one below
// Talos 1.13 has its images in memory and downloads them anew with each upgrade.
func (u *nodeUpgrade) storedImage(ctx context.Context, err error) string {
	failed := errors.Is(err, ErrInstaller) || errors.Is(err, ErrFallback) || errors.Is(err, ErrRolledBack)
	if ctx.Err() != nil || !failed {
		return ""
	}

	repository, tag, malformed := image.Split(u.entry.Image)
	if malformed != nil || tag == "" {
		return ""
	}

	bounded, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	digest, unknown := u.run.engine.talos.ImageDigest(bounded, u.step.Address, u.entry.Image)
	if unknown != nil {
		return ""
	}

	return fmt.Sprintf(" The node has %s as %s, and downloads nothing under a tag that it has: where another image is pushed there, "+
		"name that by its digest (installer_image = %q), or remove this one from every node that pulled it (talosctl -n %s image remove --namespace system %s).",
		u.entry.Image, digest, repository.String()+"@sha256:<digest>", u.step.Address, u.entry.Image)
}

// drainRemedy is what to do about pods that did not leave a node in time.
func drainRemedy(err error) string {
	var ended *drainError

	switch found := errors.As(err, &ended); {
	case found && ended.ending():
		return "They were told to stop and have not yet: find out what keeps them (a long terminationGracePeriodSeconds, a volume, a finalizer), " +
			"or set a longer drain.timeout, which node_timeout has to outlast, then run terraform apply again."
	case found && ended.ofNode:
		return "Make room in the PodDisruptionBudgets, or give the node longer: node_timeout is for its whole turn, and has to outlast drain.timeout. Then run terraform apply again."
	}

	return "Make room in the PodDisruptionBudgets, or set drain.on_timeout = \"delete\" or a longer drain.timeout, then run terraform apply again."
}

// explained says what is said in the same way whatever failed: which guards did
// not hold, and whose the lease is. It tells whether there is nothing to add.
func (f *Failure) explained(ctx context.Context, err error) bool {
	var guarded *guardError
	if errors.As(err, &guarded) {
		f.Seen = fmt.Sprintf("It was not safe to %s the node: %v", guarded.before, guarded.err)
		f.Findings = guarded.findings
	}

	cause := context.Cause(ctx)
	if !errors.Is(err, ErrLeaseLost) && !errors.Is(cause, ErrLeaseLost) {
		return false
	}

	f.Remedy = lostRemedy(errors.Join(cause, err))
	if cause != nil && !strings.Contains(f.Seen, cause.Error()) {
		f.Seen, f.Err = cause.Error()+"; "+f.Seen, errors.Join(cause, err)
	}

	return true
}

// canaryState says what the failure of a canary means for all others.
const canaryState = "It is a canary, so none of the nodes that wait for it was started."

// lostRemedy is what to do where another run has the lease, or nobody has.
func lostRemedy(err error) string {
	if errors.Is(err, errLeaseFreed) {
		return "Find out who took the lease away, then run terraform apply again: it continues where the cluster is."
	}

	return "Another upgrade has taken over; let it finish, then run terraform apply again."
}

// returnedState says how a node is left that returned to its old system.
func returnedState(err error) string {
	var (
		fell *fallbackError
		sent *rolledBackError
	)

	if errors.As(err, &fell) && err.Error() != fell.Error() || errors.As(err, &sent) && sent.unserved != nil {
		return "The node runs its old system again, but did not come back into service."
	}

	return "The node is back in service with its old system."
}

// state says how the node is left.
func (u *nodeUpgrade) state() string {
	switch {
	case u.pending && u.entry.Phase == cluster.PhaseRollingBack:
		return "The node was to start its old system again and is recorded in the journal; its cordon stays until it is back in service."
	case u.inService:
		return "The node runs the new system and is in service; only its entry in the journal is still open."
	case u.pending && !u.runs.IsZero() && u.runs.Equal(u.entry.Target) && !u.runs.Equal(u.entry.Previous):
		return "The node runs the new system and is not back in service yet; it is recorded in the journal, and its cordon stays until it is."
	case u.pending && !u.cordoned && u.rebooted() && u.runs.Equal(u.entry.Previous):
		return "The node runs its old system and is in service; only its entry in the journal is still open."
	case u.pending && u.entry.Phase == cluster.PhaseRebooting:
		return "The node was asked to reboot into the new system, or about to be, and is recorded in the journal; its cordon stays until it is back."
	case u.mayHaveInstalled:
		return "A new system may be installed beside the running one; the node still serves its old system, stays cordoned, and its next boot may start the new one."
	case u.pending:
		return "The node runs its old system, nothing was installed, and the journal records what was about to be; its cordon stays."
	case u.cordoned:
		return "The node runs its old system and is still cordoned."
	default:
		return "The node runs as before and is not cordoned by this run."
	}
}

func (u *nodeUpgrade) lookRemedy() string {
	return fmt.Sprintf("Look at it (talosctl -n %s dmesg, kubectl describe node %s). When it is healthy, or its reason is gone, run terraform apply again: it continues with this node.",
		u.step.Address, u.step.Node)
}

func (u *nodeUpgrade) retryRemedy() string {
	return fmt.Sprintf("Find out why: what a boot that failed has logged is on the node's console, and where machine.logging sends it. This image is not tried again on this node until talos_version or installer_image changes, or until you set node_overrides = { %q = { retry = %q } }.",
		u.step.Node, u.entry.BootID)
}

// summaryText is the failure in a few words, for those who watch annotations.
func summaryText(err error) string {
	var failure *Failure
	if !errors.As(err, &failure) {
		return err.Error()
	}

	switch {
	case errors.Is(err, ErrRolledBack):
		return fmt.Sprintf("node %s did not become healthy and was rolled back to its old system", failure.Node)
	case errors.Is(err, ErrUnhealthy):
		return fmt.Sprintf("node %s did not become healthy with its new system", failure.Node)
	case errors.Is(err, ErrNeverReturned):
		return fmt.Sprintf("node %s did not come back online", failure.Node)
	case errors.Is(err, ErrPlatform):
		return fmt.Sprintf("node %s lost its platform", failure.Node)
	case errors.Is(err, ErrFallback):
		return fmt.Sprintf("node %s fell back to its old system by itself", failure.Node)
	case errors.Is(err, ErrUncordoned):
		return fmt.Sprintf("somebody uncordoned node %s while it was being drained", failure.Node)
	case errors.Is(err, ErrDrain):
		return fmt.Sprintf("node %s could not be drained", failure.Node)
	case errors.Is(err, ErrInstaller):
		return fmt.Sprintf("the installer failed on node %s", failure.Node)
	case errors.Is(err, ErrGate):
		return "a gate does not hold"
	case errors.Is(err, ErrWindow):
		return "the maintenance window closed"
	case errors.Is(err, ErrSnapshot):
		return "no snapshot of etcd could be taken"
	case errors.Is(err, ErrUnsettled):
		return fmt.Sprintf("node %s did not stay healthy", failure.Node)
	case errors.Is(err, context.Canceled):
		return "the run was cancelled"
	default:
		return failure.Summary
	}
}

// acquireFailure is the failure of a run that never got the lease.
func acquireFailure(ctx context.Context, err error) error {
	var failure *Failure
	if errors.As(err, &failure) {
		return err
	}

	summary, seen := "Unable to take the lease kube-system/talosupgrade", err.Error()
	if ctx.Err() != nil {
		summary = "The upgrade was cancelled before it began"
	}

	if errors.Is(err, context.Canceled) {
		seen = "It was stopped before it had the lease kube-system/talosupgrade."
	}

	return &Failure{Summary: summary, Seen: seen, State: "Nothing was touched.", Remedy: resumeRemedy, Err: err}
}
