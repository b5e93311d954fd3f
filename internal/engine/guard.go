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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// permit decides about an observation of an upgrade, and writes a debug line about an action that it permits.
func (r *run) permit(asked permit.Ask, world permit.World) permit.Verdict {
	_, fresh, lost := r.lock.state()
	world.Leased = fresh && lost == nil

	switch {
	case r.deadlinePassed():
		world.Over = fmt.Errorf("%w: %w", permit.ErrStopped, say.ErrDeadline)
	case r.windowClosed() != nil:
		world.Over = fmt.Errorf("%w: %w", permit.ErrStopped, say.ErrWindow)
	}

	made := r.shared.decide(r.engine, asked, &world)

	if made.Kind == permit.Go && asked.Acts && r.engine.permitted != nil {
		r.engine.permitted(world.Line(asked, r.lock.lastRenewed()))
	}

	r.engine.tell(made.Skipped)

	return made
}

// guardedAction is an action on a node that is taken only while it is safe.
type guardedAction struct {
	// before is the action, as it stands in front of the name of the node, such as "reboot".
	before, node string
	// timeout is how long to wait until it is safe, pause the longest pause between two attempts.
	timeout, pause time.Duration
	// prepare asks for what takes time and may be a few seconds old; may be nil.
	prepare func(ctx context.Context)
	// looking is held from the observation until the action is done; nil if any number of observations may run at
	// the same time.
	looking semaphore
	// observe observes the cluster, and permit decides about that observation.
	observe func(ctx context.Context) error
	permit  func() permit.Verdict
	// then acts on the very observation that was permitted; what it waits for is waited for together with the
	// guards. May be nil.
	then look
}

// awaitGuarded waits until an observation is permitted, and then acts. It fails if that does not happen in time,
// or if waiting cannot help.
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

// guarding is a guarded action that is being waited for.
type guarding struct {
	guardedAction
	run *run

	// last are the findings of the last attempt, failed is why there is no further one.
	last   []cluster.Finding
	failed error
	// looked is true once an attempt had a result; slow is true if only slow observations have prevented a permit
	// since.
	looked, slow bool
}

// try makes one attempt in the time that is left, and acts if that is permitted.
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

		// Answers from before a long wait are too old.
		if g.prepare != nil && cluster.Elapsed(asked, g.run.engine.clock.Now()) > permit.MostAge {
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

// act asks for the permit, and acts if it is given.
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

	// It has begun in time, and is not cut off.
	done, seen, err := g.then(unbounded)
	g.failed = err

	return done, seen, err
}

// missed records that an attempt ended without a result.
func (g *guarding) missed(ctx, unbounded context.Context) {
	g.slow = (g.slow || !g.looked) && ctx.Err() != nil && unbounded.Err() == nil
}

// awaitGuards waits until it is safe to continue with the node.
func (u *nodeUpgrade) awaitGuards(ctx context.Context, before string) error {
	return u.awaitGuardsThen(ctx, before, nil)
}

// awaitGuardsThen waits until it is safe to continue with the node, and acts on the observation that was
// permitted. If an installer may have run on the node, it waits for as long as the upgrade may take, because
// stopping there is worse than waiting.
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

		defer u.dropLook()
	}

	err := u.run.awaitGuarded(ctx, action)

	beside := len(u.run.shared.beside(u.step.Node)) > 0
	touched := permit.Ask{Cordons: then != nil, Installed: u.mayHaveInstalled(), Cordoned: u.cordoned, Retried: u.entry.Attempt > 1}.Touched()

	// Nothing is wrong with the cluster, and fewer upgrades at a time may help.
	if guarded := (*say.GuardError)(nil); beside && !touched && errors.As(err, &guarded) && guarded.Slow {
		return &permit.WaitsError{Why: fmt.Sprintf("looking at the cluster takes longer than %s while so many nodes are being upgraded", permit.MostAge)}
	}

	return err
}

// looked is the view that rules are applied to, with the answers that parts of it are made from.
type looked struct {
	rule.View

	// told is what the node reports about its disk and its clock, toldErr why it does not.
	told    cluster.Vitals
	toldErr error
}

// prepareForGuards asks the gates and the node, which may take time, before the observation, because the next
// action has to be based on a fresh one.
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

// observeForGuards makes the observation that the guards need.
func (u *nodeUpgrade) observeForGuards(ctx context.Context) error {
	steps := u.run.engine.facts.Steps()

	before := u.run.policy()

	asked := inquiry{
		claim: u.step.Node, etcd: true, after: u.acted,
		machines: func(node cluster.Node) bool {
			moved := !u.mayHaveInstalled() && (becomesCanary(before, node) || u.run.shared.settles(node.Name))

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

// permit asks for a permit on the last observation.
func (u *nodeUpgrade) permit(asked permit.Ask) permit.Verdict {
	asked.Installed, asked.Cordoned, asked.Retried = u.mayHaveInstalled(), u.cordoned, u.entry.Attempt > 1

	world := permit.World{View: u.look.View, Looked: u.seen.steps, Seen: u.seen.at, Dates: u.seen.dates, Occupied: u.seen.cordoned}
	if !asked.Judged {
		world.Policy = u.selectIn(world.Observation)
	}

	made := u.run.permit(asked, world)

	// If an earlier run has only cordoned the node, the cordon is taken back.
	if left := (*permit.LeftError)(nil); errors.As(made.Err, &left) {
		u.cordoned = u.cordoned || u.step.Finish
	}

	return made
}

// mayAct reports whether an action that was permitted before, and recorded since, may be taken now. The observation
// that permitted it serves once.
func (u *nodeUpgrade) mayAct() bool {
	defer u.dropLook()

	return u.permit(permit.Ask{Stage: u.stage(false), Acts: true, Judged: true}).Kind == permit.Go
}

// dropLook drops the observation of the guards. Otherwise each of a hundred nodes that reboot would keep one of all
// nodes.
func (u *nodeUpgrade) dropLook() { u.look = looked{} }

// stage returns what the upgrade is about to do.
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

// judgesVitals reports whether the disk and the clock of the node matter: they do for an install, but not for a
// rollback.
func (u *nodeUpgrade) judgesVitals() bool { return !u.mayHaveInstalled() && u.phase != returning }

// becomesCanary reports whether the node is a canary, or has the labels of one.
func becomesCanary(policy cluster.Policy, node cluster.Node) bool {
	if slices.Contains(policy.Canaries(), node.Name) {
		return true
	}

	return policy.CanarySelector != nil && node.Role == cluster.Worker && node.Kube != nil && policy.CanarySelector.Matches(node.Kube.Labels)
}

// selectIn returns the policy with what its selectors choose in the observation. Once this provider has cordoned
// the node, nodes that become canaries later do not stop its upgrade.
func (u *nodeUpgrade) selectIn(observed cluster.Observation) cluster.Policy {
	policy := u.run.selectIn(observed)

	if u.cordoned && u.canaries != nil {
		policy.Selected.Canaries = *u.canaries
	} else {
		u.canaries = &policy.Selected.Canaries
	}

	return policy
}

// sighting is a node as the guards last observed it.
type sighting struct {
	machine cluster.Machine
	// at is when the observation ended, and steps are those taken when it began. dates are those of the facts
	// that it is based on.
	at    time.Time
	steps fact.Steps
	dates []fact.Date
	// cordoned is true if the node was cordoned, by anybody.
	cordoned bool
	// etcdVersion is the version that its member of etcd reported; empty if it has none.
	etcdVersion string
	// well is true if nothing was wrong with the node itself.
	well bool
}
