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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// curableByRollback reports whether an upgrade ended because its node runs the new system and did not become healthy in
// time. For any other end of an upgrade, the old system would be no cure.
func (u *nodeUpgrade) curableByRollback(bounded context.Context, err error) bool {
	return err != nil && u.untimed.Err() == nil && errors.Is(cluster.Ended(bounded), context.DeadlineExceeded) &&
		u.recorded() && u.rebooted() && u.phase != inService && !u.result.runs.IsZero() && u.result.runs.Equal(u.entry.Target)
}

// rebooted reports whether the node has booted since the entry in the journal was written. Each attempt begins
// with a new entry.
func (u *nodeUpgrade) rebooted() bool { return u.booted != "" && u.booted != u.entry.BootID }

// rollBackUnhealthy handles a node whose new system did not become healthy. Err is the error of the upgrade.
func (u *nodeUpgrade) rollBackUnhealthy(err error) error {
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

// AllowRetry allows the next upgrade to try the image again on a node that fell back or was rolled back to its
// old system. It changes only that entry of the journal, under the lease, and changes nothing if a retry is
// allowed already. The permission ends with the next attempt. The returned entry names the image; the error is a
// [*say.Failure].
func (e *Engine) AllowRetry(ctx context.Context, request NodeRequest) (cluster.Entry, error) {
	e.shutdown.begin(ctx)

	observed, err := e.observeRequested(ctx, Request{ClusterID: request.ClusterID}, outdatedPod)
	if err != nil {
		return cluster.Entry{}, say.OfAction(err)
	}

	key, entry, err := returnedEntry(observed, request.Node)
	if err != nil || entry.Retry {
		return entry, err
	}

	held, err := e.acquire(ctx)
	if err != nil {
		return cluster.Entry{}, say.OfAction(say.NotAcquired(ctx.Err() != nil, err))
	}

	r := e.newRun(held, Request{Policy: request.Policy, ClusterID: request.ClusterID}, request.Policy)
	r.journal.setNodes(observed.Nodes)

	entry, err = r.allowRetry(ctx, request.Node, key)
	if errors.Is(err, say.ErrNotBegun) {
		err = say.OfAction(err)
	}

	if releaseErr := r.lock.release(ctx); releaseErr != nil && err == nil {
		e.warn("the lease could not be released: " + releaseErr.Error())
	}

	return entry, err
}

// returnedEntry returns the entry of a node that returned to its old system.
func returnedEntry(observed cluster.Observation, name string) (key string, entry cluster.Entry, err error) {
	summary := "Unable to allow another try on node " + name

	node, there := observed.Node(name)

	switch {
	case !there || node.Gone:
		return "", entry, unknownNode(summary, observed, name)
	case observed.Journal == nil:
		return "", entry, &say.Failure{
			Summary: summary, Node: name, Seen: fmt.Sprintf("The journal cannot be read: %v.", observed.JournalError), State: "Nothing was touched.",
			Remedy: say.WritableRemedyOfAction, Err: say.ErrBlocked,
		}
	}

	key, entry, found := observed.Journal.Of(node)

	return key, entry, refusesRetry(name, entry, found)
}

// refusesRetry returns why a retry cannot be allowed for the node; nil if it can.
func refusesRetry(name string, entry cluster.Entry, found bool) error {
	failure := &say.Failure{
		Summary: "Unable to allow another try on node " + name, Node: name, State: "Nothing was touched.", Err: say.ErrBlocked,
		Seen:   "The journal does not say that the node fell back, or was rolled back, to an old system: no image is kept from it.",
		Remedy: "Run terraform plan: it says what stands in the way of the node.",
	}

	switch {
	case found && entry.Open():
		failure.Seen = fmt.Sprintf("The node is in the middle of its upgrade to Talos %s, and it is not known yet how that ends.", entry.Target)
		failure.Remedy = "Run terraform apply: it finishes what was begun."

		return failure
	case !found:
		return failure
	default:
		return nil
	}
}

// allowRetry marks the entry as it is in the journal now.
func (r *run) allowRetry(ctx context.Context, node, key string) (entry cluster.Entry, err error) {
	leased, end := r.lock.bind(ctx)
	defer end()
	defer r.engine.shutdown.watch(leased)()

	if err := r.claimJournal(leased); err != nil {
		return entry, err
	}

	var refused error

	err = r.journal.change(leased, node, func(j cluster.Journal) cluster.Journal {
		found := false

		entry, found = j.Entries[key]
		if refused = refusesRetry(node, entry, found); refused != nil {
			return j
		}

		entry.Retry, entry.Run, entry.Written = true, r.engine.runID, r.engine.clock.Now()

		return j.With(key, entry)
	})
	if err != nil {
		return entry, retryFailure(ctx, node, err)
	}

	return entry, refused
}

// retryFailure returns the failure for an entry that could not be marked.
func retryFailure(ctx context.Context, node string, err error) *say.Failure {
	if ctx.Err() != nil {
		return say.Undisturbed(&say.Failure{
			Summary: "The action was cancelled", Seen: "It was interrupted before the journal was written.", State: "No node was disturbed.",
			Remedy: "Run it again.", Err: err,
		})
	}

	return say.Undisturbed(&say.Failure{
		Summary: "Unable to allow another try on node " + node, Node: node, Seen: say.Sentence(err.Error()), State: "No node was disturbed.",
		Remedy: say.WritableRemedyOfAction, Err: err,
	})
}
