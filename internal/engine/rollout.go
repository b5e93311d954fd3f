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

// rollout starts the upgrades of a run and waits for them. One goroutine has it
// to itself; the upgrades know nothing of it.
type rollout struct {
	run *run

	snapshot cluster.Observation
	made     plan.Plan
	// running are the steps whose upgrades have begun and not ended.
	running []plan.Step
	ended   chan result
	// begun tells that the cluster was found fit to begin, prepared that what
	// comes before anything is moved was done, moved that an upgrade ever began.
	begun, imagesReady, moved bool
	// completed counts those that ended well, so that a node which claims success
	// and still is not at its version cannot make the run go round.
	completed map[stepKey]int
	// failure is why nothing starts any more.
	failure error

	// pulling is the context in which nodes pull ahead of their turn.
	pulling     context.Context //nolint:containedctx // it ends with the first failure of the run
	stopPulling context.CancelFunc

	blockage blockage
	// everywhere tells that the last look was at the whole cluster, lookedEverywhere is
	// when there was one, and finishing that the next one has to be.
	everywhere, finishing bool
	lookedEverywhere      time.Time
	// claim is the node that was started last: what is known of the nodes is proven on it.
	claim string
	// departed are the nodes, of those that the policy names, that have left.
	departed map[string]bool
}

// stepKey is one node, or one of its components, on its way to one version.
type stepKey struct{ node, component, to string }

func keyOf(step plan.Step) stepKey {
	return stepKey{node: step.Node, component: string(step.Component), to: step.To.String()}
}

func newRollout(r *run, observed cluster.Observation) *rollout {
	return &rollout{
		run: r, snapshot: observed, ended: make(chan result), completed: map[stepKey]int{}, departed: map[string]bool{},
	}
}

// forEver waits for an upgrade to end however long that takes.
const forEver time.Duration = -1

// upgradeAll begins the run and moves every node that has to move. The plan is made
// anew before each start, from a new observation: nodes join, vanish and change
// by themselves. No upgrade is left when it returns.
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
		// Of upgrades that this ended, one would have said more about it.
		s.failure = s.run.stopped(ctx, "between two nodes")
	}

	return s.failure
}

// advance starts what may start now and waits until something has changed. It
// is done when nothing is left to do.
func (s *rollout) advance(ctx context.Context) (done bool, err error) {
	if ready, err := s.observeAndPlan(ctx); err != nil || !ready {
		return false, err
	}

	s.run.ahead.prepare(s.run.parallelPulls(s.made))

	if len(s.running) == 0 && len(s.made.Steps) == 0 {
		// The last word rests on a look at everything.
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

// start begins the upgrades of the steps, unless the run has to wait or stop
// before that. It waits for something to change.
func (s *rollout) start(ctx context.Context, next []plan.Step) error {
	for _, step := range next {
		if err := s.checkStart(step); err != nil {
			return err
		}
	}

	// Manifests take nobody out of service, and nobody waits before them.
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
		if err := s.run.pullProxies(ctx, s.snapshot, s.made); err != nil {
			return err
		}
	}

	if err := s.run.manifestsDue(ctx, s.made, next[0]); err != nil {
		return err
	}

	for _, step := range next {
		s.run.engine.emit(s.run.progress(cluster.Event{Kind: cluster.EventNodeStarted, Node: step.Node, Component: step.Component, To: step.To}, s.made))
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

// awaitSoak waits until the nodes that were moved have stayed healthy for long
// enough, an upgrade ends or the run has to stop. It looks at these nodes only.
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

// soakFailure is the failure of a run whose node did not stay healthy.
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

// startContext makes the context of an upgrade, which ends when the upgrade has to stand
// down. An upgrade that finishes what was begun never has to.
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

// runStep is the upgrade of a step: of a node, of one of its components, or of the
// manifests.
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

// patience is how long to wait for an upgrade to end before looking whether
// something else can be started.
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

// await waits until an upgrade ends, the time is up or the run has to stop.
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

// endOthers takes note of the upgrades that ended at the same time: one look serves them all.
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

// maxUpgrades is one upgrade to finish what an earlier run began, one for the
// version, and one more in case the node was away when its step was planned.
const maxUpgrades = 3

// checkStart refuses another node when the time for the run is used up, or when
// this node had its upgrade already.
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

// nameOf is what a step moves, for people.
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

// idleReasons says why nothing may start although nothing is on its way.
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

// firstObservation looks at the cluster for the first time under the lease, where whatever
// blocks is an error at once, and brings the images onto the nodes.
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

// untouched adds to a failure that nothing was moved, where that is so. Once the run has
// prepared, there may be a snapshot, and images on the nodes.
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

// prepare does once what comes before anything is moved: the gates, the snapshot
// and the images. Nodes that only return to service need none of it.
func (s *rollout) prepare(ctx context.Context) error {
	if s.imagesReady || !slices.ContainsFunc(s.made.Steps, func(step plan.Step) bool { return !step.Done }) {
		return nil
	}

	s.imagesReady = true

	// A node that is out of service may be what keeps a gate from holding, and
	// only its own upgrade brings it back.
	if !slices.ContainsFunc(s.made.Steps, func(step plan.Step) bool { return step.Finish }) {
		if err := s.run.awaitGates(ctx, ""); err != nil {
			return s.gateFailure(ctx, err)
		}
	}

	if err := s.run.backUp(ctx, s.snapshot); err != nil {
		return err
	}

	return s.run.prepareImages(ctx, s.snapshot, s.made)
}

// blockage is what keeps a run from starting anything. The zero value is none.
type blockage struct {
	// since is when it was first seen without a break.
	since, announced time.Time
	pause            time.Duration
	// hesitate tells that an upgrade has to wait or was left as it is: the next plan is made a moment later.
	hesitate bool
}

// observeAndPlan observes and plans, and tells whether something may be started as far as
// that goes. Otherwise it has waited a little. At the beginning whatever blocks
// is an error at once; later it gets the time to heal that it may need after a
// reboot, and upgrades that are going on are left alone meanwhile.
func (s *rollout) observeAndPlan(ctx context.Context) (ready bool, err error) {
	if s.blockage.hesitate {
		s.blockage.hesitate = false

		return false, s.await(ctx, maxPoll)
	}

	// Whoever asks for this knows when the context has ended.
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

	// Upgrades that are going on write it, and know better than an observation.
	if observed.Journal != nil && len(s.running) == 0 {
		s.run.journal.adoptObserved(*observed.Journal)
	}

	// A node that this run moves right now may be away.
	blocking := slices.DeleteFunc(cluster.Blocking(s.made.Findings), func(f cluster.Finding) bool {
		return f.Severity == cluster.Observed && f.Node != "" && s.inProgress(f.Node)
	})

	if len(blocking) > 0 {
		return false, s.blocked(ctx, blocking)
	}

	return true, nil
}

// lookEverywhereEvery is how often a run looks at the whole cluster.
const lookEverywhereEvery = 30 * time.Minute

// look is at the whole cluster when the run begins, before it ends and every once in a
// while, and otherwise at what may have changed.
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

// blocked waits a little for findings to pass that block, or fails when that
// is of no use or has taken too long.
func (s *rollout) blocked(ctx context.Context, blocking []cluster.Finding) error {
	refuse := func() error {
		failure := say.Blocked(s.run.request.Target, blocking)
		if s.moved {
			// How the cluster is left is known when all upgrades have ended.
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

// waitOut waits a little for an obstacle to pass, or gives up when it has been
// there for too long.
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

// result is an upgrade that ended.
type result struct {
	step plan.Step
	// ready is the last transition of the node's Ready condition.
	ready time.Time
	err   error
	// release ends what the upgrade was begun with.
	release context.CancelFunc
}

// end takes note of an upgrade that is over.
func (s *rollout) end(over result) {
	s.running = slices.DeleteFunc(s.running, func(step plan.Step) bool { return step.Node == over.step.Node && step.Component == over.step.Component })

	// Only after it is known whether anything may be begun any more.
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
		// A node that was moved is watched from the end of its upgrade on, before any
		// other upgrade can take it for one that nobody waits for.
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

// stoppedEvent tells of an upgrade that ended with an error.
func stoppedEvent(over result) cluster.Event {
	event := cluster.Event{Kind: cluster.EventNodeStopped, Node: over.step.Node, Component: over.step.Component, Text: over.err.Error()}

	var failure *say.Failure
	if errors.As(over.err, &failure) {
		event.Text, event.Err = failure.Summary, over.err
	}

	return event
}

// fail keeps the first failure. What fails after it, on nodes that were on
// their way, is named in it.
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

// foundBeside is what became of an upgrade beside the one that a failure is about.
func foundBeside(other *say.Failure) string {
	seen := strings.TrimSuffix(other.Seen, ".")
	if what, cut := strings.CutPrefix(seen, say.InterruptedPrefix); cut {
		return "its upgrade was running at the same time and was interrupted, " + what
	}

	return "its upgrade was running at the same time and failed too: " + seen
}

// presentPolicy is the one that was asked for, without the nodes that have left since
// the run began: a name that was right then is no mistake of the configuration,
// and the rest of the cluster does not have to stop for it. All names are right
// when a run begins, or it would not have.
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

// present are the entries of the nodes that are there.
func present[V any](s *rollout, there map[string]bool, entries map[string]V) map[string]V {
	kept := maps.Clone(entries)

	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if s.hasLeft(there, name) {
			delete(kept, name)
		}
	}

	return kept
}

// hasLeft tells whether a node that the policy names is no longer there, and
// says so the first time.
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

// unrepeated drops a sync that this run has done already, where the policy does
// not wait for what it changes: the pods of kube-proxy follow in their own time.
func (s *rollout) unrepeated(made plan.Plan) plan.Plan {
	if s.run.request.Policy.Kubernetes.Manifests.Timeout > 0 || len(made.Steps) == 0 {
		return made
	}

	// Where it is due once more, something has moved since.
	due := s.snapshot.Journal != nil && s.snapshot.Journal.Manifests != nil

	if first := made.Steps[0]; first.Component == cluster.Manifests && s.completed[keyOf(first)] > 0 && !due {
		made.Steps = made.Steps[1:]
		made.Kubernetes.Steps--
	}

	return made
}
