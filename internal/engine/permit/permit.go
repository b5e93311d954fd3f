// SPDX-License-Identifier: MPL-2.0

// Package permit decides whether an upgrade may do what it is about to do to a node, or to a component on
// it: on the facts, which have their dates, and on what the other upgrades of the run do. Nobody is asked
// here.
package permit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// MostAge is how old the look behind a disruptive call may be. To record what is about to be done may take
// longer than that while the API server is away, and what took it away may be what the rules look for.
const MostAge = 10 * time.Second

// Ask is what an upgrade asks for.
type Ask struct {
	// Stage is what is about to be done.
	Stage rule.Stage
	// Cordons tells that the node is about to be cordoned, whatever the stage is: a node on which something
	// may be installed can lack a cordon, too.
	Cordons bool
	// Installed tells that the next boot of the node may start another system, Cordoned that the cordon on
	// it is ours, and Retried that its install was tried before.
	Installed, Cordoned, Retried bool
	// Acts tells that it is done at once. What has to be recorded first is asked for twice: before the
	// record, and then to act, for which Judged tells that the rules hold on this very view.
	Acts, Judged bool
}

// Touched tells whether the upgrade has disturbed its node already. Behind the cordon it has, also where
// somebody else's cordon was there before.
func (a Ask) Touched() bool { return !a.Cordons || a.Installed || a.Cordoned || a.Retried }

// World is what a permit rests on.
type World struct {
	rule.View

	// Rules are those that are asked.
	Rules []rule.Rule
	// Looked are the steps that upgrades had done when the look at the node began, and Seen is when it ended.
	Looked fact.Steps
	Seen   time.Time
	// Dates are those of the other facts, for [World.Line].
	Dates []fact.Date
	// Occupied tells that the node was out of service already.
	Occupied bool
	// Now is the present.
	Now fact.Moment
	// Leased tells that the lease is ours, and was renewed so recently that nobody can have taken it.
	Leased bool
	// Untouched tells that the upgrade has not disturbed its node, and Over is why no further node may be
	// disturbed. Doubtful are nodes on their way whose outcome has to be known first.
	Untouched bool
	Over      error
	Doubtful  []string
}

// Kind is what a verdict comes to.
type Kind int

// The kinds of verdicts.
const (
	// Go: nothing stands in the way.
	Go Kind = iota
	// Wait: what stands in the way may pass.
	Wait
	// Yield: the upgrade ends here without a failure and without having done anything to its node, because
	// the run has a better use for the time. The error of the verdict is one of this package.
	Yield
	// Abort: no waiting helps.
	Abort
)

// Verdict is the answer.
type Verdict struct {
	Kind Kind
	// Missing is what is waited for, and Err with what the upgrade ends.
	Missing string
	Err     error
	// Findings stand in the way, and Skipped would if the policy did not say otherwise.
	Findings, Skipped []cluster.Finding
	// Slow tells that nothing is missing but a look that takes less time.
	Slow bool
}

// Permit decides. First the rules are asked, then whether the lease is ours. For what is done at once it matters
// besides whether the look is recent enough, whether another upgrade has done anything since, and, for an upgrade
// that has not disturbed its node, whether it may still begin.
func Permit(w World, a Ask) Verdict {
	judged := w.Policy.Skip(w.findings(a))
	made := w.standing(a, cluster.Blocking(judged))
	made.Skipped = slices.DeleteFunc(judged, func(f cluster.Finding) bool { return !f.Skipped })

	switch {
	case made.Kind != Go:
	case !w.Leased:
		made.Kind, made.Missing = Wait, "the lease was not renewed in time"
	case !a.Acts:
	case a.Stage != rule.Component && w.Now.At.Sub(w.Seen) > MostAge:
		made.Kind, made.Slow, made.Missing = Wait, true, "the look at the cluster took too long to act on it"
	case !a.Cordons && w.overtaken():
		made.Kind, made.Missing = Wait, "another node was being changed meanwhile"
	case w.Untouched:
		made.Err = w.over()
		if made.Err != nil {
			made.Kind = Yield
		}
	}

	return made
}

// findings is what stands in the way by the rules. For a component that a gate keeps from being begun, nothing
// else was looked at.
func (w World) findings(a Ask) []cluster.Finding {
	switch {
	case a.Judged:
		return nil
	case a.Stage == rule.Component && len(cluster.Blocking(w.Policy.Skip(w.Closed))) > 0:
		return w.Closed
	default:
		return rule.Judge(w.Rules, a.Stage, w.View)
	}
}

// overtaken tells whether there was another step since the look began that it has to take into account. A
// worker that is out of service already was counted when that began, so what other workers do in their own
// upgrades is nothing to it; nor are to a kubelet those of other workers, because the budget says how many may
// restart at a time.
func (w World) overtaken() bool {
	looked := w.Looked
	if w.Step.Role == cluster.Worker && w.Occupied {
		looked.All = w.Now.Steps.All
	}

	return looked != w.Now.Steps
}

// over is why a node may not be disturbed that is not yet.
func (w World) over() error {
	switch {
	case w.Over != nil:
		return w.Over
	case len(w.Doubtful) > 0:
		return fmt.Errorf("%w before it is clear what became of %v", ErrStopped, w.Doubtful)
	default:
		return nil
	}
}

// standing is what is done about findings that stand in the way.
func (w World) standing(a Ask, findings []cluster.Finding) Verdict {
	made := Verdict{Findings: findings}

	if len(findings) == 0 {
		return made
	}

	if yields := w.yieldTo(a, findings); yields != nil {
		made.Kind, made.Err = Yield, yields

		return made
	}

	made.Kind, made.Missing, made.Err = Wait, findings[0].String(), Fatal(findings)

	switch {
	case len(rule.OfCheck(cluster.CheckOperator, findings)) > 0:
		made.Kind, made.Missing, made.Err = Abort, "", ErrOccupied
	case made.Err != nil:
		made.Kind = Abort
	}

	return made
}

// Fatal is what no waiting cures; nil where waiting may.
func Fatal(findings []cluster.Finding) error {
	for _, finding := range findings {
		if finding.Err != nil && !cluster.Heals(finding.Err) {
			return fmt.Errorf("%s: %w", finding.Found, finding.Err)
		}
	}

	return nil
}

// ErrOccupied is an operator that began to upgrade the cluster just before the run would have.
var ErrOccupied = fmt.Errorf("%w is upgrading it", say.ErrOperator)

// ErrStopped ends an upgrade that has not touched its node, because the run must not begin another one. It
// is no failure of the upgrade.
var ErrStopped = errors.New("no further node is begun")
