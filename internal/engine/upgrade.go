// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// Upgrade brings the cluster to the target and blocks until it is there, or returns a [*say.Failure]. In both
// cases the observation is the last one. If it is killed at any point, the next call continues where the cluster
// is.
func (e *Engine) Upgrade(ctx context.Context, request Request) (cluster.Observation, error) {
	e.shutdown.begin(ctx)

	observed, err := e.observeRequested(ctx, request, unsettledPod(request))
	if err != nil {
		return observed, err
	}

	made := plan.Make(observed, request.Target, request.Policy)

	found := e.findProblems(ctx, observed, made, request)
	if ctx.Err() != nil {
		return observed, say.NotAcquired(ctx.Err() != nil, cluster.Ended(ctx))
	}

	blocking := cluster.Blocking(found)
	e.outline(observed, made, found, request)

	if len(blocking) > 0 {
		return observed, withSnapshot(refused(observed, request.Target, blocking), observedSnapshotFor(observed, request.Target))
	}

	idle := len(made.Steps) == 0
	if idle && !e.needsCleanup(ctx, observed, made, request) {
		return observed, nil
	}

	held, err := e.acquire(ctx)
	if idle && errors.Is(err, say.ErrLocked) {
		// The holder is alive and will report the end of its run.
		return observed, nil
	}

	if err != nil {
		return observed, withSnapshot(say.NotAcquired(ctx.Err() != nil, err), observedSnapshotFor(observed, request.Target))
	}

	r := e.newRun(held, request, made.Policy)

	last, err := r.upgradeLeased(ctx, observed)
	current, _ := r.journal.read()
	err = withSnapshot(err, snapshotFor(current, request.Target))

	r.finish(ctx, last, err)

	if current.Snapshot != nil && last.Journal != nil && (last.Journal.Snapshot == nil || !last.Journal.Snapshot.Taken.After(current.Snapshot.Taken)) {
		// The snapshot may be newer than the last observation.
		journal := last.Journal.WithSnapshot(current.Snapshot)
		last.Journal = &journal
	}

	return last, err
}

// observeRequested makes the first observation of the cluster, which must be the requested one; [Engine.firstLook]
// tells what it waits for. The error is a [*say.Failure].
func (e *Engine) observeRequested(ctx context.Context, request Request, unsettled func(cluster.Observation) string) (cluster.Observation, error) {
	observed, err := e.firstLook(ctx, unsettled)

	switch {
	case err != nil && ctx.Err() != nil:
		return observed, say.NotAcquired(true, cluster.Ended(ctx))
	case err != nil:
		return observed, say.Undisturbed(&say.Failure{
			Summary: "Unable to observe the cluster", Seen: err.Error(), State: "Nothing was touched.", Remedy: say.UnreachedRemedy(err), Err: err,
		})
	case request.ClusterID != "" && observed.ID == "":
		return observed, say.Undisturbed(&say.Failure{
			Summary: "Unable to tell which cluster this is",
			Seen:    fmt.Sprintf("The state belongs to cluster %s, and the connected cluster did not say who it is.", request.ClusterID),
			State:   "Nothing was touched.", Remedy: say.ResumeRemedy, Err: say.ErrWrongCluster,
		})
	case request.ClusterID != "" && request.ClusterID != observed.ID:
		return observed, say.Undisturbed(&say.Failure{
			Summary: "Unable to upgrade another cluster",
			Seen:    fmt.Sprintf("The state belongs to cluster %s, this provider reaches %s.", request.ClusterID, observed.ID),
			State:   "Nothing was touched.", Remedy: "Correct the talosconfig or its context, then run terraform apply again.", Err: say.ErrWrongCluster,
		})
	default:
		return observed, nil
	}
}

// needsCleanup reports whether a cluster in which there is nothing to do needs something that only the holder of
// the lease may do: clean up after a run that died, or publish what is not known yet.
func (e *Engine) needsCleanup(ctx context.Context, observed cluster.Observation, made plan.Plan, request Request) bool {
	event := cluster.Event{Kind: cluster.EventRunDone, Talos: made.Talos, Kubernetes: made.Kubernetes, Target: request.Target}

	return snapshotLeft(observed) || e.leaseLeft(ctx) || e.pauseLeft(ctx) || e.announces(ctx, event)
}

// finish reports the end of a run, with its error if it failed, and gives back what it held, the lease last.
func (r *run) finish(ctx context.Context, last cluster.Observation, err error) {
	r.conclude(last, err)
	r.giveBack(ctx, last, err)
}

// giveBack publishes the last events, and gives back what the run held.
func (r *run) giveBack(ctx context.Context, last cluster.Observation, err error) {
	ours := r.engine.publishEnd(ctx, r.lock, err)
	_, _, lost := r.lock.state()

	switch {
	case ours:
		made := plan.Make(last, r.request.Target, r.policy())
		r.resumeOperator(ctx, made.Talos.Lowest, made.Kubernetes.Lowest)
	case errors.Is(lost, say.ErrLeaseFreed) && r.shared.operatorPaused():
		// No other run will take the hold over.
		r.endPause(ctx)
	}

	if releaseErr := r.lock.release(ctx); releaseErr != nil && err == nil {
		r.engine.warn("the lease could not be released: " + releaseErr.Error())
	}
}

// upgradeLeased moves every node that has to move. It stops if somebody else takes the lease.
func (r *run) upgradeLeased(ctx context.Context, observed cluster.Observation) (cluster.Observation, error) {
	leased, end := r.lock.bind(ctx)
	defer end()
	defer r.engine.shutdown.watch(leased)()
	defer r.engine.kubernetes.FollowNodes(leased)()

	if err := r.claimJournal(leased); err != nil {
		return observed, err
	}

	if err := r.pauseOperator(leased); err != nil {
		return observed, err
	}

	s := newRollout(r, observed)
	err := s.upgradeAll(leased)

	if err == nil {
		return s.snapshot, nil
	}

	if !s.moved {
		r.describeLeftovers(err, nil, false)

		return s.snapshot, err
	}

	last, observeErr := r.lastLook(leased)
	if observeErr != nil {
		r.describeLeftovers(err, nil, true)

		return s.snapshot, err
	}

	r.describeLeftovers(err, &last, true)

	return last, err
}

// firstObservationTimeout bounds the wait for the first observation. Kubernetes was seen to take two and a half
// minutes to show the API server of a control plane as it was.
const firstObservationTimeout = 3 * time.Minute

// firstLook observes the cluster. It gives an API server that does not answer a moment to return: that of a
// single control plane may be restarting because of an earlier run that was cut off. Unsettled names what else is
// worth waiting for, and is empty if nothing is. If the time is up, the last observation counts.
func (e *Engine) firstLook(ctx context.Context, unsettled func(cluster.Observation) string) (cluster.Observation, error) {
	var last cluster.Observation

	bounded, cancel := e.clock.WithTimeout(ctx, firstObservationTimeout)
	defer cancel()

	err := e.wait(bounded, "", "the cluster to say how it is", func(context.Context) (bool, string, error) {
		// The observation itself is not bounded, because the last one counts.
		observed, err := e.Observe(ctx)
		if err != nil {
			return false, "", err
		}

		last = observed

		if away := observed.KubernetesError; away != nil && cluster.Heals(away) {
			return false, away.Error(), nil
		}

		seen := unsettled(observed)

		return seen == "", seen, nil
	})

	var late *say.WaitError
	if ctx.Err() == nil && (last.KubernetesError != nil || errors.As(err, &late)) {
		err = nil
	}

	return last, err
}

// outdatedPod names a static pod that Kubernetes does not show as it is; empty if there is none.
func outdatedPod(observed cluster.Observation) string {
	return staticPod(observed, func(pod cluster.ComponentPod) bool { return pod.Outdated })
}

// unsettledPod is [outdatedPod] for a run that refuses to begin if a static pod is not Ready. If nothing else keeps the
// run from beginning, it also names one that is not Ready for no reason that the kubelet reports. Kubernetes marks all
// pods of a node like that when the node misses its heartbeats, and the kubelet, once it is back, takes some ten
// seconds to correct it.
func unsettledPod(request Request) func(cluster.Observation) string {
	return func(observed cluster.Observation) string {
		if seen := outdatedPod(observed); seen != "" {
			return seen
		}

		blocking := cluster.Blocking(plan.Make(observed, request.Target, request.Policy).Findings)
		if len(blocking) == 0 || slices.ContainsFunc(blocking, func(f cluster.Finding) bool { return f.Check != cluster.CheckControlPlane || f.Unknown }) {
			return ""
		}

		if staticPod(observed, func(pod cluster.ComponentPod) bool { return !pod.Ready && pod.Trouble != "" }) != "" {
			return ""
		}

		return staticPod(observed, func(pod cluster.ComponentPod) bool { return !pod.Ready })
	}
}

// staticPod names a static pod that matches, of a control plane whose kubelet is Ready; empty if there is none.
func staticPod(observed cluster.Observation, matches func(cluster.ComponentPod) bool) string {
	for _, node := range observed.ControlPlanes() {
		if node.Kube == nil || !node.Kube.Ready {
			continue
		}

		for _, component := range cluster.Components(cluster.ControlPlane) {
			if pod, there := node.Pods[component]; there && component.Static() && matches(pod) {
				return fmt.Sprintf("%s on %s is not Ready%s", component, node.Name, fact.Troubled(pod))
			}
		}
	}

	return ""
}

// findProblems returns the findings of all checks; those that block are reasons not to begin. If none blocks and
// there is something to do, warnings are emitted for what is skipped and for findings about drains, the operator
// and selectors.
func (e *Engine) findProblems(ctx context.Context, observed cluster.Observation, made plan.Plan, request Request) []cluster.Finding {
	p := &preflight{engine: e, snapshot: observed, made: made, request: request}
	found := p.outlast(ctx, p.examine(ctx, p.probes(Applying)).Findings)

	if len(cluster.Blocking(found)) > 0 || len(made.Steps) == 0 {
		return found
	}

	e.tell(found)

	for _, finding := range found {
		if aloud := []string{cluster.CheckDrain, cluster.CheckOperator, cluster.CheckSelectors}; slices.Contains(aloud, finding.Check) && !finding.Skipped {
			e.emit(cluster.Event{Kind: cluster.EventWarning, Node: finding.Node, Text: finding.String()})
		}
	}

	return found
}

// lastLook observes once more after a failure, for the state that is reported.
func (r *run) lastLook(ctx context.Context) (cluster.Observation, error) {
	bounded, cancel := r.engine.cleanupContext(ctx)
	defer cancel()

	return r.engine.Observe(bounded)
}

// conclude emits the event about a run that failed; upgradeAll emits the one about a run that succeeded.
func (r *run) conclude(observed cluster.Observation, err error) {
	if err == nil {
		return
	}

	if errors.Is(err, say.ErrLeaseLost) || errors.Is(err, permit.ErrOccupied) {
		// The holder of the lease, or the operator, reports on the cluster now: observers say nothing more of this run.
		r.engine.emit(cluster.Event{Kind: cluster.EventRunLost, Text: err.Error(), Err: err})

		return
	}

	made := plan.Make(observed, r.request.Target, r.policy())
	event := r.progress(cluster.Event{Kind: cluster.EventRunFailed, Text: say.Brief(err), Err: err}, made)

	var failure *say.Failure
	if errors.As(err, &failure) {
		event.Node, event.Component = strings.Join(failure.Nodes(), ","), failure.Component
	}

	r.engine.emit(event)
}

// describeLeftovers completes what a failure says about the cluster, once no upgrade is in progress. Before that,
// the failure only describes its own node. Last is nil if there is no last observation. If no upgrade began, a
// state that is set already is complete.
func (r *run) describeLeftovers(err error, last *cluster.Observation, moved bool) {
	var failure *say.Failure
	if !errors.As(err, &failure) || !moved && failure.State != "" {
		return
	}

	lost := errors.Is(err, say.ErrLeaseLost)
	if lost {
		// An observation would show what the other run has done since.
		last = nil
	}

	journal, _ := r.journal.read()
	if last != nil && last.Journal != nil {
		journal = *last.Journal
	}

	var parts []string

	if failure.State != "" {
		parts = append(parts, failure.State)
	}

	unfinished := unfinishedIn(journal, failure.Node, last)
	if len(unfinished) > 0 {
		parts = append(parts, unfinishedText(unfinished))
	}

	others := "No node is being upgraded"
	if failure.Node != "" || len(unfinished) > 0 {
		others = "No other node is being upgraded"
	}

	if lost {
		others += " by this run"
	}

	parts = append(parts, others+serviceText(last, failure.Node, unfinished))

	if lost {
		parts = append(parts, "That is how it was when the lease was lost; this run has not looked since.")
	}

	failure.State = strings.Join(parts, " ")
}

// unfinishedIn returns the nodes, other than the given one, that the journal has in the middle of their upgrades.
// If there is an observation, machines that have left the cluster do not count.
func unfinishedIn(journal cluster.Journal, but string, last *cluster.Observation) []string {
	var nodes []string

	for key, entry := range journal.Entries {
		if entry.Awaited() && entry.Node != but && (last == nil || isThere(*last, journal, key)) {
			nodes = append(nodes, entry.Node)
		}
	}

	slices.Sort(nodes)

	return nodes
}

// isThere reports whether the machine that an entry is about is part of the cluster.
func isThere(observed cluster.Observation, journal cluster.Journal, key string) bool {
	return slices.ContainsFunc(observed.Nodes, func(node cluster.Node) bool {
		known, _, found := journal.Of(node)

		return found && known == key
	})
}

func unfinishedText(nodes []string) string {
	if len(nodes) == 1 {
		return nodes[0] + " is left in the middle of its upgrade and is recorded in the journal; the next run begins with it."
	}

	return strings.Join(nodes, ", ") + " are left in the middle of their upgrades and are recorded in the journal; the next run begins with them."
}

// serviceText says of the nodes not mentioned yet whether they are in service, if that is known. It ends the
// sentence.
func serviceText(last *cluster.Observation, node string, unfinished []string) string {
	if last == nil || last.KubernetesError != nil {
		return "."
	}

	var away []string

	for _, other := range last.Managed() {
		whole := other.Available() && other.Machine != nil
		if !whole && other.Name != node && !slices.Contains(unfinished, other.Name) {
			away = append(away, other.Name+" ("+awayText(other)+")")
		}
	}

	switch {
	case len(away) > 0:
		return ". Not in service: " + strings.Join(away, ", ") + "."
	case node != "" || len(unfinished) > 0:
		return "; all others are in service."
	default:
		return ", and every node is in service."
	}
}

// awayText says why a node is not in service.
func awayText(node cluster.Node) string {
	switch {
	case node.Kube == nil:
		return "no Node object"
	case !node.Kube.Ready && node.Kube.Unschedulable:
		return "not Ready and cordoned"
	case !node.Kube.Ready:
		return "not Ready"
	case node.Kube.Unschedulable:
		return "cordoned"
	default:
		return "its Talos API does not answer"
	}
}

// publishEnd publishes the last events of a run, unless another run has taken over at the very end. It reports
// whether this run still speaks for the cluster.
func (e *Engine) publishEnd(ctx context.Context, held *lock, failed error) bool {
	kept, end := e.cleanupContext(ctx)
	defer end()

	_, _, err := held.holds(kept)
	lost := errors.Is(err, say.ErrLeaseLost)

	if lost && !errors.Is(failed, say.ErrLeaseLost) {
		e.emit(cluster.Event{Kind: cluster.EventRunLost, Text: err.Error(), Err: err})
	}

	e.flush(ctx)

	return !lost && !errors.Is(failed, say.ErrLeaseLost)
}

// refused returns the failure of checks before a run, with what an earlier run left.
func refused(observed cluster.Observation, target cluster.Target, findings []cluster.Finding) *say.Failure {
	failure := say.Blocked(target, findings)

	if observed.Journal == nil {
		return failure
	}

	nodes := unfinishedIn(*observed.Journal, "", &observed)
	if len(nodes) > 0 {
		failure.State += " " + unfinishedText(nodes)
	}

	return failure
}
