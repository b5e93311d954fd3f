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
)

// rollout starts the upgrades of a run and waits for them. One goroutine has it
// to itself; the upgrades know nothing of it.
type rollout struct {
	run *run

	snapshot cluster.Snapshot
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

	blockage blockage
	// departed are the nodes, of those that the policy names, that have left.
	departed map[string]bool
}

// stepKey is one node, or one of its components, on its way to one version.
type stepKey struct{ node, component, to string }

func keyOf(step plan.Step) stepKey {
	return stepKey{node: step.Node, component: string(step.Component), to: step.To.String()}
}

func newRollout(r *run, snapshot cluster.Snapshot) *rollout {
	return &rollout{
		run: r, snapshot: snapshot, ended: make(chan result), completed: map[stepKey]int{}, departed: map[string]bool{},
	}
}

// lookAgain is how often a run looks for a node that it could move beside those
// that are on their way, when none of these ends.
const lookAgain = 30 * time.Second

// forEver waits for an upgrade to end however long that takes.
const forEver time.Duration = -1

// upgradeAll begins the run and moves every node that has to move. The plan is made
// anew before each start, from a new observation: nodes join, vanish and change
// by themselves. No upgrade is left when it returns.
func (s *rollout) upgradeAll(ctx context.Context) error {
	done, err := false, s.begin(ctx)

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
		s.closeBackup(ctx)
		s.run.emit(s.run.progress(cluster.Event{Kind: cluster.EventRunDone}, s.made))
	default:
		// Of upgrades that this ended, one would have said more about it.
		s.failure = s.run.stopped(ctx, "between two nodes")
	}

	return s.failure
}

// advance starts what may start now and waits until something has changed. It
// is done when nothing is left to do.
func (s *rollout) advance(ctx context.Context) (done bool, err error) {
	if ready, err := s.observe(ctx); err != nil || !ready {
		return false, err
	}

	if len(s.running) == 0 && len(s.made.Steps) == 0 {
		return true, nil
	}

	if len(s.running) == 0 {
		if err := s.prepare(ctx); err != nil || ctx.Err() != nil {
			return false, err
		}
	}

	next := s.made.Startable(s.snapshot, s.running)
	if len(next) == 0 && len(s.running) == 0 {
		return false, s.blocked(ctx, s.idleReasons())
	}

	s.blockage = blockage{}

	if len(next) == 0 || s.run.starter.anyDoubtful() {
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
		s.run.soak.observeAll(s.snapshot, s.made, s.running, s.run.engine.clock.Now())

		if s.run.soak.waiting() {
			return s.awaitSoak(ctx, next[0])
		}
	}

	if err := s.manifestsDue(ctx, next[0]); err != nil {
		return err
	}

	for _, step := range next {
		s.run.emit(s.run.progress(cluster.Event{Kind: cluster.EventNodeStarted, Node: step.Node, Component: step.Component, To: step.To}, s.made))
		s.running = append(s.running, step)
		s.moved = true

		turning, end := s.run.startContext(ctx, step)

		go func() {
			ready, err := s.runStep(turning, step)
			if cause := context.Cause(turning); errors.Is(cause, errStopped) {
				err = cause
			}

			s.ended <- result{step: step, ready: ready, err: err, release: end}
		}()
	}

	return s.await(ctx, s.patience())
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

// turnsMost is one upgrade to finish what an earlier run began, one for the
// version, and one more in case the node was away when its step was planned.
const turnsMost = 3

// checkStart refuses another node when the time for the run is used up, or when
// this node had its upgrade already.
func (s *rollout) checkStart(step plan.Step) error {
	if s.completed[keyOf(step)] >= turnsMost {
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

// overtime is the failure of a run whose time is used up.
func (r *run) overtime(seen string) *Failure {
	return &Failure{
		Summary: "Unable to finish the upgrade in the time that timeouts allow", Seen: seen,
		Remedy: "Run terraform apply again to continue, or raise timeouts.create and timeouts.update.", Err: ErrDeadline,
	}
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

func neverArrives(step plan.Step) *Failure {
	failure := &Failure{
		Summary: fmt.Sprintf("Unable to upgrade node %s to Talos %s", step.Node, step.To), Node: step.Node, Component: step.Component,
		Seen:   fmt.Sprintf("The node had %d turns to this version in this run, and now runs Talos %s.", turnsMost, step.From),
		State:  "Somebody or something else changes this node.",
		Remedy: "Find out who does, then run terraform apply again.",
	}

	if step.Component != "" {
		failure.Summary = fmt.Sprintf("Unable to bring %s to Kubernetes %s", nameOf(step), step.To)
		failure.Seen = fmt.Sprintf("It had %d turns in this run, and is not there.", turnsMost)
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
		found = fmt.Sprintf("%d workers may be unavailable at a time, and these are not Ready or cordoned: %v", max(s.made.Budget, 1), away)
	}

	return newFinding(checkBudget, "", found, budgetRemedy(s.snapshot), nil)
}
