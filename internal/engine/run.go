// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// run is one upgrade of one cluster, from lease to release.
type run struct {
	*Engine

	request Request
	begun   time.Time
	guards  []guard
	lock    *lock
	// journal is as last read or written, with its resource version.
	journal cluster.Journal
	// turns counts the turns a node had, so that a node which claims success
	// and still is not at the target cannot make the run go round.
	turns map[string]int
}

// Upgrade brings the cluster to the target and blocks until it is there, or
// returns a [*Failure]. The snapshot is the last observation in either case.
// Killed at any point, the next call continues where the cluster is.
func (e *Engine) Upgrade(ctx context.Context, request Request) (cluster.Snapshot, error) {
	snapshot, err := e.Observe(ctx)
	if err != nil {
		return snapshot, &Failure{Summary: "Unable to observe the cluster", Seen: err.Error(), State: "Nothing was touched.", Err: err}
	}

	if request.ClusterID != "" && snapshot.ID == "" {
		return snapshot, &Failure{
			Summary: "Unable to tell which cluster this is",
			Seen:    fmt.Sprintf("The state belongs to cluster %s, and the connected cluster did not say who it is.", request.ClusterID),
			State:   "Nothing was touched.", Remedy: resumeRemedy, Err: ErrWrongCluster,
		}
	}

	if request.ClusterID != "" && request.ClusterID != snapshot.ID {
		return snapshot, &Failure{
			Summary: "Unable to upgrade another cluster",
			Seen:    fmt.Sprintf("The state belongs to cluster %s, this provider reaches %s.", request.ClusterID, snapshot.ID),
			State:   "Nothing was touched.", Remedy: "Check the talosconfig and its context.", Err: ErrWrongCluster,
		}
	}

	made := plan.Make(snapshot, request.Target, request.Policy)
	if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
		return snapshot, blocked(request.Target, blocking)
	}

	idle := len(made.Steps) == 0
	if idle && !e.leftLease(ctx) {
		return snapshot, nil
	}

	held, err := e.acquire(ctx)
	if idle && errors.Is(err, ErrLocked) {
		// Whoever holds it is alive and will say the last word.
		return snapshot, nil
	}

	if err != nil {
		return snapshot, acquireFailure(ctx, err)
	}

	r := &run{
		Engine: e, request: request, begun: e.clock.Now(), lock: held,
		guards: e.guards, turns: map[string]int{},
	}

	last, err := r.all(ctx, snapshot)
	r.conclude(last, err)

	if releaseErr := held.release(ctx); releaseErr != nil && err == nil {
		e.emit(cluster.Event{Kind: cluster.EventWarning, Text: "the lease could not be released: " + releaseErr.Error()})
	}

	return last, err
}

// all moves every node that has to move. The plan is made anew before each
// node, from a new observation: nodes join, vanish and change by themselves.
func (r *run) all(ctx context.Context, snapshot cluster.Snapshot) (cluster.Snapshot, error) {
	for first := true; ; first = false {
		next, made, err := r.replan(ctx, first)
		if next.Nodes != nil {
			snapshot = next
		}

		if err != nil {
			return snapshot, err
		}

		if first {
			r.emit(r.progress(cluster.Event{Kind: cluster.EventRunStarted}, snapshot, made))

			if err := r.pullEverywhere(ctx, made.Steps); err != nil {
				return snapshot, err
			}
		}

		if len(made.Steps) == 0 {
			r.emit(r.progress(cluster.Event{Kind: cluster.EventRunDone}, snapshot, made))

			return snapshot, nil
		}

		if err := r.mayStart(made.Steps[0]); err != nil {
			return snapshot, err
		}

		r.emit(r.progress(cluster.Event{Kind: cluster.EventNodeStarted, Node: made.Steps[0].Node}, snapshot, made))

		if err := r.turn(ctx, made.Steps[0]); err != nil {
			if last, observeErr := r.lastLook(ctx); observeErr == nil {
				snapshot = last
			}

			return snapshot, err
		}

		r.turns[made.Steps[0].Node]++
	}
}

// progress adds the counts and the lowest version to an event.
func (r *run) progress(event cluster.Event, snapshot cluster.Snapshot, made plan.Plan) cluster.Event {
	event.Done, event.Total = len(made.AtTarget), made.Total()
	event.Target = r.request.Target
	event.Lowest = lowestCertain(snapshot, made)

	return event
}

// lowestCertain is the lowest version that may be claimed. A node that is away
// counts with what it ran before its turn; where that is not known either,
// nothing can be claimed.
func lowestCertain(snapshot cluster.Snapshot, made plan.Plan) version.Version {
	lowest, _ := snapshot.TalosVersions()

	for _, node := range snapshot.Managed() {
		if node.Machine != nil {
			continue
		}

		index := slices.IndexFunc(made.Steps, func(s plan.Step) bool { return s.Node == node.Name })
		if index < 0 || made.Steps[index].From.IsZero() {
			return version.Version{}
		}

		lowest = version.Lowest(lowest, made.Steps[index].From)
	}

	return lowest
}

// replan observes and plans. At the beginning whatever blocks is an error at
// once; between nodes it gets the time to heal that it may need after a reboot.
func (r *run) replan(ctx context.Context, first bool) (cluster.Snapshot, plan.Plan, error) {
	var (
		snapshot cluster.Snapshot
		made     plan.Plan
		blocking []cluster.Finding
	)

	bounded, cancel := r.clock.WithTimeout(ctx, guardPatience)
	defer cancel()

	err := r.wait(bounded, "", "the cluster to be ready for the next node", func(ctx context.Context) (bool, string, error) {
		observed, err := r.Observe(ctx)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		snapshot, made = observed, plan.Make(observed, r.request.Target, r.request.Policy)
		if observed.Journal != nil {
			r.journal = *observed.Journal
		}

		if blocking = cluster.Blocking(made.Findings); len(blocking) == 0 {
			return true, "", nil
		}

		if first || hasPermanent(blocking) {
			return false, "", ErrBlocked
		}

		return false, blocking[0].String(), fatal(blocking)
	})

	switch {
	case err == nil:
		return snapshot, made, nil
	case ctx.Err() != nil:
		return snapshot, made, r.cancelled(ctx, "between two nodes")
	case len(blocking) > 0:
		failure := blocked(r.request.Target, blocking)
		if len(r.turns) > 0 {
			failure.State = "The run stopped between two nodes; no other node was touched."
			failure.Remedy = resumeRemedy
			failure.Err = errors.Join(append([]error{ErrGuard}, causes(blocking)...)...)
		}

		return snapshot, made, failure
	default:
		return snapshot, made, &Failure{
			Summary: "Unable to observe the cluster", Seen: err.Error(),
			State: "No node is being upgraded at this moment.", Remedy: resumeRemedy, Err: err,
		}
	}
}

const resumeRemedy = "Run terraform apply again to continue where the cluster is."

func hasPermanent(findings []cluster.Finding) bool {
	for _, finding := range findings {
		if finding.Severity == cluster.Permanent {
			return true
		}
	}

	return false
}

// turnsMost is one turn to finish what an earlier run began, one for the
// target, and one more in case the node was away when its step was planned.
const turnsMost = 3

// mayStart refuses another node when the time for the run is used up, or when
// this node had its turn already.
func (r *run) mayStart(step plan.Step) error {
	if r.turns[step.Node] >= turnsMost {
		return &Failure{
			Summary: fmt.Sprintf("Unable to upgrade node %s to Talos %s", step.Node, step.To), Node: step.Node,
			Seen:   fmt.Sprintf("The node completed its upgrade in this run and now runs Talos %s again.", step.From),
			State:  "The cluster is in service; somebody or something else changes this node.",
			Remedy: "Find out who does, then run terraform apply again.",
		}
	}

	elapsed := r.clock.Now().Sub(r.begun)
	if r.request.Deadline == 0 || elapsed < r.request.Deadline {
		return nil
	}

	return &Failure{
		Summary: "Unable to finish the upgrade in the time that timeouts allow",
		Seen:    fmt.Sprintf("After %s the next node would have been %s.", elapsed.Round(time.Second), step.Node),
		State:   "No node is being upgraded at this moment, and every node is in service.",
		Remedy:  "Run terraform apply again to continue, or raise timeouts.create and timeouts.update.",
		Err:     ErrDeadline,
	}
}

// cancelled is the failure of a run that was asked to stop.
func (r *run) cancelled(ctx context.Context, where string) *Failure {
	return &Failure{
		Summary: "The upgrade was cancelled",
		Seen:    "It was stopped " + where + ".",
		State:   "No node is being upgraded at this moment.",
		Remedy:  resumeRemedy,
		Err:     context.Cause(ctx),
	}
}

// lastLook observes once more after a failure, for the state that is reported.
func (r *run) lastLook(ctx context.Context) (cluster.Snapshot, error) {
	bounded, cancel := r.aftermath(ctx)
	defer cancel()

	return r.Observe(bounded)
}

// conclude tells the observers of a run that failed; all tells of the others.
func (r *run) conclude(snapshot cluster.Snapshot, err error) {
	if err == nil {
		return
	}

	if errors.Is(err, ErrLeaseLost) {
		// Whoever has the lease now speaks for the cluster.
		r.emit(cluster.Event{Kind: cluster.EventRunLost, Text: err.Error(), Err: err})

		return
	}

	made := plan.Make(snapshot, r.request.Target, r.request.Policy)
	event := r.progress(cluster.Event{Kind: cluster.EventRunFailed, Text: brief(err), Err: err}, snapshot, made)

	var failure *Failure
	if errors.As(err, &failure) {
		event.Node = failure.Node
	}

	r.emit(event)
}
