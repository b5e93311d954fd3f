// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

const (
	// answerPatience is how long an operator may take to show that it has noticed
	// what it is asked for.
	answerPatience = 5 * time.Minute
	// claimPatience is how long what an operator says and what the cluster shows
	// may differ once it says that it is done.
	claimPatience = 2 * time.Minute
	// askPatience bounds the asking itself, and the taking back.
	askPatience = 2 * time.Minute
	// lookEvery is how often all nodes are looked at while the operator says nothing
	// new: its word is cheap to read, and they are not.
	lookEvery = 30 * time.Second
	// noticePatience is how long an operator that has failed is given to notice that
	// it is asked for nothing: some forget the failure then, and only then begin anew.
	noticePatience = 30 * time.Second
	// pollOperator is the longest pause between two looks at what the operator says:
	// one that starts over by itself says only for seconds that it failed.
	pollOperator = 2 * time.Second
	// legsMost bounds the legs of one run. Each makes the way shorter; more than
	// there are releases is a cluster that somebody else moves as well.
	legsMost = 30
)

// Delegate has the operator bring the cluster to the target, one leg of the way
// after the other, and blocks until every node is seen to be there, or returns a
// [*Failure]. The snapshot is the last observation in either case. It changes
// nothing but what the operator is asked for.
func (e *Engine) Delegate(ctx context.Context, request Request) (cluster.Snapshot, error) {
	e.shutdown.begin(ctx)

	request = delegated(request)

	snapshot, err := e.observeRequested(ctx, request)
	if err != nil {
		return snapshot, err
	}

	made := plan.Make(snapshot, request.Target, request.Policy)
	step, underway := e.underway(ctx, snapshot, made, request)

	// What the operator is at shows, and is no reason not to follow it.
	found := permanent(made.Findings)
	if !underway {
		found = e.findDelegateProblems(ctx, snapshot, made, request)
	}

	if ctx.Err() != nil {
		return snapshot, acquireFailure(ctx, context.Cause(ctx))
	}

	e.outline(snapshot, made, found, request)

	if blocking := cluster.Blocking(found); len(blocking) > 0 {
		return snapshot, refused(snapshot, request.Target, blocking)
	}

	idle := len(made.Steps) == 0 && !underway
	if idle && !e.leaseLeft(ctx) && !e.operatorNeedsCleanup(ctx, snapshot) {
		return snapshot, nil
	}

	held, err := e.acquire(ctx)
	if idle && errors.Is(err, ErrLocked) {
		return snapshot, nil
	}

	if err != nil {
		return snapshot, acquireFailure(ctx, err)
	}

	d := &delegation{run: e.newRun(held, request), snapshot: snapshot}
	if underway {
		d.underway = &step
	}

	err = d.runLeased(ctx)
	current, _ := d.run.journal.read()
	err = withSnapshot(err, snapshotFor(current, request.Target))
	d.run.finish(ctx, d.snapshot, err)

	return d.snapshot, err
}

// delegated is the request as an operator carries it out: what Talos renders into
// the cluster is its affair.
func delegated(request Request) Request {
	request.Delegated = true
	request.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}

	return request
}

// delegation is one run in which an operator acts.
type delegation struct {
	run *run

	snapshot cluster.Snapshot
	// underway is what the operator was asked for by a run that was cut off, and is
	// at work on; nil where there is no such thing.
	underway *plan.Step
	// stages counts those that have come to their end, backed tells that the snapshot
	// of etcd was seen to.
	stages       int
	snapshotDone bool
	// unchecked tells that what blocks was not looked at since the last observation.
	unchecked bool
}

// runLeased carries the run out for as long as the lease is its own.
func (d *delegation) runLeased(ctx context.Context) error {
	leased, end := d.run.lock.bind(ctx)
	defer end()
	defer d.run.engine.shutdown.watch(leased)()

	if err := d.run.claimJournal(leased); err != nil {
		return err
	}

	d.observeAgain(leased)

	if d.snapshot.Journal != nil {
		d.run.adoptJournal(*d.snapshot.Journal)
	}

	err := d.runStages(leased)
	if err == nil {
		return nil
	}

	var failure *Failure
	if errors.As(err, &failure) && failure.State == "" {
		failure.State = d.state()
	}

	if last, observeErr := d.run.lastLook(leased); observeErr == nil && !errors.Is(err, ErrLeaseLost) {
		d.snapshot = last
	}

	return err
}

// observeAgain looks at the cluster under the lease: the operator may have gone on, and
// come to its end, while that was waited for.
func (d *delegation) observeAgain(ctx context.Context) {
	seen, err := d.run.engine.Observe(ctx)
	if err != nil || seen.KubernetesError != nil {
		return
	}

	d.unchecked = d.underway != nil || seen.Taken.Sub(d.snapshot.Taken) >= lookEvery
	d.snapshot, d.underway = seen, nil

	if step, underway := d.run.engine.underway(ctx, seen, d.plan(), d.run.request); underway {
		d.underway = &step
	}
}

// runStages asks for one leg after the other until nothing is left to do.
func (d *delegation) runStages(ctx context.Context) error {
	schedule := newRollout(d.run, d.snapshot)
	d.run.emit(d.run.progress(cluster.Event{Kind: cluster.EventRunStarted}, d.plan()))

	for range legsMost {
		made := d.plan()

		if d.underway != nil {
			step := *d.underway
			d.underway = nil

			if err := newOperatorStage(d, step, made.Hops).run(ctx); err != nil {
				return err
			}

			d.stages++

			continue
		}

		if err := d.ready(ctx, schedule, made); err != nil {
			return err
		}

		if len(made.Steps) == 0 {
			d.cleanUp(ctx)
			schedule.closeBackup(ctx)
			d.run.emit(d.run.progress(cluster.Event{Kind: cluster.EventRunDone}, made))

			return nil
		}

		if err := newOperatorStage(d, made.Steps[0], made.Hops).run(ctx); err != nil {
			return err
		}

		d.stages++
	}

	return d.exhausted()
}

// exhausted is the failure of a run that asked for leg after leg.
func (d *delegation) exhausted() *Failure {
	return &Failure{
		Summary: "Unable to bring the cluster to the target through its operator",
		Seen:    fmt.Sprintf("%s was asked for %d legs of the way in this run, and the cluster is not there.", d.run.engine.operator, legsMost),
		State:   d.state(),
		Remedy:  "Find out who else changes its versions, then run terraform apply again.", Err: ErrOperator,
	}
}

func (d *delegation) plan() plan.Plan {
	return plan.Make(d.snapshot, d.run.request.Target, d.run.request.Policy)
}

// state is how the operator is left between two legs.
func (d *delegation) state() string {
	if d.stages == 0 {
		return "The operator is asked for nothing, and no node was disturbed."
	}

	return "What the operator was asked for so far is done, and it is asked for nothing more."
}

// ready is what has to be so before a leg is asked for, or before the end: nothing
// is in the way, the gates hold and, before the first leg, a snapshot of etcd was
// taken. What blocks was just looked at before the first leg.
func (d *delegation) ready(ctx context.Context, schedule *rollout, made plan.Plan) error {
	blocking := cluster.Blocking(made.Findings)
	if d.stages > 0 || d.unchecked {
		blocking = cluster.Blocking(d.run.engine.findDelegateProblems(ctx, d.snapshot, made, d.run.request))
	}

	switch {
	case ctx.Err() != nil:
		return d.run.stopped(ctx, "before the operator was asked")
	case len(blocking) > 0:
		return d.blocked(blocking)
	case len(made.Steps) == 0:
		return nil
	}

	next := "The next would have been " + goalOf(made.Steps[0]) + "."

	err := d.run.noMoreStarts()
	if err == nil {
		err = d.run.awaitGates(ctx, "")
	}

	switch {
	case ctx.Err() != nil:
		return d.run.stopped(ctx, "before the operator was asked"+lastSeen(err))
	case errors.Is(err, ErrWindow):
		return d.run.outside(err, next)
	case errors.Is(err, ErrDeadline):
		return d.run.overtime(next)
	case err != nil:
		return &Failure{
			Summary: "Unable to go on with the upgrade: a gate does not hold", Seen: sentence(err.Error()), State: d.state(), Remedy: gateRemedy(err), Err: err,
		}
	case d.snapshotDone:
		return nil
	}

	d.snapshotDone = true

	return schedule.backUp(ctx)
}

// blocked is the failure of checks. What has been asked for cannot be undone by
// them any more.
func (d *delegation) blocked(blocking []cluster.Finding) error {
	if d.stages == 0 {
		return refused(d.snapshot, d.run.request.Target, blocking)
	}

	return &Failure{
		Summary: "Unable to go on with the upgrade", Findings: blocking, State: d.state(), Remedy: blockedRemedy,
		Err: errors.Join(append([]error{ErrGuard}, causes(blocking)...)...),
	}
}

// goalOf is what the leg that begins with the step brings about.
func goalOf(step plan.Step) string { return productOf(step).Name() + " " + step.To.String() }

func productOf(step plan.Step) cluster.Half {
	if step.Component == "" {
		return cluster.HalfTalos
	}

	return cluster.HalfKubernetes
}
