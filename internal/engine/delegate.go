// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// answerTimeout is how long an operator may take to show that it has noticed a request.
	answerTimeout = 5 * time.Minute
	// claimTimeout is how long the cluster may differ from the request after the operator says that it is done.
	claimTimeout = 2 * time.Minute
	// askTimeout bounds a request to the operator, and its withdrawal.
	askTimeout = 2 * time.Minute
	// lookEvery is how often all nodes are observed while the operator reports nothing new: its report is cheap
	// to read, an observation is not.
	lookEvery = 30 * time.Second
	// staleAfter is how old an observation may be when the operator is asked.
	staleAfter = 2 * time.Minute
	// noticeTimeout is how long an operator that has failed may take to notice that nothing is requested of it:
	// some operators forget the failure only then, and start anew only after that.
	noticeTimeout = 30 * time.Second
	// pollOperator is the longest pause between two reads of the operator's report: an operator that starts over
	// by itself reports its failure only for seconds.
	pollOperator = 2 * time.Second
	// maxStages bounds the stages of one run. Each stage shortens the path; if there are more stages than
	// releases, somebody else is moving the cluster too.
	maxStages = 30
)

// Delegate has the operator bring the cluster to the target, one stage of the path after the other, and blocks
// until every node has been observed to run it, or returns a [*say.Failure]. In both cases the observation is the
// last one. It changes nothing but the request to the operator.
func (e *Engine) Delegate(ctx context.Context, request Request) (cluster.Observation, error) {
	e.shutdown.begin(ctx)

	request = delegated(request)

	observed, err := e.observeRequested(ctx, request, outdatedPod)
	if err != nil {
		return observed, err
	}

	made := plan.Make(observed, request.Target, request.Policy)
	step, underway := e.underway(ctx, observed, made, request)

	// An operator at work causes findings of its own, which are no reason not to follow it.
	found := permanent(made.Findings)
	if !underway {
		found = e.findDelegateProblems(ctx, observed, made, request)
	}

	if ctx.Err() != nil {
		return observed, say.NotAcquired(ctx.Err() != nil, cluster.Ended(ctx))
	}

	e.outline(observed, made, found, request)

	if blocking := cluster.Blocking(found); len(blocking) > 0 {
		return observed, refused(observed, request.Target, blocking)
	}

	idle := len(made.Steps) == 0 && !underway
	if idle && !snapshotLeft(observed) && !e.leaseLeft(ctx) && !e.operatorNeedsCleanup(ctx, observed) {
		return observed, nil
	}

	held, err := e.acquire(ctx)
	if idle && errors.Is(err, say.ErrLocked) {
		return observed, nil
	}

	if err != nil {
		return observed, say.NotAcquired(ctx.Err() != nil, err)
	}

	d := &delegation{run: e.newRun(held, request, request.Policy), snapshot: observed}
	if underway {
		d.underway = &step
	}

	err = d.runLeased(ctx)
	current, _ := d.run.journal.read()
	err = withSnapshot(err, snapshotFor(current, request.Target))
	d.run.finish(ctx, d.snapshot, err)

	return d.snapshot, err
}

// delegated returns the request as an operator carries it out: bootstrap manifests are left to the operator.
func delegated(request Request) Request {
	request.Delegated = true
	request.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}

	return request
}

// delegation is a run in which an operator acts.
type delegation struct {
	run *run

	snapshot cluster.Observation
	// underway is what a run that was cut off requested of the operator and the operator is working on; nil if
	// there is no such request.
	underway *plan.Step
	// stages is the number of finished stages; snapshotDone is true once the snapshot of etcd was dealt with.
	stages       int
	snapshotDone bool
	// unchecked is true if the checks have to be repeated because the last observation was not checked.
	unchecked bool
}

// runLeased runs the stages while the lease is ours.
func (d *delegation) runLeased(ctx context.Context) error {
	leased, end := d.run.lock.bind(ctx)
	defer end()
	defer d.run.engine.shutdown.watch(leased)()

	if err := d.run.claimJournal(leased); err != nil {
		return err
	}

	// What was seen before the lease was taken does not tell whether the operator is still asked for anything.
	if d.observeAgain(leased) != nil {
		if err := d.lookAgain(leased); err != nil {
			return err
		}
	}

	if d.snapshot.Journal != nil {
		d.run.journal.adoptObserved(*d.snapshot.Journal)
	}

	err := d.runStages(leased)
	if err == nil {
		return nil
	}

	var failure *say.Failure
	if errors.As(err, &failure) && failure.State == "" {
		failure.State = d.stateText()
	}

	if last, observeErr := d.run.lastLook(leased); observeErr == nil && !errors.Is(err, say.ErrLeaseLost) {
		d.snapshot = last
	}

	return err
}

// lookAgain observes the cluster after a wait, which may have taken hours. The checks are repeated on what it observes.
func (d *delegation) lookAgain(ctx context.Context) error {
	bounded, cancel := d.run.engine.clock.WithTimeout(ctx, guardTimeout)
	defer cancel()

	err := d.run.engine.wait(bounded, "", "an observation of the cluster", func(ctx context.Context) (bool, string, error) {
		unseen := d.observeAgain(ctx)
		if unseen == nil {
			return true, "", nil
		}

		return false, unseen.Error(), permanentOnly(unseen)
	})

	switch {
	case ctx.Err() != nil:
		return d.run.stopped(ctx, "before the operator was asked")
	case err != nil:
		return &say.Failure{
			Summary: "Unable to observe the cluster", Seen: err.Error(), State: d.stateText(), Remedy: say.UnreachedRemedy(err), Err: err,
		}
	}

	d.unchecked = true

	return nil
}

// observeAgain observes the cluster under the lease: while the lease was waited for, the operator may have
// continued, or finished.
func (d *delegation) observeAgain(ctx context.Context) error {
	seen, err := d.run.engine.Observe(ctx)
	if err := cmp.Or(err, seen.KubernetesError); err != nil {
		return err
	}

	d.unchecked = d.underway != nil || seen.Taken.Sub(d.snapshot.Taken) >= lookEvery
	d.snapshot, d.underway = seen, nil

	if step, underway := d.run.engine.underway(ctx, seen, d.plan(), d.run.request); underway {
		d.underway = &step
	}

	return nil
}

// runStages requests one stage after the other until there is nothing left to do.
func (d *delegation) runStages(ctx context.Context) error {
	d.run.engine.emit(d.run.progress(cluster.Event{Kind: cluster.EventRunStarted}, d.plan()))

	for d.stages < maxStages {
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

		waited, err := d.ready(ctx, made)

		switch {
		case err != nil:
			return err
		case waited >= staleAfter:
			if err := d.lookAgain(ctx); err != nil {
				return err
			}

			continue
		case len(made.Steps) == 0:
			d.cleanUp(ctx)
			d.run.closeBackup(ctx)
			d.run.engine.emit(d.run.progress(cluster.Event{Kind: cluster.EventRunDone}, made))

			return nil
		}

		if err := newOperatorStage(d, made.Steps[0], made.Hops).run(ctx); err != nil {
			return err
		}

		d.stages++
	}

	return d.exhausted()
}

// exhausted returns the failure of a run that reached [maxStages].
func (d *delegation) exhausted() *say.Failure {
	return &say.Failure{
		Summary: "Unable to bring the cluster to the target through its operator",
		Seen:    fmt.Sprintf("%s was asked for %d stages of the way in this run, and the cluster is not there.", d.run.engine.operator, maxStages),
		State:   d.stateText(),
		Remedy:  "Find out who else changes its versions, then run terraform apply again.", Err: say.ErrOperator,
	}
}

func (d *delegation) plan() plan.Plan {
	return plan.Make(d.snapshot, d.run.request.Target, d.run.request.Policy)
}

// stateText says in which state the operator is left between two stages.
func (d *delegation) stateText() string {
	if d.stages == 0 {
		return "The operator is asked for nothing, and no node was disturbed."
	}

	return "What the operator was asked for so far is done, and nothing more will be asked of it."
}

// ready waits for what is required before a stage is requested, or before the end: nothing blocks, the gates hold
// and, before the first stage, a snapshot of etcd is taken. If the last observation was checked already, the checks are
// not repeated. It returns how long it has waited.
func (d *delegation) ready(ctx context.Context, made plan.Plan) (waited time.Duration, err error) {
	blocking := cluster.Blocking(made.Findings)
	if d.stages > 0 || d.unchecked {
		blocking = cluster.Blocking(d.run.engine.findDelegateProblems(ctx, d.snapshot, made, d.run.request))
	}

	switch {
	case ctx.Err() != nil:
		return 0, d.run.stopped(ctx, "before the operator was asked")
	case len(blocking) > 0:
		return 0, d.checksFailed(blocking)
	case len(made.Steps) == 0:
		return 0, nil
	}

	begun := d.run.engine.clock.Now()
	defer func() { waited = d.run.engine.clock.Now().Sub(begun) }()

	next := "The next would have been " + goalOf(made.Steps[0]) + "."

	if err := d.run.awaitResume(ctx, made); err != nil {
		return 0, d.suspendedFailure(err)
	}

	err = d.run.noMoreStarts()
	if err == nil {
		err = d.run.awaitGates(ctx, "")
	}

	switch {
	case ctx.Err() != nil:
		return 0, d.run.stopped(ctx, "before the operator was asked"+say.LastSeen(err))
	case errors.Is(err, say.ErrWindow):
		return 0, d.run.outside(err, next)
	case errors.Is(err, say.ErrDeadline):
		return 0, d.run.overtime(next)
	case err != nil:
		return 0, &say.Failure{
			Summary: "Unable to go on with the upgrade: a gate does not hold", Seen: say.Sentence(err.Error()), State: d.stateText(), Remedy: say.GateRemedy(err), Err: err,
		}
	case d.snapshotDone:
		return 0, nil
	}

	d.snapshotDone = true

	return 0, d.run.backUp(ctx, d.snapshot)
}

// suspendedFailure adds the state of the operator to the failure of a run that ends because the upgrades are
// suspended.
func (d *delegation) suspendedFailure(err error) error {
	var failure *say.Failure
	if errors.As(err, &failure) && failure.State == "" {
		failure.State = d.stateText()
	}

	return err
}

// checksFailed returns the failure of checks. Stages that were requested before are not undone.
func (d *delegation) checksFailed(blocking []cluster.Finding) error {
	if d.stages == 0 {
		return refused(d.snapshot, d.run.request.Target, blocking)
	}

	return &say.Failure{
		Summary: "Unable to go on with the upgrade", Findings: blocking, State: d.stateText(), Remedy: say.BlockedRemedy,
		Err: errors.Join(append([]error{say.ErrGuard}, say.Causes(blocking)...)...),
	}
}

// goalOf returns the goal of the stage that begins with the step.
func goalOf(step plan.Step) string { return productOf(step).Name() + " " + step.To.String() }

func productOf(step plan.Step) version.Product {
	if step.Component == "" {
		return version.Talos
	}

	return version.Kubernetes
}

// findDelegateProblems returns the findings of all checks; those that block are reasons not to request the first
// step of the plan from the operator.
func (e *Engine) findDelegateProblems(ctx context.Context, observed cluster.Observation, made plan.Plan, request Request) []cluster.Finding {
	found := e.findProblems(ctx, observed, made, request)

	// An operator cannot finish nodes that a run of ours left in the middle of their upgrades.
	for _, step := range made.Steps {
		if !step.Finish && !step.Done {
			continue
		}

		found = append(found, cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: step.Node, Attribute: "mode",
			Found:  "an upgrade of this provider left the node in the middle of its upgrade, and an operator cannot finish that",
			Remedy: "Apply with mode = \"direct\" first, which continues there.",
		})
	}

	if len(made.Steps) > 0 {
		found = append(found, beyond(observed, made.Steps[0])...)
	}

	return found
}

// beyond returns findings about nodes that run a newer version than the stage leads to: an operator moves all
// nodes to the one version that is requested, even if that is a downgrade.
func beyond(observed cluster.Observation, step plan.Step) []cluster.Finding {
	var findings []cluster.Finding

	for _, node := range observed.Managed() {
		running := version.Version{}

		switch {
		case productOf(step) == version.Kubernetes:
			for _, seen := range node.Versions {
				running = version.Highest(running, seen)
			}
		case node.Machine != nil:
			running = node.Machine.Talos
		}

		if step.To.Less(running) {
			findings = append(findings, cluster.Finding{
				Check: cluster.CheckVersions, Severity: cluster.Observed, Node: node.Name, Attribute: "mode",
				Found:  fmt.Sprintf("it runs %s %s, and the operator would take it back to %s, through which the way of the others leads", productOf(step).Name(), running, step.To),
				Remedy: "Apply with mode = \"direct\", which moves only those that are behind.",
			})
		}
	}

	return findings
}

// underway returns what the operator is working on, or about to, if that is on the path to the target. After a
// failure, the operator has to be asked again.
func (e *Engine) underway(ctx context.Context, observed cluster.Observation, made plan.Plan, request Request) (plan.Step, bool) {
	report, err := e.operator.Report(ctx)
	if err != nil || report.Hold != "" || report.Deleting {
		return plan.Step{}, false
	}

	for _, product := range products {
		said := report.Of(product)
		if said.Target == "" || said.Status == protocol.StatusFailed || !passes(made.Hops, request.Target, product, said.Target) {
			continue
		}

		if _, reached := forgotten(observed, report, product); reached {
			continue
		}

		to, err := version.Parse(said.Target)
		if err != nil {
			continue
		}

		step := plan.Step{To: to}
		if product == version.Kubernetes {
			step.Component = cluster.Kubelet
		}

		return step, true
	}

	return plan.Step{}, false
}

// passes reports whether the path to the target leads through a version of a product.
func passes(way []plan.Hop, target cluster.Target, product version.Product, through string) bool {
	if product == version.Talos && target.Talos.String() == through || product == version.Kubernetes && target.Kubernetes.String() == through {
		return true
	}

	for _, hop := range way {
		if product == version.Talos && hop.Product == version.Talos && hop.To.Talos.String() == through ||
			product == version.Kubernetes && hop.Product == version.Kubernetes && hop.To.Kubernetes.String() == through {
			return true
		}
	}

	return false
}

// permanent returns the findings that no waiting cures.
func permanent(findings []cluster.Finding) []cluster.Finding {
	var lasting []cluster.Finding

	for _, finding := range findings {
		if finding.Severity == cluster.Permanent {
			lasting = append(lasting, finding)
		}
	}

	return lasting
}

// request sends the stage's request to the operator. A request that failed is withdrawn first, so that it is made
// anew.
func (l *operatorStage) request(ctx context.Context) error {
	bounded, cancel := l.delegation.run.engine.clock.WithTimeout(ctx, askTimeout)
	defer cancel()

	// idle is since when nothing is requested of the operator.
	idle := l.delegation.run.engine.clock.Now()

	return l.delegation.run.engine.waitClosely(bounded, "", fmt.Sprintf("%s to be asked for %s", l.delegation.run.engine.operator, goalOf(l.step)), maxPoll, func(ctx context.Context) (bool, string, error) {
		report, err := l.delegation.run.engine.operator.Report(ctx)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		found, err := l.delegation.cleanUpOne(ctx, report, l.refusals)

		switch {
		case errors.As(err, new(*occupiedError)):
			return false, "", err
		case found || err != nil:
			return false, "what earlier runs left there to be taken away", permanentOnly(err)
		}

		if findings := l.refusals(report); len(findings) > 0 {
			return false, "", &occupiedError{findings}
		}

		said := report.Of(l.product)

		switch {
		case l.requested(said) && said.Status == protocol.StatusFailed && !l.asked:
			idle = l.delegation.run.engine.clock.Now()

			return false, "the failure before to be taken back", l.withdrawFailed(ctx)
		case said.Target == "" && said.Status == protocol.StatusFailed && l.delegation.run.engine.clock.Now().Sub(idle) < noticeTimeout:
			return false, "it to notice that it is asked for nothing, so that it forgets its failure", nil
		case !l.requested(said) && (report.Talos.Status.Busy() || report.Kubernetes.Status.Busy()):
			return false, fmt.Sprintf("it is at work on something else (%s%s)", said.Status, quoted(said.Message)), nil
		}

		// Ask even if an earlier run has asked: it may have been cut off between several objects. A failed call
		// may have taken effect.
		err = l.delegation.run.leased.ask(ctx, l.product, l.step.To)
		l.asked = l.asked || !errors.Is(err, errRefusedByLease)

		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		l.before, l.report, l.acknowledged = report, report, l.requested(said) && said.Status.Busy()
		l.askedAt, l.changed = l.delegation.run.engine.clock.Now(), l.delegation.run.engine.clock.Now()
		l.delegation.run.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("asked %s for %s", l.delegation.run.engine.operator, goalOf(l.step))})

		return true, "", nil
	})
}

// requested reports whether the operator is asked for what the stage asks for.
func (l *operatorStage) requested(said cluster.OperatorProduct) bool {
	return said.Target == l.step.To.String()
}

// withdrawFailed withdraws a request that failed. If that is not supported, the operator keeps trying by itself.
func (l *operatorStage) withdrawFailed(ctx context.Context) error {
	err := l.delegation.run.leased.withdraw(ctx, l.product, l.step.To)
	l.asked = err == nil || errors.Is(err, cluster.ErrUnsupported)

	if l.asked {
		return nil
	}

	return permanentOnly(err)
}

// occupiedError says that the operator may not be asked.
type occupiedError struct{ findings []cluster.Finding }

func (o *occupiedError) Error() string { return o.findings[0].String() }

func (o *occupiedError) Unwrap() error { return say.ErrOperator }

// refusals returns the reasons why the operator may not be asked: it is held or being deleted, or somebody else
// has requested something.
func (l *operatorStage) refusals(report cluster.OperatorReport) []cluster.Finding {
	findings := cluster.Blocking(l.delegation.run.engine.judgeOperator(report, nil, l.delegation.run.request))

	for _, product := range products {
		target := report.Of(product).Target
		if target == "" || product == l.product && target == l.step.To.String() || product != l.product && passes(l.path, l.delegation.run.request.Target, product, target) {
			continue
		}

		remedy := "Let it finish, or take that back. " + report.Of(product).Undo
		if cluster.IsRun(report.Hold) {
			remedy = "Either take that back, or end the hold and have the operator do it. " + report.Of(product).Undo + " " + report.Unhold
		}

		findings = append(findings, l.delegation.run.engine.operatorFinding(
			fmt.Sprintf("somebody else has asked the operator of %s to bring %s to %s, where the next stage is %s", l.delegation.run.engine.operator, product.Name(), target, goalOf(l.step)),
			remedy))
	}

	return findings
}

// operatorStage is one request to the operator: a product and a version.
type operatorStage struct {
	delegation *delegation

	step    plan.Step
	product version.Product
	// path are the hops to the target; the stage is the first one.
	path []plan.Hop
	// cordoned are the nodes that somebody had cordoned before the stage.
	cordoned map[string]bool
	// before is the report from when the operator was asked.
	before cluster.OperatorReport
	// asked is true if the operator may have been asked, and askedAt is when it was.
	asked   bool
	askedAt time.Time

	// report is the last report, and changed is when it, or the cluster, last changed.
	report  cluster.OperatorReport
	changed time.Time
	// seenRequested is true once a report contained the request, seenChanged once the report has changed since,
	// and acknowledged once the operator has shown that it knows the request.
	seenRequested, seenChanged, acknowledged bool
	// doneSince is since when the operator says that it is done; zero while it does not.
	doneSince time.Time
	// observedAt is when all nodes were last observed.
	observedAt time.Time
	// ran is what each node was seen to run in this stage, and boots are their first boot IDs.
	ran     map[string]bool
	boots   map[string]string
	problem string
}

func newOperatorStage(d *delegation, step plan.Step, way []plan.Hop) *operatorStage {
	l := &operatorStage{delegation: d, step: step, product: productOf(step), path: way, cordoned: map[string]bool{}, ran: map[string]bool{}, boots: map[string]string{}}

	for _, node := range d.snapshot.Managed() {
		if node.Kube != nil && node.Kube.Unschedulable && !node.Kube.CordonedByTalos {
			l.cordoned[node.Name] = true
		}
	}

	return l
}

// run sends the request, follows it and verifies the result. A request that fails is withdrawn, because the
// operator would retry it for as long as it stands.
func (l *operatorStage) run(ctx context.Context) error {
	if err := l.request(ctx); err != nil {
		return l.failed(ctx, err)
	}

	if err := l.follow(ctx); err != nil {
		return l.failed(ctx, err)
	}

	// An operator that does not remove the request itself would begin again.
	kept, end := l.delegation.run.engine.recordContext(ctx)
	defer end()

	if err := l.withdrawRequest(kept); err != nil && !errors.Is(err, cluster.ErrUnsupported) {
		l.delegation.run.engine.warn(fmt.Sprintf("%s still requests %s, although that is reached: %v", l.delegation.run.engine.operator, goalOf(l.step), err))
	}

	return nil
}

// follow waits until every node has been observed to run what the stage leads to. The reports of the operator
// decide when to observe, and when there is nothing left to wait for.
func (l *operatorStage) follow(ctx context.Context) error {
	what := fmt.Sprintf("the operator of %s to bring the cluster to %s", l.delegation.run.engine.operator, goalOf(l.step))

	return l.delegation.run.engine.waitClosely(ctx, "", what, pollOperator, func(ctx context.Context) (bool, string, error) {
		report, err := l.delegation.run.engine.operator.Report(ctx)
		if err != nil && !cluster.Heals(err) {
			return false, "", err
		}

		// If its API does not answer, that says nothing about the cluster.
		if err == nil {
			l.noteReport(report)

			if findings := l.refusals(report); len(findings) > 0 {
				return false, "", &occupiedError{findings}
			}
		}

		if done, failed := l.checkNodes(ctx); done || failed != nil {
			return done, "", failed
		}

		return false, l.waitingFor(), l.hopeless()
	})
}

// noteReport records a report of the operator.
func (l *operatorStage) noteReport(report cluster.OperatorReport) {
	said, before := report.Of(l.product), l.report.Of(l.product)

	if said.Message != before.Message && said.Message != "" {
		l.delegation.run.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("%s: %s", l.delegation.run.engine.operator, said.Message)})
	}

	if said.Status != before.Status || said.Message != before.Message || said.Progress != before.Progress || said.Target != before.Target {
		l.changed = l.delegation.run.engine.clock.Now()
	}

	first, gone := l.before.Of(l.product), l.seenRequested && said.Target == ""

	// A first status of idle only shows that the operator has begun to watch the object, not that it knows the
	// request.
	if first.Status == "" && said.Status == protocol.StatusIdle {
		first, l.before = said, report
	}

	l.seenRequested = l.seenRequested || l.requested(said)
	l.seenChanged = l.seenChanged || said.Status.Busy() || said.Status != first.Status || said.Message != first.Message ||
		said.Progress != first.Progress || gone
	l.acknowledged = l.acknowledged || l.seenChanged
	l.report = report

	claims := l.acknowledged && !said.Status.Busy() && (said.Status == protocol.StatusCompleted || gone)

	switch {
	case !claims:
		l.doneSince = time.Time{}
	case l.doneSince.IsZero():
		l.doneSince = l.delegation.run.engine.clock.Now()
	}
}

// checkNodes observes the nodes if there is a reason to, and reports whether the stage is done. It is not done
// while the operator is at work: it may be cleaning up.
func (l *operatorStage) checkNodes(ctx context.Context) (bool, error) {
	now := l.delegation.run.engine.clock.Now()
	if now.Sub(l.observedAt) < lookEvery && l.doneSince.IsZero() && !l.changed.After(l.observedAt) {
		return false, nil
	}

	observed, err := l.delegation.run.engine.Observe(ctx)
	if err != nil {
		return false, permanentOnly(err)
	}

	l.observedAt, l.delegation.snapshot = now, observed

	if first := len(l.ran) == 0; observed.KubernetesError == nil && l.noteRunning(observed) {
		l.changed, l.acknowledged = l.delegation.run.engine.clock.Now(), l.acknowledged || !first
	}

	l.problem = l.notReached(observed)

	return l.problem == "" && !l.report.Of(l.product).Status.Busy(), nil
}

// noteRunning notes what the nodes run, and reports whether one of them runs what it was not seen to run before in this
// stage, or has booted for the first time. Further boots are no progress: a node whose new system does not start boots
// for as long as the operator tries.
func (l *operatorStage) noteRunning(observed cluster.Observation) (progress bool) {
	note := func(words ...string) {
		seen := strings.Join(words, " ")
		progress = progress || !l.ran[seen]
		l.ran[seen] = true
	}

	for _, node := range observed.Managed() {
		if node.Machine != nil {
			note(node.Name, node.Machine.Talos.String())

			if first, known := l.boots[node.Name]; !known {
				l.boots[node.Name] = node.Machine.BootID
			} else if node.Machine.BootID != first {
				note(node.Name, "booted")
			}
		}

		for component, running := range node.Versions {
			note(node.Name, string(component), running.String())
		}
	}

	return progress
}

// waitingFor says what is being waited for.
func (l *operatorStage) waitingFor() string {
	said := l.report.Of(l.product)

	text := string(said.Status)
	if said.Progress != "" {
		text += " " + said.Progress
	}

	return strings.TrimSpace(text+quoted(said.Message)) + "; seen: " + l.problem
}

// hopeless returns why there is nothing left to wait for; nil if there is something.
func (l *operatorStage) hopeless() error {
	now, said := l.delegation.run.engine.clock.Now(), l.report.Of(l.product)

	switch {
	case l.seenChanged && said.Status == protocol.StatusFailed:
		return fmt.Errorf("%w says that it failed%s", say.ErrOperator, quoted(said.Message))
	case !l.acknowledged && now.Sub(l.askedAt) >= answerTimeout:
		return fmt.Errorf("%w did not react within %s (%s); is it running, and does it watch this object?", say.ErrOperator, answerTimeout, l.waitingFor())
	case said.Status == protocol.StatusBlocked && now.Sub(l.changed) >= answerTimeout:
		return fmt.Errorf("%w says that it is blocked%s", say.ErrOperator, quoted(said.Message))
	case !l.doneSince.IsZero() && now.Sub(l.doneSince) >= claimTimeout && now.Sub(l.changed) >= claimTimeout:
		return fmt.Errorf("%w says that it is done%s, and the cluster is not: %s", say.ErrOperator, quoted(said.Message), l.problem)
	case now.Sub(l.changed) >= l.delegation.run.request.Policy.NodeTimeout:
		return fmt.Errorf("%w made no progress within node_timeout (%s); it last said %s", say.ErrOperator, l.delegation.run.request.Policy.NodeTimeout, l.waitingFor())
	case l.delegation.run.deadlinePassed():
		return fmt.Errorf("%w: %s", say.ErrDeadline, l.waitingFor())
	default:
		return nil
	}
}

// notReached says what shows that the cluster is not where the stage leads to, by our own observation alone;
// empty if it is there. Nodes that were cordoned before the stage may stay cordoned.
func (l *operatorStage) notReached(observed cluster.Observation) string {
	if observed.KubernetesError != nil {
		return fmt.Sprintf("the Kubernetes API does not answer: %v", observed.KubernetesError)
	}

	target := cluster.Target{Talos: l.step.To}
	if l.product == version.Kubernetes {
		target = cluster.Target{Kubernetes: l.step.To}
	}

	made := plan.Make(observed, target, l.delegation.run.request.Policy)
	missing := slices.Clone(made.Elsewhere)

	for index := range made.Steps {
		missing = append(missing, made.Steps[index].Node)
	}

	slices.Sort(missing)

	if missing = slices.Compact(missing); len(missing) > 0 {
		return fmt.Sprintf("not at %s: %s", goalOf(l.step), strings.Join(missing, ", "))
	}

	for _, node := range observed.Managed() {
		if wrong := ailment(observed, node); wrong != "" {
			return node.Name + ": " + wrong
		}

		if node.Kube != nil && node.Kube.Unschedulable && !l.cordoned[node.Name] {
			return node.Name + " is cordoned"
		}
	}

	return ""
}

// withdrawRequest withdraws the request of the stage. It needs no lease, so the caller must not call it if
// another run has taken the lease.
func (l *operatorStage) withdrawRequest(ctx context.Context) error {
	bounded, cancel := l.delegation.run.engine.clock.WithTimeout(ctx, askTimeout)
	defer cancel()

	return l.delegation.run.engine.waitClosely(bounded, "", goalOf(l.step)+" to be taken back", minPoll, func(ctx context.Context) (bool, string, error) {
		err := l.delegation.run.engine.operator.Withdraw(ctx, l.product, l.step.To) //nolint:forbidigo // also where somebody has freed the lease
		if err != nil && cluster.Heals(err) {
			return false, err.Error(), nil
		}

		return err == nil, "", err
	})
}

// failed returns the failure of a stage, after withdrawing the request if that is possible.
func (l *operatorStage) failed(ctx context.Context, err error) error {
	cause := cluster.Ended(ctx)
	if lost := errors.Join(err, cause); errors.Is(lost, say.ErrLeaseLost) && !errors.Is(lost, say.ErrLeaseFreed) {
		// The request is up to the other run now.
		failure := l.delegation.run.stopped(ctx, "while the operator was at work")
		failure.State = strings.TrimSpace(fmt.Sprintf("%s may still request %s; whoever holds the lease now decides about that. %s", l.delegation.run.engine.operator, goalOf(l.step), l.report.Of(l.product).Undo))

		return failure
	}

	failure := &say.Failure{
		Summary: fmt.Sprintf("Unable to bring the cluster to %s through %s", goalOf(l.step), l.delegation.run.engine.operator),
		Seen:    say.Sentence(err.Error()), State: l.withdrawAndDescribe(ctx), Remedy: l.remedy(err), Err: err,
	}

	var occupied *occupiedError

	switch {
	case errors.Is(cause, say.ErrLeaseLost):
		failure.Summary, failure.Err = "Unable to go on with the upgrade", cause
		failure.Seen, failure.Remedy = say.Sentence(cause.Error()), say.LostRemedy(cause)
	case ctx.Err() != nil:
		failure.Summary, failure.Err = "The upgrade was cancelled", cause
		failure.Seen, failure.Remedy = "It was interrupted while "+l.delegation.run.engine.operator.String()+" was followed.", say.ResumeRemedy
	case errors.As(err, &occupied):
		failure.Seen, failure.Findings = "", occupied.findings
	case errors.Is(err, say.ErrDeadline):
		failure.Summary = "Unable to finish the upgrade in the time that timeouts allow"
	}

	if names := l.report.FailedNodes; len(names) > 0 && l.acknowledged {
		failure.Node = names[0]
		failure.State += " By its own account it failed at " + strings.Join(names, ", ") + "."
	}

	return failure
}

// withdrawAndDescribe withdraws the request, and says in which state the operator is left.
func (l *operatorStage) withdrawAndDescribe(ctx context.Context) string {
	if !l.asked {
		return "Nothing was asked of the operator."
	}

	kept, end := l.delegation.run.engine.cleanupContext(ctx)
	defer end()

	err := l.withdrawRequest(kept)

	switch {
	case errors.Is(err, cluster.ErrUnsupported):
		return fmt.Sprintf("The request cannot be taken back: the operator keeps trying as long as %s says %s.", l.delegation.run.engine.operator, goalOf(l.step))
	case err != nil:
		return strings.TrimSpace(say.Sentence(fmt.Sprintf("%s may still request %s, and its operator keeps trying until that is removed: %v", l.delegation.run.engine.operator, goalOf(l.step), err)) +
			" " + l.report.Of(l.product).Undo)
	default:
		return "The request was taken back, so that the operator does not start again; an upgrade that it has begun may go on to the last node."
	}
}

// remedy says what a person can do about a stage that failed.
func (l *operatorStage) remedy(err error) string {
	switch {
	case errors.Is(err, say.ErrDeadline):
		return "Run terraform apply again to continue, or raise timeouts.create and timeouts.update."
	case errors.Is(err, cluster.ErrDenied), errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrNotFound):
		return unreadRemedy(err) + " Then run terraform apply again."
	case !l.acknowledged && l.asked:
		return "Look at the operator (its logs, and whether it watches this object's namespace), then run terraform apply again; or apply with mode = \"direct\"."
	default:
		return "Look at the logs of the operator and at the nodes, then run terraform apply again: it asks anew."
	}
}

// forgotten returns the version that is requested of the operator for a product although every node runs it and
// the operator is not at work: the operator, or a run that died, did not remove the request.
func forgotten(observed cluster.Observation, report cluster.OperatorReport, product version.Product) (version.Version, bool) {
	said := report.Of(product)

	to, err := version.Parse(said.Target)
	if said.Target == "" || err != nil || said.Status.Busy() || observed.KubernetesError != nil {
		return version.Version{}, false
	}

	lowest, highest := observed.TalosVersions()
	if product == version.Kubernetes {
		lowest, highest = observed.KubernetesVersions()
	}

	return to, lowest.Equal(to) && highest.Equal(to)
}

// operatorNeedsCleanup reports whether a run that died left something on the object, although there is nothing to
// do in the cluster.
func (e *Engine) operatorNeedsCleanup(ctx context.Context, observed cluster.Observation) bool {
	report, err := e.operator.Report(ctx)
	if err != nil {
		return false
	}

	for _, product := range products {
		if _, left := forgotten(observed, report, product); left {
			return true
		}
	}

	return cluster.IsRun(report.Hold)
}

// cleanUp removes all that is left on the object, once the cluster is at the target.
func (d *delegation) cleanUp(ctx context.Context) {
	bounded, cancel := d.run.engine.clock.WithTimeout(ctx, askTimeout)
	defer cancel()

	err := d.run.engine.waitClosely(bounded, "", fmt.Sprintf("%s to be tidied up", d.run.engine.operator), pollOperator, func(ctx context.Context) (bool, string, error) {
		report, err := d.run.engine.operator.Report(ctx)
		found := false

		if err == nil {
			// This run has nothing left to ask for, so that somebody else's request may begin.
			found, err = d.cleanUpOne(ctx, report, func(cluster.OperatorReport) []cluster.Finding { return nil })
		}

		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		return !found, "more may be left on it", nil
	})
	if err != nil {
		d.run.engine.warn(fmt.Sprintf("what earlier runs left on %s could not be taken away: %v", d.run.engine.operator, err))
	}
}

// cleanUpOne removes one thing that was left on the object, and reports whether there was one: a request that has been
// fulfilled, or the hold of a run that died (this run has the lease, so no other run is alive). The hold stays if
// something is refused: without it, the operator would begin with that.
func (d *delegation) cleanUpOne(
	ctx context.Context, report cluster.OperatorReport, refused func(cluster.OperatorReport) []cluster.Finding,
) (found bool, err error) {
	for _, product := range products {
		to, left := forgotten(d.snapshot, report, product)
		if !left {
			continue
		}

		err := d.run.leased.withdraw(ctx, product, to)
		if !errors.Is(err, cluster.ErrUnsupported) {
			return true, err
		}
	}

	if !cluster.IsRun(report.Hold) {
		return false, nil
	}

	if findings := refused(report); len(findings) > 0 {
		return false, &occupiedError{findings}
	}

	return true, d.run.leased.releaseHold(ctx, report.Hold)
}
