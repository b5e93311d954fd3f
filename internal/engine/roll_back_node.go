// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// NodeRequest is a person's request about one node.
type NodeRequest struct {
	// Node is the name of the Kubernetes node.
	Node string
	// Reason is what the person wrote, for readers of the journal; it may be empty.
	Reason string
	// Policy says how the node is drained, how long the whole operation may take (NodeTimeout), and how many
	// workers may be unavailable.
	Policy cluster.Policy
	// ClusterID is the only cluster that is accepted; empty accepts any.
	ClusterID string
}

// RollBackNode sends a node back to the system that it ran before its last upgrade, and blocks until it is in
// service with it. The node is drained, guarded, leased and journalled like one whose new system did not become
// healthy. A rollback that an earlier call, or an upgrade, left unfinished is finished. Nothing is done to a node
// that already runs its old system again, except that a permission to try the same image again is taken back.
//
// The returned entry says what the node was sent back from and to; the image is not installed there again until
// somebody allows it. The error is a [*say.Failure].
func (e *Engine) RollBackNode(ctx context.Context, request NodeRequest) (cluster.Entry, error) {
	e.shutdown.begin(ctx)

	observed, err := e.observeRequested(ctx, Request{ClusterID: request.ClusterID}, outdatedPod)
	if err != nil {
		return cluster.Entry{}, say.OfAction(err)
	}

	if _, entry, done, err := decideRollback(observed, request.Node); done && !entry.Retry || err != nil {
		return entry, err
	}

	held, err := e.acquire(ctx)
	if err != nil {
		return cluster.Entry{}, say.OfAction(say.NotAcquired(ctx.Err() != nil, err))
	}

	r := e.newRun(held, Request{Policy: request.Policy, ClusterID: request.ClusterID}, request.Policy)

	back, last, err := r.rollBackLeased(ctx, observed, request)
	if errors.Is(err, say.ErrNotBegun) {
		err = say.OfAction(err)
	}

	r.tellRolledBack(back, last, err)
	r.giveBack(ctx, last, err)

	switch {
	case back != nil:
		return back.entry, err
	case err != nil:
		return cluster.Entry{}, err
	}

	// It was done already, and nothing allows another try by now.
	_, entry, _, err := decideRollback(last, request.Node)
	entry.Retry = false

	return entry, err
}

// decideRollback returns the plan's decision about a requested rollback: the step, with what the journal holds
// about the node, whether it is done already, or a refusal before anything is touched.
func decideRollback(observed cluster.Observation, name string) (step plan.Step, entry cluster.Entry, done bool, err error) {
	node, there := observed.Node(name)
	if !there || node.Gone {
		return step, entry, false, unknownNode("Unable to roll back node "+name, observed, name)
	}

	found, key, entry := plan.SendBack(observed, name)
	if len(found.Against) > 0 {
		return step, entry, false, &say.Failure{
			Summary: "Unable to roll back node " + name, Node: name, Seen: say.Sentence(strings.Join(found.Against, "; ")), State: "Nothing was touched.",
			Remedy: fmt.Sprintf("Look at what the node runs (talosctl -n %s get machinestatus) and at what the journal remembers of it (kubectl -n kube-system get configmap talosupgrade-journal -o yaml). "+
				"A rollback starts what is in the other boot slot, so it has to be certain what that is, and that it fits the cluster.", node.Address),
			Err: say.ErrBlocked,
		}
	}

	step = plan.Step{Node: name, Address: node.Address, Role: node.Role, Key: key, From: entry.Target, To: entry.Previous, Finish: found.Unfinished}

	return step, entry, found.Done, nil
}

// unknownNode returns the refusal of a name that no node has.
func unknownNode(summary string, observed cluster.Observation, name string) *say.Failure {
	var names []string
	for _, node := range observed.Managed() {
		names = append(names, node.Name)
	}

	slices.Sort(names)

	failure := &say.Failure{
		Summary: summary, Seen: fmt.Sprintf("No node of this cluster is called %q. There are: %s.", name, strings.Join(names, ", ")),
		State: "Nothing was touched.", Remedy: "Correct node: it is the name that kubectl get nodes shows.", Err: say.ErrBlocked,
	}

	if slices.Contains(observed.Foreign, name) {
		failure.Seen = fmt.Sprintf("Node %q does not run Talos. Those that do are: %s.", name, strings.Join(names, ", "))
	}

	return failure
}

// rollBackLeased sends the node back under the lease. The returned upgrade is nil if none was begun.
func (r *run) rollBackLeased(ctx context.Context, observed cluster.Observation, request NodeRequest) (back *nodeUpgrade, last cluster.Observation, err error) {
	leased, end := r.lock.bind(ctx)
	defer end()
	defer r.engine.shutdown.watch(leased)()

	if err := r.claimJournal(leased); err != nil {
		return nil, observed, err
	}

	// Nobody else can change the decision under the lease.
	observed, err = r.engine.Observe(leased)
	if err != nil {
		return nil, observed, say.Undisturbed(&say.Failure{
			Summary: "Unable to observe the cluster", Seen: err.Error(), State: "No node was disturbed.", Remedy: say.UnreachedRemedy(err), Err: err,
		})
	}

	r.journal.setNodes(observed.Nodes)

	step, entry, done, err := decideRollback(observed, request.Node)

	switch {
	case err != nil:
		return nil, observed, err
	case done:
		return nil, observed, r.withdrawRetry(leased, step)
	}

	if err := r.refusesRollback(leased, step); err != nil {
		return nil, observed, err
	}

	back = &nodeUpgrade{run: r, step: step, entry: entry, asked: true}
	err = back.sendBack(leased, request)

	if looked, unseen := r.lastLook(leased); unseen == nil {
		observed = looked
	}

	return back, observed, err
}

// withdrawRetry takes back the permission to install the same image again on a node that runs its old system.
func (r *run) withdrawRetry(ctx context.Context, step plan.Step) error {
	err := r.journal.change(ctx, step.Node, func(j cluster.Journal) cluster.Journal {
		entry, found := j.Entries[step.Key]
		if !found || !entry.Retry {
			return j
		}

		entry.Retry, entry.Run, entry.Written = false, r.engine.runID, r.engine.clock.Now()

		return j.With(step.Key, entry)
	})

	lost := errors.Is(err, say.ErrLeaseLost) || errors.Is(cluster.Ended(ctx), say.ErrLeaseLost)

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !lost:
		return retryFailure(ctx, step.Node, err)
	}

	failed := say.Undisturbed(&say.Failure{
		Summary: "Unable to roll back node " + step.Node, Node: step.Node, Seen: say.Sentence(err.Error()),
		State:  "The node runs its old system, and the next apply may install the same image again.",
		Remedy: say.WritableRemedyOfAction, Err: err,
	})
	if lost {
		failed.Remedy = say.LostRemedy(errors.Join(cluster.Ended(ctx), err))
	}

	return failed
}

// refusesRollback returns why no rollback may begin now: the upgrades are suspended, or the operator of the
// cluster is at work. A suspension does not prevent finishing one.
func (r *run) refusesRollback(ctx context.Context, step plan.Step) error {
	summary := "Unable to roll back node " + step.Node

	if blocking := r.operatorConflicts(ctx, false); len(blocking) > 0 {
		return say.Undisturbed(&say.Failure{
			Summary: summary, Findings: blocking, State: "No node was disturbed.", Remedy: say.BlockedRemedy,
			Err: errors.Join(append([]error{permit.ErrOccupied}, say.Causes(blocking)...)...),
		})
	}

	if step.Finish {
		return nil
	}

	lease, _, err := r.engine.readLease(ctx)

	switch {
	case err != nil:
		return say.NotAcquired(ctx.Err() != nil, err)
	case lease.Suspended != nil:
		return rollbackSuspended(step.Node, suspendedText(*lease.Suspended))
	default:
		return nil
	}
}

// sendBack takes the node to its old system, or finishes what an earlier run began, within the time that a node
// may take.
func (u *nodeUpgrade) sendBack(ctx context.Context, request NodeRequest) error {
	stepCtx, end := u.run.startContext(ctx, u.step)
	defer end()
	defer u.run.shared.done(u.step.Node)

	bounded, allowed, cancel := allow(stepCtx, u.run.engine.clock, request.Policy.NodeTimeout)
	defer cancel()

	u.untimed, u.allowed = stepCtx, allowed

	result, err := u.rollBackAsked(bounded, request)
	if err == nil {
		err = u.serveAgain(bounded, result)
	}

	if err == nil {
		return nil
	}

	cancel()
	u.cleanUp(stepCtx)

	return u.rollbackFailure(stepCtx, err)
}

// rollBackAsked sends the node back and returns what it booted. If an earlier run may have sent the request, only
// a boot shows whether the node received it.
func (u *nodeUpgrade) rollBackAsked(ctx context.Context, request NodeRequest) (outcome, error) {
	if u.step.Finish {
		u.phase = installCalled

		result, err := u.resume(ctx)
		if err != nil || !u.unheard(result) {
			return result, err
		}
	}

	result, err := u.rollBackOnce(ctx, request)
	if err != nil || !u.unheard(result) {
		return result, err
	}

	return u.rollBackOnce(ctx, request)
}

// rollBackOnce sends the node back, from its present boot.
func (u *nodeUpgrade) rollBackOnce(ctx context.Context, request NodeRequest) (outcome, error) {
	u.phase = returning
	u.entry.Asked, u.entry.Reason = u.run.engine.holder(), request.Reason

	return u.rollBack(ctx, nil)
}

// unheard reports whether a node that started the new system again may not have received the request, because it
// did not confirm it. The content of its other slot is as certain as before, so the request is sent again in its
// present boot.
func (u *nodeUpgrade) unheard(result outcome) bool {
	if result != arrived || u.entry.Told || !u.result.runs.Equal(u.entry.Target) {
		return false
	}

	u.entry.ConfirmedBootID = u.booted

	return true
}

// serveAgain puts the node back into service with the system that it booted.
func (u *nodeUpgrade) serveAgain(ctx context.Context, result outcome) error {
	machine, err := u.awaitBootID(ctx)
	if err != nil {
		return err
	}

	u.phase, u.result.runs = installCalled, machine.Talos

	if result == rolledBack {
		return u.recordOldSystem(ctx, cluster.PhaseRolledBack, machine.BootID)
	}

	failed := fmt.Errorf("%w: it runs Talos %s", say.ErrStartedAgain, machine.Talos)
	if err := u.awaitServing(ctx); err != nil {
		return fmt.Errorf("%w; it is not back in service: %w", failed, err)
	}

	return errors.Join(failed, u.forget(ctx))
}

// tellRolledBack emits the end of a rollback whose beginning was emitted.
func (r *run) tellRolledBack(back *nodeUpgrade, last cluster.Observation, err error) {
	switch {
	case errors.Is(err, say.ErrLeaseLost):
		r.engine.emit(cluster.Event{Kind: cluster.EventRunLost, Text: err.Error(), Err: err})
	case back == nil || !back.told:
	default:
		lowest, _ := last.TalosVersions()
		event := cluster.Event{
			Kind: cluster.EventRolledBack, Node: back.step.Node, To: back.entry.Previous, Talos: cluster.Progress{Lowest: lowest},
			Text: plan.AskedFor(back.entry), Err: err,
		}

		if err != nil {
			event.Text = back.failureText(err)
		}

		r.engine.emit(event)
	}
}

// failureText says in one line what kept the node from its old system.
func (u *nodeUpgrade) failureText(err error) string {
	var failure *say.Failure
	if errors.As(err, &failure) {
		return failure.Seen
	}

	return err.Error()
}
