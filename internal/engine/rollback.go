// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// unhealthy tells whether a turn ended because its node runs the new system and
// had not become healthy with it when its time was up. Whatever else ends a turn,
// the old system would not be the cure.
func (t *turn) unhealthy(bounded context.Context, err error) bool {
	return err != nil && t.whole.Err() == nil && errors.Is(context.Cause(bounded), context.DeadlineExceeded) &&
		t.open && t.rebooted() && !t.served && !t.runs.IsZero() && t.runs.Equal(t.entry.Target)
}

// rebooted tells whether the node went through a boot since what the journal says
// was written: another attempt begins anew.
func (t *turn) rebooted() bool { return t.booted != "" && t.booted != t.entry.BootID }

// answer is what becomes of a node whose new system did not become healthy. The
// error is that of the turn.
func (t *turn) answer(err error) error {
	failed := error(&unhealthyError{version: t.runs.String(), err: err})
	if t.run.request.Policy.OnFailure != cluster.RollBackOnFailure {
		return failed
	}

	bounded, cancel := t.run.engine.clock.WithTimeout(t.whole, t.run.request.Policy.NodeTimeout)
	defer cancel()

	t.run.starts.doubt(t.step.Node)
	t.words = t.run.engine.lastWords(bounded, t.step.Address, serviceMachined)
	t.returning = true

	result, err := t.rollBack(bounded, failed)

	switch {
	case errors.Is(err, errWell):
		return t.spared(bounded, failed)
	case err != nil:
		return t.kept(failed, err)
	case result == rolledBack:
		return t.returned(bounded, failed)
	}

	// The reboot has cured it, or the node is as it was: it is the new system that
	// started again.
	t.returning = false

	if err := t.rejoin(bounded); err != nil {
		return fmt.Errorf("%w\nIt was told to start its old system, started the new one again, and is not healthy with it: %w", failed, err)
	}

	return nil
}

// errWell is a node with which nothing is wrong when it is looked at again.
var errWell = errors.New("nothing is wrong with the node itself")

// spared brings a node back into service that is well after all: something else
// had kept it from that.
func (t *turn) spared(ctx context.Context, failed error) error {
	t.returning = false

	if err := t.rejoin(ctx); err != nil {
		t.unreturned = errWell.Error() + ", and what it waits for is elsewhere"

		return errors.Join(failed, err)
	}

	return nil
}

// isWell tells whether everything about a node itself is as it should be: its
// system, its kubelet and its member of etcd.
func isWell(node cluster.Node) bool {
	switch {
	case node.Machine == nil || !node.Machine.Settled():
		return false
	case node.Kube == nil || !node.Kube.Ready || node.Kube.BootID != "" && node.Kube.BootID != node.Machine.BootID:
		return false
	case node.Role != cluster.ControlPlane:
		return true
	default:
		return node.Etcd != nil && node.Etcd.Status.Leader != 0 && !node.Etcd.Status.Learner && len(node.Etcd.Status.Complaints()) == 0
	}
}

// unhealthyError is a node that runs its new system and is not well with it.
type unhealthyError struct {
	version string
	err     error
}

func (u *unhealthyError) Error() string {
	return fmt.Sprintf("the node runs Talos %s and did not get back into service with it: %v", u.version, u.err)
}

func (u *unhealthyError) Unwrap() []error { return []error{ErrUnhealthy, u.err} }

// rollBack sends the node back to its old system, drained and guarded as an
// upgrade is, and tells what it booted.
func (t *turn) rollBack(ctx context.Context, failed error) (outcome, error) {
	if err := t.mayReturn(ctx); err != nil {
		return arrived, err
	}

	if err := t.vacate(ctx); err != nil {
		return arrived, err
	}

	if err := t.abdicate(ctx, "roll back"); err != nil {
		return arrived, err
	}

	if err := t.sent(ctx, func(ctx context.Context) error { return t.sendBack(ctx, failed) }); err != nil {
		return arrived, err
	}

	return t.comeBack(ctx)
}

// mayReturn looks at the cluster and tells what speaks against a rollback.
func (t *turn) mayReturn(ctx context.Context) error {
	var against []string

	bounded, cancel := t.run.engine.clock.WithTimeout(ctx, guardPatience)
	defer cancel()

	err := t.run.engine.wait(bounded, t.step.Node, "the cluster to tell whether "+t.step.Node+" may be rolled back", func(ctx context.Context) (bool, string, error) {
		snapshot, err := t.run.engine.observe(ctx, func(node cluster.Node) bool {
			return node.Role == cluster.ControlPlane || node.Name == t.step.Node
		})
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		if snapshot.KubernetesError != nil {
			return false, snapshot.KubernetesError.Error(), onlyFatal(snapshot.KubernetesError)
		}

		if node, found := snapshot.Node(t.step.Node); found && isWell(node) {
			return false, "", errWell
		}

		against = plan.AgainstRollback(snapshot, t.step.Node, t.entry)

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

// errMustNotReturn is a node that a rollback would not be safe for.
var errMustNotReturn = errors.New("that is not safe")

// returned puts a node into service that runs its old system again because it was
// sent back, records that, and fails the turn.
func (t *turn) returned(ctx context.Context, failed error) error {
	machine, err := t.identify(ctx)
	if err != nil {
		return err
	}

	t.returning = false

	return &rolledBackError{
		failed: failed, image: t.entry.Image, previous: machine.Talos.String(), bootID: machine.BootID,
		unserved: t.settleReturn(ctx, cluster.PhaseRolledBack, machine.BootID),
	}
}

// rolledBackError is a node that was sent back to its old system.
type rolledBackError struct {
	// failed is why, nil where an earlier run knew.
	failed                  error
	image, previous, bootID string
	// unserved is why it is not in service with its old system.
	unserved error
}

func (r *rolledBackError) Error() string {
	text := fmt.Sprintf("the node booted %s, did not become healthy with it and was rolled back to Talos %s (boot ID %s)", r.image, r.previous, r.bootID)

	if r.failed != nil {
		text = fmt.Sprintf("%v\nIt was rolled back to Talos %s (boot ID %s)", r.failed, r.previous, r.bootID)
	}

	if r.unserved != nil {
		text += ", and is not back in service: " + r.unserved.Error()
	}

	return text
}

func (r *rolledBackError) Unwrap() []error {
	causes := []error{ErrRolledBack}

	for _, because := range []error{r.failed, r.unserved} {
		if because != nil {
			causes = append(causes, because)
		}
	}

	return causes
}

// kept is the error of a node that should have been sent back, and was not.
func (t *turn) kept(failed, err error) error {
	switch {
	case t.entry.Phase == cluster.PhaseRollingBack && !errors.Is(err, errMustNotReturn):
		return fmt.Errorf("%w\nIt was to start its old system again: %w", failed, err)
	case errors.Is(err, ErrLeaseLost), errors.Is(err, context.Canceled):
		return errors.Join(failed, err)
	}

	t.unreturned = err.Error()

	// What is to be done is about the failure itself.
	return failed
}
