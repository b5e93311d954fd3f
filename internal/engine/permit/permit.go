// SPDX-License-Identifier: MPL-2.0

// Package permit decides whether an upgrade may do what it is about to do to a node, or to a component on it,
// based on dated facts and on what the other upgrades of the run do. It asks nobody.
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

// MostAge is how old the observation behind a disruptive call may be. Recording what is about to be done may take
// longer than that if the API server does not answer, and the cause may be something that the rules look for.
const MostAge = 10 * time.Second

// Ask is what an upgrade asks permission for.
type Ask struct {
	// Stage is what is about to be done.
	Stage rule.Stage
	// Cordons is true if the node is about to be cordoned, whatever the stage: a node on which something may be
	// installed may lack a cordon, too.
	Cordons bool
	// Installed is true if the next boot of the node may start another system, Cordoned if the cordon on it is
	// ours, and Retried if its install was tried before.
	Installed, Cordoned, Retried bool
	// Acts is true if the action follows at once. An action that has to be recorded first is asked for twice:
	// before the record, and then with Acts, in which case Judged is true because the rules were found to hold
	// for the same view.
	Acts, Judged bool
}

// Touched reports whether the upgrade has already disturbed its node. Without Cordons it has, because the node is
// cordoned by then, even if by somebody else.
func (a Ask) Touched() bool { return !a.Cordons || a.Installed || a.Cordoned || a.Retried }

// World is what a permit is based on.
type World struct {
	rule.View

	// Rules are the rules that are applied.
	Rules []rule.Rule
	// Looked are the steps taken when the observation of the node began, and Seen is when it ended.
	Looked fact.Steps
	Seen   time.Time
	// Dates are the dates of the other facts, for [World.Line].
	Dates []fact.Date
	// Occupied is true if the node was already out of service.
	Occupied bool
	// Now is the present time, with the number of steps taken so far.
	Now fact.Moment
	// Leased is true if the lease is ours, and was renewed so recently that nobody can have taken it.
	Leased bool
	// Untouched is true if the upgrade has not disturbed its node, and Over is why no further node may be
	// disturbed. Doubtful are nodes whose upgrades are in progress and whose outcome must be known first.
	Untouched bool
	Over      error
	Doubtful  []string
}

// Kind is the kind of a verdict.
type Kind int

// The kinds of verdicts.
const (
	// Go: nothing is in the way.
	Go Kind = iota
	// Wait: what is in the way may pass.
	Wait
	// Yield: the upgrade ends here without a failure and without having done anything to its node, so that the
	// run can use the time for other nodes. The error of the verdict is one of this package.
	Yield
	// Abort: waiting does not help.
	Abort
)

// Verdict is the answer to an [Ask].
type Verdict struct {
	Kind Kind
	// Missing is what is waited for, and Err is the error with which the upgrade ends.
	Missing string
	Err     error
	// Findings are in the way, and Skipped would be if the policy did not skip them.
	Findings, Skipped []cluster.Finding
	// Slow is true if only the observation took too long.
	Slow bool
}

// Permit decides. First the rules are applied, then the lease is checked. An action that follows at once also
// requires that the observation is recent enough, that no relevant step of another upgrade was taken since and,
// if the upgrade has not disturbed its node, that it may still begin.
func Permit(w World, a Ask) Verdict {
	judged := w.Policy.Skip(w.findings(a))
	made := w.standing(a, cluster.Blocking(judged))
	made.Skipped = slices.DeleteFunc(judged, func(f cluster.Finding) bool { return !f.Skipped })

	switch {
	case made.Kind != Go:
	case !w.Leased:
		made.Kind, made.Missing = Wait, "the lease was not renewed in time"
	case !a.Acts:
	case a.Stage != rule.Component && cluster.Elapsed(w.Seen, w.Now.At) > MostAge:
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

// findings returns what is in the way according to the rules. If gates are closed for a component, nothing else
// was observed.
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

// overtaken reports whether a step that invalidates the observation was taken since it began. Steps on other
// workers do not invalidate the observation for a worker that is already out of service: it was counted as
// unavailable when they began. Neither do they for a kubelet, because the budget says how many may restart at a
// time.
func (w World) overtaken() bool {
	looked := w.Looked
	if w.Step.Role == cluster.Worker && w.Occupied {
		looked.All = w.Now.Steps.All
	}

	return looked != w.Now.Steps
}

// over returns why an undisturbed node must not be disturbed; nil if it may be.
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

// standing returns the verdict for findings that are in the way.
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

// Fatal returns the error that waiting does not cure; nil if waiting may help.
func Fatal(findings []cluster.Finding) error {
	for _, finding := range findings {
		if finding.Err != nil && !cluster.Heals(finding.Err) {
			return fmt.Errorf("%s: %w", finding.Found, finding.Err)
		}
	}

	return nil
}

// ErrOccupied is returned if an operator began to upgrade the cluster just before the run.
var ErrOccupied = fmt.Errorf("%w is upgrading it", say.ErrOperator)

// ErrStopped ends an upgrade that has not touched its node, because the run must not begin another one. It is no
// failure of the upgrade.
var ErrStopped = errors.New("no further node is begun")
