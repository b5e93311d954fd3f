// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// rollout starts the upgrades of a run and waits for them. It is used by one goroutine only; the upgrades do not
// access it.
type rollout struct {
	run *run

	snapshot cluster.Observation
	made     plan.Plan
	// running are the steps whose upgrades have begun and not ended.
	running []plan.Step
	ended   chan result
	// begun is true once the first plan was accepted, imagesReady once the preparations (gates, snapshot, images)
	// were started, and moved once an upgrade has begun.
	begun, imagesReady, moved bool
	// completed counts the upgrades that ended well, so that a node that reports success and still does not run
	// its version cannot make the run loop.
	completed map[stepKey]int
	// failure is why nothing is started any more.
	failure error

	// pulling is the context in which nodes pull ahead of their turn.
	pulling     context.Context //nolint:containedctx // it ends with the first failure of the run
	stopPulling context.CancelFunc

	blockage blockage
	// everywhere is true if the last observation was of the whole cluster, lookedEverywhere is when the whole
	// cluster was last observed, and finishing is true if the next observation has to be of the whole cluster.
	everywhere, finishing bool
	lookedEverywhere      time.Time
	// claim is the node that was started last. A write to its Node object proves that the observed nodes are up
	// to date.
	claim string
	// departed are the nodes named by the policy that have left.
	departed map[string]bool
}

// stepKey identifies an upgrade of one node, or of one of its components, to one version.
type stepKey struct{ node, component, to string }

func keyOf(step plan.Step) stepKey {
	return stepKey{node: step.Node, component: string(step.Component), to: step.To.String()}
}

func newRollout(r *run, observed cluster.Observation) *rollout {
	return &rollout{
		run: r, snapshot: observed, ended: make(chan result), completed: map[stepKey]int{}, departed: map[string]bool{},
	}
}

// forEver waits for an upgrade to end, however long that takes.
const forEver time.Duration = -1

// upgradeAll begins the run and moves every node that has to move. A new plan is made before each start, from a
// new observation, because nodes join, vanish and change by themselves. No upgrade is left when it returns.
func (s *rollout) upgradeAll(ctx context.Context) error {
	pulling, stopPulling := context.WithCancel(ctx)
	s.pulling, s.stopPulling = pulling, stopPulling

	// No pull outlives the run.
	defer s.run.ahead.group.Wait()
	defer stopPulling()

	done, err := false, s.firstObservation(ctx)

	for err == nil && !done && ctx.Err() == nil {
		done, err = s.advance(ctx)
	}

	s.fail(err)

	for len(s.running) > 0 {
		s.end(<-s.ended)
	}

	switch {
	case s.failure != nil:
	case done:
		s.run.closeBackup(ctx)
		s.run.engine.emit(s.run.progress(cluster.Event{Kind: cluster.EventRunDone}, s.made))
	default:
		// No upgrade was interrupted: otherwise there would be a failure.
		s.failure = s.run.stopped(ctx, "between two nodes")
	}

	return s.failure
}

// advance starts what may start now and waits until something has changed. It is done if nothing is left to do.
func (s *rollout) advance(ctx context.Context) (done bool, err error) {
	if ready, err := s.observeAndPlan(ctx); err != nil || !ready {
		return false, err
	}

	s.run.ahead.prepare(s.run.parallelPulls(s.made))

	if len(s.running) == 0 && len(s.made.Steps) == 0 {
		// The end of the run requires an observation of the whole cluster.
		s.finishing = true

		return s.everywhere, nil
	}

	s.finishing = false

	suspended, err := s.run.suspended(ctx, s.made)
	if err != nil {
		return false, s.untouched(err)
	}

	if len(s.running) == 0 && !suspended {
		if err := s.prepare(ctx); err != nil || ctx.Err() != nil {
			return false, err
		}
	}

	next := s.made.Startable(s.snapshot, s.running)
	if suspended {
		next = begun(next)

		s.run.ahead.stop()
	} else if s.imagesReady {
		s.run.ahead.begin(s.pulling, s.snapshot, s.made, slices.Concat(s.running, next))
	}

	switch {
	case suspended && len(next) == 0 && len(s.running) == 0:
		return false, s.untouched(s.run.awaitResume(ctx, s.made))
	case suspended && len(next) == 0:
		return false, s.await(ctx, lookAgain)
	}

	if len(next) == 0 && len(s.running) == 0 {
		return false, s.blocked(ctx, s.idleReasons())
	}

	s.blockage = blockage{}

	if len(next) == 0 || s.run.shared.anyDoubtful() {
		return false, s.await(ctx, s.patience())
	}

	return false, s.start(ctx, next)
}

// start begins the upgrades of the steps, unless the run has to wait or stop first, and waits for something to
// change.
func (s *rollout) start(ctx context.Context, next []plan.Step) error {
	for _, step := range next {
		if err := s.checkStart(step); err != nil {
			return err
		}
	}

	// Manifests take no node out of service, so nothing has to settle before them.
	if next[0].Component != cluster.Manifests {
		waits := false

		s.run.shared.settling(func(w *soak) {
			w.judgeAll(s.snapshot, s.made, s.running, s.run.engine.clock.Now())
			waits = w.waiting()
		})

		if waits {
			return s.awaitSoak(ctx, next[0])
		}
	}

	if next[0].Component == cluster.Manifests {
		before := s.run.engine.clock.Now()

		if err := s.run.pullProxies(ctx, s.snapshot, s.made); err != nil {
			return err
		}

		if s.run.engine.clock.Now().Sub(before) > lookAgain {
			// Meanwhile the window may have closed, or somebody may have suspended the upgrades.
			suspended, err := s.run.suspended(ctx, s.made)
			if err != nil || suspended {
				return s.untouched(err)
			}

			if err := s.checkStart(next[0]); err != nil {
				return err
			}
		}
	}

	if err := s.run.manifestsDue(ctx, s.made, next[0]); err != nil {
		return err
	}

	for _, step := range next {
		s.run.engine.emit(s.run.progress(cluster.Event{Kind: cluster.EventNodeStarted, Node: step.Node, Component: step.Component, To: step.To, Returns: step.Done}, s.made))
		s.running = append(s.running, step)
		s.moved, s.claim = true, cmp.Or(step.Node, s.claim)

		stepCtx, end := s.run.startContext(ctx, step)

		go func() {
			ready, err := s.runStep(stepCtx, step)
			if cause := cluster.Ended(stepCtx); errors.Is(cause, permit.ErrStopped) {
				err = cause
			}

			s.ended <- result{step: step, ready: ready, err: err, release: end}
		}()
	}

	return s.await(ctx, s.patience())
}

// awaitSoak waits until the nodes that were moved have stayed healthy for long enough, an upgrade ends or ctx has
// ended. It fails if one of them takes too long, or if next may not be started any more. Of the workers, only those
// that still have to stay healthy are asked.
func (s *rollout) awaitSoak(ctx context.Context, next plan.Step) error {
	announced := time.Time{}
	others := len(s.running)

	for len(s.running) == others && ctx.Err() == nil {
		now, canaries := s.run.engine.clock.Now(), s.run.policy().Canaries()

		var waits soakState

		s.run.shared.settling(func(w *soak) { waits = w.state(now, canaries) })

		switch {
		case !waits.waiting:
			return nil
		case waits.overdue != nil:
			return s.soakFailure(waits.late, waits.overdue)
		}

		if err := s.checkStart(next); err != nil {
			return err
		}

		if now.Sub(announced) >= announceEvery {
			announced = now
			s.run.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Node: next.Node, Text: next.Node + " waits for " + waits.text})
		}

		if err := s.await(ctx, min(waits.remaining, maxPoll)); err != nil {
			return err
		}

		observed, err := s.run.observe(ctx, inquiry{claim: next.Node, etcd: true, machines: func(node cluster.Node) bool {
			return node.Role == cluster.ControlPlane || s.run.shared.settles(node.Name)
		}})

		s.run.shared.settling(func(w *soak) {
			if now := s.run.engine.clock.Now(); err != nil {
				w.suspectAll(err, now)
			} else {
				w.judge(observed, now)
			}
		})
	}

	return nil
}

// soakFailure returns the failure of a run in which a node did not stay healthy.
func (s *rollout) soakFailure(name string, node *soakingNode) *say.Failure {
	failure := &say.Failure{
		Summary: fmt.Sprintf("Unable to go on: node %s did not stay healthy", name), Node: name,
		Seen: fmt.Sprintf("It was to stay healthy for %s before the next node is disturbed, and within %s it did not. Last seen: %s.",
			s.run.request.Policy.Settle, s.run.request.Policy.Settle+guardTimeout, node.ails),
		State:  "The node runs its new version.",
		Remedy: "Look at the node (kubectl describe node, talosctl health). When it is healthy, run terraform apply again.",
		Err:    say.ErrUnsettled,
	}

	if node.ails == "" {
		failure.Seen = fmt.Sprintf("It was to stay healthy for %s before the next node is disturbed, and within %s it became unhealthy again and again.",
			s.run.request.Policy.Settle, s.run.request.Policy.Settle+guardTimeout)
	}

	if slices.Contains(s.run.policy().Canaries(), name) {
		failure.State += " " + say.CanaryState
	}

	return failure
}

// startContext returns the context of an upgrade, and the function that releases it. If no further upgrade may begin,
// the context ends, unless the upgrade has disturbed its node or finishes what an earlier run began.
func (r *run) startContext(ctx context.Context, step plan.Step) (stepCtx context.Context, end context.CancelFunc) {
	stepCtx, cancel := context.WithCancelCause(ctx)
	entry, found := r.journal.entry(step.Key)

	r.engine.facts.Move(step.Node, true)

	if !step.Finish && !step.Done && !(found && entry.Open()) {
		r.shared.mayStandDown(step.Node, cancel)
	}

	return stepCtx, func() {
		r.shared.forget(step.Node)
		r.engine.facts.Move(step.Node, false)
		cancel(nil)
	}
}

// runStep carries out a step: the upgrade of a node or of one of its components, or the sync of the manifests.
func (s *rollout) runStep(ctx context.Context, step plan.Step) (ready time.Time, err error) {
	switch step.Component {
	case "":
		return s.run.upgradeNode(ctx, step)
	case cluster.Manifests:
		return ready, s.run.sync(ctx, step)
	default:
		return s.run.upgradeComponent(ctx, step)
	}
}

// patience returns how long to wait for an upgrade to end before looking for something else to start.
func (s *rollout) patience() time.Duration {
	waiting := slices.ContainsFunc(s.made.Steps, func(step plan.Step) bool { return !s.inProgress(step.Node) })
	alone := slices.ContainsFunc(s.running, func(step plan.Step) bool { return !step.Parallel() })
	most := s.made.Budget

	if len(s.running) > 0 && s.running[0].Component != "" {
		most = s.made.KubeletBudget
	}

	if !waiting || alone || len(s.running) >= max(most, 1) {
		return forEver
	}

	return lookAgain
}

func (s *rollout) inProgress(node string) bool {
	return slices.ContainsFunc(s.running, func(step plan.Step) bool { return step.Node == node })
}

// await waits until an upgrade ends, the time is up or ctx has ended. It returns the failure of the run, if any.
func (s *rollout) await(ctx context.Context, most time.Duration) error {
	timing, cancel := context.WithCancel(ctx)
	defer cancel()

	var timer chan struct{}

	if most != forEver {
		timer = make(chan struct{})

		go func() {
			defer close(timer)

			_ = s.run.engine.clock.Sleep(timing, most)
		}()
	}

	select {
	case over := <-s.ended:
		s.end(over)
		s.endOthers()
	case <-timer:
		timer = nil
	case <-ctx.Done():
	}

	cancel()

	if timer != nil {
		<-timer
	}

	return s.failure
}

// endOthers handles the upgrades that ended at the same time, so that one observation serves them all.
func (s *rollout) endOthers() {
	for {
		select {
		case over := <-s.ended:
			s.end(over)
		default:
			return
		}
	}
}

// maxUpgrades allows one upgrade to finish what an earlier run began, one for the version, and one more in case
// the node did not answer when its step was planned.
const maxUpgrades = 3

// checkStart refuses to start another upgrade if the time for the run is used up or the window has closed, or if
// this node was upgraded too often already.
func (s *rollout) checkStart(step plan.Step) error {
	if s.completed[keyOf(step)] >= maxUpgrades {
		return neverArrives(step)
	}

	if err := s.run.windowClosed(); err != nil {
		return s.run.outside(err, "The next would have been "+nameOf(step)+".")
	}

	if !s.run.deadlinePassed() {
		return nil
	}

	return s.run.overtime(fmt.Sprintf("After %s the next would have been %s.", s.run.engine.clock.Now().Sub(s.run.since).Round(time.Second), nameOf(step)))
}

// nameOf returns what a step moves, for people.
func nameOf(step plan.Step) string {
	switch step.Component {
	case "":
		return step.Node
	case cluster.Manifests:
		return "the bootstrap manifests"
	default:
		return fmt.Sprintf("%s on %s", step.Component, step.Node)
	}
}

func neverArrives(step plan.Step) *say.Failure {
	failure := &say.Failure{
		Summary: fmt.Sprintf("Unable to upgrade node %s to Talos %s", step.Node, step.To), Node: step.Node, Component: step.Component,
		Seen:   fmt.Sprintf("The node was upgraded to this version %d times in this run, and now runs Talos %s.", maxUpgrades, step.From),
		State:  "Somebody or something else changes this node.",
		Remedy: "Find out who does, then run terraform apply again.",
	}

	if step.Component != "" {
		failure.Summary = fmt.Sprintf("Unable to bring %s to Kubernetes %s", nameOf(step), step.To)
		failure.Seen = fmt.Sprintf("It was changed %d times in this run, and still does not run that version.", maxUpgrades)
		failure.State = "Somebody or something else changes it."
	}

	return failure
}

// idleReasons says why nothing may start although no upgrade is in progress.
func (s *rollout) idleReasons() []cluster.Finding {
	var away []string

	for _, node := range s.snapshot.Workers() {
		if !node.Available() {
			away = append(away, node.Name)
		}
	}

	found := "the plan has steps, and none of them may start now"
	if len(away) > 0 {
		found = fmt.Sprintf("%d workers may be unavailable at a time, and these are not Ready or cordoned: %v", s.made.Budget, away)
	}

	return rule.NewFinding(rule.CheckBudget, "", found, rule.BudgetRemedy(s.snapshot, "max_unavailable"), nil)
}

// firstObservation observes under the lease until there is a plan. If findings block it, that is an error at once.
// Unless the upgrades are suspended, the preparations are made.
func (s *rollout) firstObservation(ctx context.Context) error {
	for !s.begun {
		ready, err := s.observeAndPlan(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}

		s.begun = ready
	}

	s.run.engine.emit(s.run.progress(cluster.Event{Kind: cluster.EventRunStarted}, s.made))

	if suspended, err := s.run.suspended(ctx, s.made); err != nil || suspended {
		return s.untouched(err)
	}

	return s.prepare(ctx)
}

// untouched adds to a failure that nothing was moved, if that is so. After the preparations there may be a
// snapshot, and images on the nodes.
func (s *rollout) untouched(err error) error {
	var failure *say.Failure
	if s.moved || !errors.As(err, &failure) {
		return err
	}

	failure.State = "Nothing was touched."
	if s.imagesReady {
		failure.State = "No node was disturbed."
	}

	return say.Undisturbed(failure)
}

// prepare does, once, what comes before anything is moved: the gates, the snapshot and the images. Nodes that
// only return to service need none of it.
func (s *rollout) prepare(ctx context.Context) error {
	if s.imagesReady || !slices.ContainsFunc(s.made.Steps, func(step plan.Step) bool { return !step.Done }) {
		return nil
	}

	s.imagesReady = true

	// A node that is out of service may be the reason why a gate does not hold, and only its own upgrade brings
	// it back.
	if !slices.ContainsFunc(s.made.Steps, func(step plan.Step) bool { return step.Finish }) {
		if err := s.run.awaitGates(ctx, ""); err != nil {
			return s.gateFailure(ctx, err)
		}
	}

	if err := s.run.backUp(ctx, s.snapshot); err != nil {
		return err
	}

	err := s.run.prepareImages(ctx, s.snapshot, s.made)
	if ctx.Err() != nil {
		return s.untouched(err)
	}

	return err
}

// blockage is what keeps a run from starting anything.
type blockage struct {
	// since is when it began, without a break; zero if nothing blocks. announced is when it was last announced.
	since, announced time.Time
	pause            time.Duration
	// hesitate is true after an upgrade yielded or stood down: the next plan is made a moment later.
	hesitate bool
}

// observeAndPlan observes and plans, and reports whether something may be started. If not, it has waited a little,
// unless ctx has ended. If an observation fails for a reason that may pass, it is repeated for some time. Findings
// that block are an error at once before the run has begun. Later, they are an error if they do not pass in time,
// as nodes may need after a reboot. Upgrades in progress continue.
func (s *rollout) observeAndPlan(ctx context.Context) (ready bool, err error) {
	if s.blockage.hesitate {
		s.blockage.hesitate = false

		return false, s.await(ctx, maxPoll)
	}

	// The caller checks whether the context has ended.
	observed, err := s.look(ctx)
	if ctx.Err() != nil {
		return false, nil
	}

	if err != nil {
		if !cluster.Heals(err) {
			return false, s.unobserved(err)
		}

		return false, s.waitOut(ctx, err.Error(), func() error { return s.unobserved(err) })
	}

	s.snapshot = observed
	s.made = s.unrepeated(s.run.planAgain(observed, s.presentPolicy(observed)))
	s.run.journal.setNodes(observed.Nodes)
	s.run.engine.tell(s.made.Findings)

	// Upgrades in progress write it, and know more than an observation.
	if observed.Journal != nil && len(s.running) == 0 {
		s.run.journal.adoptObserved(*observed.Journal)
	}

	// A node that this run is moving may be down.
	blocking := slices.DeleteFunc(cluster.Blocking(s.made.Findings), func(f cluster.Finding) bool {
		return f.Severity == cluster.Observed && f.Node != "" && s.inProgress(f.Node)
	})

	if len(blocking) > 0 {
		return false, s.blocked(ctx, blocking)
	}

	return true, nil
}

// lookEverywhereEvery is how often a run observes the whole cluster.
const lookEverywhereEvery = 30 * time.Minute

// look observes the whole cluster when the run begins, before it ends and every [lookEverywhereEvery], and
// otherwise only what may have changed.
func (s *rollout) look(ctx context.Context) (cluster.Observation, error) {
	now := s.run.engine.clock.Now()

	s.everywhere = !s.begun || s.finishing || now.Sub(s.lookedEverywhere) >= lookEverywhereEvery
	if s.everywhere {
		observed, err := s.run.engine.Observe(ctx)
		if err == nil {
			s.lookedEverywhere = now
		}

		return observed, err
	}

	observed, err := s.run.observe(ctx, inquiry{
		claim: s.claim, others: true, etcd: true, age: planAge,
		machines: func(node cluster.Node) bool { return runsControlPlane(node) || s.run.shared.settles(node.Name) },
	})

	return observed, err
}

// blocked waits a little for blocking findings to pass. It fails if the run has not begun, if waiting does not help
// or if it has taken too long.
func (s *rollout) blocked(ctx context.Context, blocking []cluster.Finding) error {
	refuse := func() error {
		failure := say.Blocked(s.run.request.Target, blocking)
		if s.moved {
			// The state of the cluster is added when all upgrades have ended.
			failure.State = ""
			failure.Remedy = say.ResumeRemedy
			failure.Err = errors.Join(append([]error{say.ErrGuard}, say.Causes(blocking)...)...)
		}

		return failure
	}

	if permit.Fatal(blocking) != nil || hasPermanent(blocking) || !s.begun {
		return refuse()
	}

	return s.waitOut(ctx, blocking[0].String(), refuse)
}

// waitOut waits a little for an obstacle to pass, or gives up if it has been there for too long.
func (s *rollout) waitOut(ctx context.Context, seen string, giveUp func() error) error {
	now := s.run.engine.clock.Now()
	if s.blockage.since.IsZero() {
		s.blockage = blockage{since: now, announced: now, pause: minPoll}
	}

	if now.Sub(s.blockage.since) >= guardTimeout {
		return giveUp()
	}

	if now.Sub(s.blockage.announced) >= announceEvery {
		s.blockage.announced = now
		s.run.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Text: "the cluster to be ready for the next node: " + seen})
	}

	pause := s.blockage.pause
	s.blockage.pause = min(pause+pause/2, maxPoll)

	return s.await(ctx, pause)
}

func (s *rollout) unobserved(err error) error {
	return &say.Failure{
		Summary: "Unable to observe the cluster", Seen: err.Error(), Remedy: say.UnreachedRemedy(err), Err: err,
	}
}

// result is the result of an upgrade that ended.
type result struct {
	step plan.Step
	// ready is the last transition of the node's Ready condition.
	ready time.Time
	err   error
	// release releases what the upgrade was started with.
	release context.CancelFunc
}

// end handles an upgrade that has ended.
func (s *rollout) end(over result) {
	s.running = slices.DeleteFunc(s.running, func(step plan.Step) bool { return step.Node == over.step.Node && step.Component == over.step.Component })

	// Other upgrades may begin after the release. If this upgrade failed, s.fail comes before that.
	defer over.release()

	if over.err != nil {
		s.run.engine.emit(stoppedEvent(over))
		s.run.engine.facts.Forget(over.step.Address)
	}

	if over.step.Component == cluster.Proxy || over.step.Component == cluster.Manifests {
		s.run.engine.facts.ListProxies(nil)
	}

	switch {
	case over.err == nil:
		s.completed[keyOf(over.step)]++
		// A node whose kubelet was replaced has to stay healthy from now on. If its Talos was moved, the upgrade has
		// recorded that already.
		if over.step.Component == cluster.Kubelet {
			s.run.shared.settling(func(w *soak) { w.watch(over.step, over.ready, s.run.engine.clock.Now()) })
		}
	case errors.Is(over.err, permit.ErrYield):
		s.run.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Node: over.step.Node, Text: fmt.Sprintf("%s has to wait: %v", over.step.Node, over.err)})
		s.blockage.hesitate = true
	case errors.Is(over.err, permit.ErrStopped):
		s.run.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Node: over.step.Node, Text: fmt.Sprintf("%s was left as it is: %v", over.step.Node, over.err)})
		s.blockage.hesitate = true
	default:
		s.fail(over.err)
	}
}

// stoppedEvent returns the event about an upgrade that ended with an error.
func stoppedEvent(over result) cluster.Event {
	event := cluster.Event{Kind: cluster.EventNodeStopped, Node: over.step.Node, Component: over.step.Component, Text: over.err.Error()}

	var failure *say.Failure
	if errors.As(over.err, &failure) {
		event.Text, event.Err = failure.Summary, over.err
	}

	return event
}

// fail keeps the first failure, and ends the upgrades that have not disturbed their nodes and the pulls ahead of
// their turn. Later failures, of upgrades that were still in progress, are added to the first as findings.
func (s *rollout) fail(err error) {
	var first, other *say.Failure

	switch {
	case err == nil || err == s.failure: //nolint:errorlint // it is the very same one
		return
	case s.failure == nil:
		s.failure = err
		s.run.shared.stopUntouched()
		s.stopPulling()

		return
	case !errors.As(s.failure, &first) || !errors.As(err, &other):
		s.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Text: err.Error(), Err: err})

		return
	}

	s.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: other.Node, Text: other.Summary + ": " + other.Seen, Err: err})

	first.Excerpts = append(first.Excerpts, other.Excerpts...)
	first.Findings = append(first.Findings, cluster.Finding{
		Check: say.CheckNodeUpgrade, Severity: cluster.Observed, Node: other.Node, Err: err,
		Found:  foundBeside(other),
		Remedy: other.State + " " + other.Remedy,
	})
}

// foundBeside says what became of an upgrade other than the one that a failure is about.
func foundBeside(other *say.Failure) string {
	seen := strings.TrimSuffix(other.Seen, ".")
	if what, cut := strings.CutPrefix(seen, say.InterruptedPrefix); cut {
		return "its upgrade was running at the same time and was interrupted, " + what
	}

	return "its upgrade was running at the same time and failed too: " + seen
}

// presentPolicy returns the policy without the nodes that have left since the run began. Their names were correct
// then, or the run would not have begun. So they are no mistake in the configuration, and the run goes on.
func (s *rollout) presentPolicy(observed cluster.Observation) cluster.Policy {
	asked := s.run.policy()
	if !s.begun || observed.KubernetesError != nil || observed.DiscoveryError != nil {
		return asked
	}

	there := make(map[string]bool, len(observed.Nodes)+len(observed.Foreign))
	for _, node := range observed.Nodes {
		there[node.Name] = !node.Left()
	}

	for _, name := range observed.Foreign {
		there[name] = true
	}

	for _, node := range observed.Stale {
		there[node.Name] = true
	}

	asked.Canary = slices.DeleteFunc(slices.Clone(asked.Canary), func(name string) bool { return s.hasLeft(there, name) })
	asked.Hold = present(s, there, asked.Hold)
	asked.Images = present(s, there, asked.Images)
	asked.Retry = present(s, there, asked.Retry)

	return asked
}

// present returns the entries of the nodes that have not left.
func present[V any](s *rollout, there map[string]bool, entries map[string]V) map[string]V {
	kept := maps.Clone(entries)

	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if s.hasLeft(there, name) {
			delete(kept, name)
		}
	}

	return kept
}

// hasLeft reports whether a node that the policy names no longer exists, and warns about it the first time.
func (s *rollout) hasLeft(there map[string]bool, name string) bool {
	if there[name] {
		return false
	}

	if !s.departed[name] {
		s.departed[name] = true
		s.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: name, Text: fmt.Sprintf(
			"%s, which canary or node_overrides names, has left the cluster; the run goes on without it", name)})
	}

	return true
}

// gateFailure puts the failure of a gate before the roll into words.
func (s *rollout) gateFailure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return say.Undisturbed(s.run.stopped(ctx, "while the gates were waited for; no node was disturbed"+say.LastSeen(err)))
	case errors.Is(err, say.ErrWindow):
		return say.Undisturbed(s.run.outside(err, "No node was disturbed while the gates were waited for."))
	case errors.Is(err, say.ErrDeadline):
		return say.Undisturbed(s.run.overtime("No node was disturbed while the gates were waited for. " + say.Sentence(err.Error())))
	}

	return say.Undisturbed(&say.Failure{
		Summary: "Unable to begin the upgrade: a gate does not hold", Seen: err.Error() + ".",
		State: "No node was disturbed.", Remedy: say.GateRemedy(err), Err: err,
	})
}

// unrepeated drops a sync that this run has already done if the policy does not wait for its rollout. Until the pods
// of kube-proxy have followed, every new plan contains that sync again.
func (s *rollout) unrepeated(made plan.Plan) plan.Plan {
	if s.run.request.Policy.Kubernetes.Manifests.Timeout > 0 || len(made.Steps) == 0 {
		return made
	}

	// If a sync is due again, something has moved since.
	due := s.snapshot.Journal != nil && s.snapshot.Journal.Manifests != nil

	if first := made.Steps[0]; first.Component == cluster.Manifests && s.completed[keyOf(first)] > 0 && !due {
		made.Steps = made.Steps[1:]
		made.Kubernetes.Steps--
	}

	return made
}
