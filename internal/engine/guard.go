// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// verdict is what is made of what the guards found.
type verdict int

const (
	// proceed: nothing stands in the way.
	proceed verdict = iota
	// waitOut: what stands in the way may pass.
	waitOut
	// yield: the upgrade ends here without a failure and without having done anything
	// to its node, because the run has a better use for the time.
	yield
	// abort: no waiting helps.
	abort
)

// decision is a verdict and its reason: what is waited for, or the error with which
// the upgrade ends.
type decision struct {
	verdict verdict
	seen    string
	err     error
}

// decide is what an upgrade does about the findings of its guards, whatever it moves.
// An operator that upgrades the cluster ends it at once, and so does what waiting does
// not cure.
func decide(findings []cluster.Finding) decision {
	if len(findings) == 0 {
		return decision{verdict: proceed}
	}

	if len(rule.OfCheck(cluster.CheckOperator, findings)) > 0 {
		return decision{verdict: abort, err: errOccupied}
	}

	if err := fatal(findings); err != nil {
		return decision{verdict: abort, seen: findings[0].String(), err: err}
	}

	return decision{verdict: waitOut, seen: findings[0].String()}
}

// decide lets the upgrade of a node yield besides: to others of this run, and to gates
// that closed before it has touched its node.
func (u *nodeUpgrade) decide(findings []cluster.Finding, cordoning bool) decision {
	made := decide(findings)

	switch {
	case errors.Is(made.err, errOccupied):
		return made
	case leftMeanwhile(findings) != nil:
		// What an earlier run has only cordoned is put back.
		u.cordoned = u.cordoned || u.step.Finish

		return decision{verdict: yield, err: leftMeanwhile(findings)}
	case u.yields(findings, cordoning):
		return decision{verdict: yield, err: yieldTo(findings)}
	case u.gateClosed(findings):
		return decision{verdict: yield, err: errGateClosed}
	default:
		return made
	}
}

// guardedAction is something that is done to a node only while it is safe.
type guardedAction struct {
	// before is what has to be safe, in front of the name of the node, as in "reboot".
	before, node string
	// timeout is how long it may take to become safe, pause the longest pause between
	// two looks.
	timeout, pause time.Duration
	// prepare asks for what may take its time and may be a few seconds old; nil for nothing.
	prepare func(ctx context.Context)
	// turn is held from the look on until the action is done; nil where looks may be as many
	// as there are.
	turn semaphore
	// observe looks at the cluster, and judge finds in what it saw what stands in the way.
	observe func(ctx context.Context) error
	judge   func() []cluster.Finding
	// alone is held from the judgement on until the action is done; nil where actions on
	// other nodes do not matter.
	alone  semaphore
	decide func(findings []cluster.Finding) decision
	// fresh tells whether the observation is recent enough to act on; nil where then asks
	// for no such thing.
	fresh func() bool
	// then acts on the very observation on which the guards held; what it still waits
	// for is waited for together with the guards. Nil for nothing.
	then look
}

// awaitGuarded waits until the guards hold on an observation of their own and the
// lease is ours, and acts then. It fails when that does not come about in time, or
// when waiting cannot help.
func (r *run) awaitGuarded(ctx context.Context, action guardedAction) error {
	bounded, cancel := r.engine.clock.WithTimeout(ctx, action.timeout)
	defer cancel()

	g := guarding{guardedAction: action, run: r}
	what := "it to be safe to " + action.before + " " + action.node

	err := r.engine.waitClosely(bounded, action.node, what, action.pause, func(bounded context.Context) (bool, string, error) {
		return g.try(bounded, ctx)
	})

	switch {
	case err == nil:
		return nil
	case g.failed != nil && ctx.Err() == nil:
		return g.failed
	case ctx.Err() != nil && !errors.Is(cluster.Ended(ctx), context.DeadlineExceeded):
		return err
	default:
		return &say.GuardError{Before: action.before, Findings: g.last, Slow: g.slow, Err: err}
	}
}

// guarding is an action while it is waited for.
type guarding struct {
	guardedAction
	run *run

	// last are the findings of the last look, failed is why it need not go on.
	last   []cluster.Finding
	failed error
	// looked tells that anything was found out, and slow that nothing was in the way since
	// but the time that looks take.
	looked, slow bool
}

// try makes one attempt in the time that is left, and acts where the guards hold.
func (g *guarding) try(ctx, unbounded context.Context) (bool, string, error) {
	if ok, seen, err := g.run.lock.holds(ctx); err != nil || !ok {
		g.looked, g.slow = true, false

		return false, seen, err
	}

	if g.prepare != nil {
		g.prepare(ctx)
	}

	if ctx.Err() != nil {
		return false, "", cluster.Ended(ctx)
	}

	if g.turn != nil {
		asked := g.run.engine.clock.Now()

		if err := g.turn.enter(ctx); err != nil {
			g.missed(ctx, unbounded)

			return false, "others were looking at the cluster", err
		}

		defer g.turn.leave()

		// What was asked before a long wait says nothing about now.
		if g.prepare != nil && g.run.engine.clock.Now().Sub(asked) > observationAge {
			g.prepare(ctx)
		}
	}

	if err := g.observe(ctx); err != nil {
		g.missed(ctx, unbounded)
		g.looked = g.looked || ctx.Err() == nil

		return false, err.Error(), permanentOnly(err)
	}

	if g.alone != nil {
		if err := g.alone.enter(ctx); err != nil {
			g.missed(ctx, unbounded)

			return false, "other nodes were being cordoned", err
		}

		defer g.alone.leave()
	}

	return g.act(ctx, unbounded)
}

// act judges what was seen, and acts where nothing is in the way.
func (g *guarding) act(ctx, unbounded context.Context) (bool, string, error) {
	g.last = g.judge()
	g.looked, g.slow = true, false

	switch made := g.decide(g.last); made.verdict {
	case proceed:
	case yield:
		g.failed = made.err

		return false, "", made.err
	case waitOut, abort:
		return false, made.seen, made.err
	}

	// The observation took its time; the lease must have outlived it.
	if ok, seen, err := g.run.lock.holds(ctx); err != nil || !ok || g.then == nil {
		return ok, seen, err
	}

	if g.fresh != nil && !g.fresh() {
		g.slow = true

		return false, "the look at the cluster took too long to act on it", nil
	}

	// It is begun in time, and not cut off.
	done, seen, err := g.then(unbounded)
	g.failed = err

	return done, seen, err
}

// missed takes note that an attempt did not get as far as to find anything out.
func (g *guarding) missed(ctx, unbounded context.Context) {
	g.slow = (g.slow || !g.looked) && ctx.Err() != nil && unbounded.Err() == nil
}

// awaitGuards waits until it is safe to go on with the node.
func (u *nodeUpgrade) awaitGuards(ctx context.Context, before string) error {
	return u.awaitGuardsThen(ctx, before, nil)
}

// awaitGuardsThen waits until it is safe to go on with the node, and acts on the
// observation that said so. One that an installer may have run on has all the time
// that its upgrade has: to stop with it is worse than to wait.
func (u *nodeUpgrade) awaitGuardsThen(ctx context.Context, before string, then look) error {
	var seen looked

	u.waits = "it was safe to " + before + " " + u.step.Node

	action := guardedAction{
		before: before, node: u.step.Node, timeout: guardTimeout, pause: maxPoll,
		prepare: func(ctx context.Context) { seen = u.prepareForGuards(ctx, then != nil) },
		observe: func(ctx context.Context) error { return u.observeForGuards(ctx, &seen) },
		judge:   func() []cluster.Finding { return u.judge(seen, then != nil) },
		decide:  func(findings []cluster.Finding) decision { return u.decide(findings, then != nil) },
	}

	if u.mayHaveInstalled() {
		action.timeout = u.run.request.Policy.NodeTimeout
	}

	if then != nil {
		action.turn, action.alone, action.then = u.run.coordinator.looking, u.run.coordinator.cordoning, then
		action.fresh = func() bool { return u.run.engine.clock.Now().Sub(u.seen.at) <= observationAge }
	}

	err := u.run.awaitGuarded(ctx, action)

	beside := len(u.run.coordinator.others(u.step.Node)) > 0

	// Nothing is wrong with the cluster, and fewer nodes at a time may be what helps.
	if guarded := (*say.GuardError)(nil); beside && !u.touched(then != nil) && errors.As(err, &guarded) && guarded.Slow {
		return &waitsError{why: fmt.Sprintf("looking at the cluster takes longer than %s while so many nodes are being upgraded", observationAge)}
	}

	return err
}

// looked is what rules are asked about, and what that was made of.
type looked struct {
	rule.View

	// steps are those that upgrades had done when the observation began.
	steps fact.Steps
	// told is what the node says of its disk and its clock, or why it does not.
	told    cluster.Vitals
	toldErr error
}

// prepareForGuards asks what may take its time, the gates and the node, before the
// observation: what is done next has to rest on a fresh one.
func (u *nodeUpgrade) prepareForGuards(ctx context.Context, cordoning bool) looked {
	seen := looked{View: rule.View{
		Step: u.step, Run: u.run.engine.runID, Starting: cordoning && !u.mayHaveInstalled() && !u.cordoned,
		Cordoning: cordoning && u.run.request.Policy.Drain.Enabled, Returning: u.phase == returning,
	}}

	if seen.Starting {
		seen.Closed = append(u.run.closedGates(ctx, u.step.Node), u.run.suspensionFindings(ctx)...)
	}

	if !u.mayHaveInstalled() {
		seen.Intruded = u.run.operatorConflicts(ctx, true)
	}

	if u.judgesVitals() {
		seen.told, seen.toldErr = u.run.engine.talos.Vitals(ctx, u.step.Address)
	}

	return seen
}

// observeForGuards observes what the guards are about.
func (u *nodeUpgrade) observeForGuards(ctx context.Context, seen *looked) error {
	seen.steps = u.run.engine.facts.Steps()

	before := u.run.policy()

	asked := inquiry{
		claim: u.step.Node, etcd: true, after: u.acted,
		machines: func(node cluster.Node) bool {
			moved := !u.mayHaveInstalled() && (becomesCanary(before, node) || u.run.soak.watches(node.Name))

			return moved || node.Role == cluster.ControlPlane || node.Name == u.step.Node
		},
	}

	if u.step.Role == cluster.Worker {
		asked.age = answerAge
	} else {
		asked.opinions, asked.staticPods = true, true
	}

	observed, err := u.run.observe(ctx, asked)
	if err != nil {
		return err
	}

	seen.Observation = observed

	if node, found := observed.Node(u.step.Node); found && u.judgesVitals() {
		seen.Vitals = vitalFindings(node, seen.told, seen.toldErr, diskFloor)
	}

	return nil
}

// judge asks each guard about what was seen, and about what other upgrades of this run do
// by now.
func (u *nodeUpgrade) judge(seen looked, cordoning bool) []cluster.Finding {
	seen.Others = u.run.coordinator.others(u.step.Node)
	seen.Policy = u.selectIn(seen.Observation)

	if !u.mayHaveInstalled() {
		seen.Unsettled = u.run.soak.unsettled(seen.View, u.run.engine.clock.Now(), u.touched(cordoning))
	}

	findings := rule.Judge(u.run.engine.rules, u.stage(cordoning), seen.View)

	if node, found := seen.Node(u.step.Node); found && node.Machine != nil {
		u.seen = sighting{
			machine: *node.Machine, at: seen.Taken, steps: seen.steps,
			cordoned: node.Kube != nil && node.Kube.Unschedulable, well: rule.Well(node),
		}

		if node.Etcd != nil {
			u.seen.etcdVersion = node.Etcd.Status.Version
		}
	}

	return u.run.standing(findings)
}

// stage is what the upgrade is about to do.
func (u *nodeUpgrade) stage(cordoning bool) rule.Stage {
	switch {
	case u.mayHaveInstalled() && u.phase == returning:
		return rule.SendBack
	case u.mayHaveInstalled():
		return rule.Reboot
	case cordoning:
		return rule.Cordon
	default:
		return rule.Install
	}
}

// judgesVitals tells whether the disk and the clock of the node matter: they do to an
// install, and not to a node that is sent back.
func (u *nodeUpgrade) judgesVitals() bool { return !u.mayHaveInstalled() && u.phase != returning }

// becomesCanary tells whether the node is a canary, or has the labels of one.
func becomesCanary(policy cluster.Policy, node cluster.Node) bool {
	if slices.Contains(policy.Canaries(), node.Name) {
		return true
	}

	return policy.CanarySelector != nil && node.Role == cluster.Worker && node.Kube != nil && policy.CanarySelector.Matches(node.Kube.Labels)
}

// selectIn is the policy with what its selectors choose in the observation. Canaries
// that there were not yet when the node was cordoned do not stop its upgrade any more.
func (u *nodeUpgrade) selectIn(observed cluster.Observation) cluster.Policy {
	policy := u.run.selectIn(observed)

	if u.cordoned && u.canaries != nil {
		policy.Selected.Canaries = *u.canaries
	} else {
		u.canaries = &policy.Selected.Canaries
	}

	return policy
}

// errYield ends an upgrade that gives way, because workers of other upgrades use up what
// may be unavailable. It leaves its node as it found it.
var errYield = errors.New("other workers of this run have to come back first")

// noPlaceError is an [errYield] for the lack of nodes to which the pods could
// go.
type noPlaceError struct{ why string }

func (n *noPlaceError) Error() string { return n.why }

func (n *noPlaceError) Unwrap() error { return errYield }

// waitsError is an [errYield] for nodes that were moved before and are not as they have
// to be, or for looks that take too long.
type waitsError struct{ why string }

func (w *waitsError) Error() string { return w.why }

func (w *waitsError) Unwrap() error { return errYield }

// yieldTo is what an upgrade ends with that stands back for these reasons.
func yieldTo(findings []cluster.Finding) error {
	if index := slices.IndexFunc(findings, rule.AboutMoved); index >= 0 {
		return &waitsError{why: findings[index].String()}
	}

	if slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check != rule.CheckRoom && f.Check != cluster.CheckGates }) {
		return errYield
	}

	return &noPlaceError{why: findings[0].Found}
}

// yields tells whether the upgrade ends here without having done anything to its
// node, because the run has a better use for the time than to wait with it: nothing
// is wrong but that other upgrades of this run are in the way, or that a node which was
// moved before has to become well first. One that has cordoned its node, and nothing
// more, gives it back only to the budget: others used that up meanwhile.
func (u *nodeUpgrade) yields(findings []cluster.Finding, cordoning bool) bool {
	beside := len(u.run.coordinator.others(u.step.Node)) > 0

	// A gate that is closed as well is waited for when there is room.
	rest := slices.DeleteFunc(slices.Clone(findings), func(f cluster.Finding) bool { return f.Check == cluster.CheckGates })

	if u.mayHaveInstalled() || u.entry.Attempt > 1 || len(rest) == 0 {
		return false
	}

	return !slices.ContainsFunc(rest, func(f cluster.Finding) bool {
		switch {
		case rule.AboutBudget(f):
			return !beside
		case f.Check == rule.CheckRoom:
			return !beside || u.cordoned
		case rule.AboutMoved(f):
			return u.touched(cordoning)
		default:
			return true
		}
	})
}
