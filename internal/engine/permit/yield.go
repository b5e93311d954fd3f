// SPDX-License-Identifier: MPL-2.0

package permit

import (
	"errors"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// ErrYield ends an upgrade that gives way, because workers of other upgrades use up what may be unavailable.
// It leaves its node as it found it.
var ErrYield = errors.New("other workers of this run have to come back first")

// ErrGateClosed ends the upgrade of a node that has not been touched, because a gate closed since it was
// waited for.
var ErrGateClosed = errors.New("a gate closed")

// NoPlaceError is an [ErrYield] for the lack of nodes to which the pods could go.
type NoPlaceError struct{ Why string }

func (n *NoPlaceError) Error() string { return n.Why }

func (n *NoPlaceError) Unwrap() error { return ErrYield }

// WaitsError is an [ErrYield] for nodes that were moved before and are not as they have to be, or for looks
// that take too long.
type WaitsError struct{ Why string }

func (w *WaitsError) Error() string { return w.Why }

func (w *WaitsError) Unwrap() error { return ErrYield }

// LeftError ends the upgrade of a node, or of a component, that nothing was done to yet, because somebody has
// suspended the upgrades meanwhile, or labels say that it is not its turn.
type LeftError struct{ Why string }

func (l *LeftError) Error() string { return l.Why }

// Unwrap: a node is left as it was found, and so is a component.
func (l *LeftError) Unwrap() []error { return []error{ErrYield, ErrStopped} }

// yieldTo is what the upgrade ends with that stands back for these findings; nil where it does not.
func (w World) yieldTo(a Ask, findings []cluster.Finding) error {
	if a.Stage == rule.Component {
		return componentYieldsTo(findings)
	}

	switch {
	case len(rule.OfCheck(cluster.CheckOperator, findings)) > 0:
		return nil
	case leftTo(findings) != nil:
		return leftTo(findings)
	case w.yields(a, findings):
		return standsBackFor(findings)
	case !a.nodeTouched() && onlyGates(findings):
		return ErrGateClosed
	default:
		return nil
	}
}

// componentYieldsTo is yieldTo for a component, which gives way to no other upgrade.
func componentYieldsTo(findings []cluster.Finding) error {
	if left := leftTo(findings); left != nil {
		return left
	}

	if canaries := rule.OfCheck(cluster.CheckCanary, findings); len(canaries) > 0 {
		return &LeftError{Why: canaries[0].Found}
	}

	if len(rule.OfCheck(cluster.CheckGates, findings)) > 0 {
		return ErrGateClosed
	}

	return nil
}

// nodeTouched is [Ask.Touched] as if a cordon were asked for.
func (a Ask) nodeTouched() bool {
	a.Cordons = true

	return a.Touched()
}

// onlyGates tells whether nothing but closed gates keeps an upgrade from going on: it then waits for them as
// long as they may take, and holds up nobody meanwhile.
func onlyGates(findings []cluster.Finding) bool {
	return !slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check != cluster.CheckGates })
}

// leftTo is the error of an upgrade that has done nothing yet, and leaves its node to a later run; nil where the
// findings ask for no such thing.
func leftTo(findings []cluster.Finding) error {
	index := slices.IndexFunc(findings, func(f cluster.Finding) bool {
		return f.Check == cluster.CheckSuspended && f.Err == nil || f.Check == cluster.CheckSelectors
	})
	if index < 0 {
		return nil
	}

	return &LeftError{Why: findings[index].Found}
}

// standsBackFor is what an upgrade ends with that stands back for these reasons.
func standsBackFor(findings []cluster.Finding) error {
	if index := slices.IndexFunc(findings, rule.AboutMoved); index >= 0 {
		return &WaitsError{Why: findings[index].String()}
	}

	if slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check != rule.CheckRoom && f.Check != cluster.CheckGates }) {
		return ErrYield
	}

	return &NoPlaceError{Why: findings[0].Found}
}

// yields tells whether the upgrade ends here without having done anything to its node, because the run has a
// better use for the time than to wait with it: nothing is wrong but that other upgrades of this run are in
// the way, or that a node which was moved before has to become well first. One that has cordoned its node, and
// nothing more, gives it back only to the budget: others used that up meanwhile.
func (w World) yields(a Ask, findings []cluster.Finding) bool {
	beside := len(w.Others) > 0

	// A gate that is closed as well is waited for when there is room.
	rest := slices.DeleteFunc(slices.Clone(findings), func(f cluster.Finding) bool { return f.Check == cluster.CheckGates })

	if a.Installed || a.Retried || len(rest) == 0 {
		return false
	}

	return !slices.ContainsFunc(rest, func(f cluster.Finding) bool {
		switch {
		case rule.AboutBudget(f):
			return !beside
		case f.Check == rule.CheckRoom:
			return !beside || a.Cordoned
		case rule.AboutMoved(f):
			return a.Touched()
		default:
			return true
		}
	})
}
