// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// guardedAction is something that is done to a node only while it is safe.
type guardedAction struct {
	// before is what has to be safe, in front of the name of the node, as in "reboot".
	before, node string
	// timeout is how long it may take to become safe, pause the longest pause between
	// two looks.
	timeout, pause time.Duration
	// prepare asks for what may take its time and may be a few seconds old; nil for nothing.
	prepare func(ctx context.Context)
	// looking is held from the look on until the action is done; nil where looks may be as many
	// as there are.
	looking semaphore
	// observe looks at the cluster, and permit decides on what it saw.
	observe func(ctx context.Context) error
	permit  func() permit.Verdict
	// then acts on the very observation on which the permit was given; what it still waits
	// for is waited for together with the guards. Nil for nothing.
	then look
}

// awaitGuarded waits for a permit on an observation of its own, and acts then. It
// fails when that does not come about in time, or when waiting cannot help.
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

// try makes one attempt in the time that is left, and acts where it is permitted.
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

	if g.looking != nil {
		asked := g.run.engine.clock.Now()

		if err := g.looking.enter(ctx); err != nil {
			g.missed(ctx, unbounded)

			return false, "others were looking at the cluster", err
		}

		defer g.looking.leave()

		// What was asked before a long wait says nothing about now.
		if g.prepare != nil && g.run.engine.clock.Now().Sub(asked) > permit.MostAge {
			g.prepare(ctx)
		}
	}

	if err := g.observe(ctx); err != nil {
		g.missed(ctx, unbounded)
		g.looked = g.looked || ctx.Err() == nil

		return false, err.Error(), permanentOnly(err)
	}

	return g.act(unbounded)
}

// act asks for the permit, and acts where it is given.
func (g *guarding) act(unbounded context.Context) (bool, string, error) {
	made := g.permit()
	g.last, g.looked, g.slow = made.Findings, true, made.Slow

	switch made.Kind {
	case permit.Yield:
		g.failed = made.Err

		return false, "", made.Err
	case permit.Wait, permit.Abort:
		return false, made.Missing, made.Err
	case permit.Go:
	}

	if g.then == nil {
		return true, "", nil
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
	u.waits = "it was safe to " + before + " " + u.step.Node

	action := guardedAction{
		before: before, node: u.step.Node, timeout: guardTimeout, pause: maxPoll, then: then,
		prepare: func(ctx context.Context) { u.look = u.prepareForGuards(ctx, then != nil) },
		observe: u.observeForGuards,
		permit: func() permit.Verdict {
			return u.permit(permit.Ask{Stage: u.stage(then != nil), Cordons: then != nil, Acts: then != nil})
		},
	}

	if u.mayHaveInstalled() {
		action.timeout = u.run.request.Policy.NodeTimeout
	}

	if then != nil {
		action.looking = u.run.looking
	}

	err := u.run.awaitGuarded(ctx, action)

	beside := len(u.run.moves.beside(u.step.Node)) > 0
	touched := permit.Ask{Cordons: then != nil, Installed: u.mayHaveInstalled(), Cordoned: u.cordoned, Retried: u.entry.Attempt > 1}.Touched()

	// Nothing is wrong with the cluster, and fewer nodes at a time may be what helps.
	if guarded := (*say.GuardError)(nil); beside && !touched && errors.As(err, &guarded) && guarded.Slow {
		return &permit.WaitsError{Why: fmt.Sprintf("looking at the cluster takes longer than %s while so many nodes are being upgraded", permit.MostAge)}
	}

	return err
}

// looked is what rules are asked about, and what that was made of.
type looked struct {
	rule.View

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
func (u *nodeUpgrade) observeForGuards(ctx context.Context) error {
	steps := u.run.engine.facts.Steps()

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

	u.look.Observation = observed

	node, found := observed.Node(u.step.Node)
	if found && u.judgesVitals() {
		u.look.Vitals = vitalFindings(node, u.look.told, u.look.toldErr, diskFloor)
	}

	if found && node.Machine != nil {
		u.seen = sighting{
			machine: *node.Machine, at: observed.Taken, steps: steps, dates: u.run.engine.facts.Dates(observed, node.Name),
			cordoned: node.Kube != nil && node.Kube.Unschedulable, well: rule.Well(node),
		}

		if node.Etcd != nil {
			u.seen.etcdVersion = node.Etcd.Status.Version
		}
	}

	return nil
}

// permit asks for a permit on what was seen last.
func (u *nodeUpgrade) permit(asked permit.Ask) permit.Verdict {
	asked.Installed, asked.Cordoned, asked.Retried = u.mayHaveInstalled(), u.cordoned, u.entry.Attempt > 1

	world := permit.World{View: u.look.View, Looked: u.seen.steps, Seen: u.seen.at, Dates: u.seen.dates, Occupied: u.seen.cordoned}
	if !asked.Judged {
		world.Policy = u.selectIn(world.Observation)
	}

	made := u.run.permit(asked, world)

	// What an earlier run has only cordoned is put back.
	if left := (*permit.LeftError)(nil); errors.As(made.Err, &left) {
		u.cordoned = u.cordoned || u.step.Finish
	}

	return made
}

// mayAct asks to do now what was permitted before, and recorded since.
func (u *nodeUpgrade) mayAct() bool {
	return u.permit(permit.Ask{Stage: u.stage(false), Acts: true, Judged: true}).Kind == permit.Go
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
