// SPDX-License-Identifier: MPL-2.0

package permit

import (
	"errors"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// ErrYield ends an upgrade because workers of other upgrades use up the budget of unavailable workers. It leaves
// its node as it found it.
var ErrYield = errors.New("other workers of this run have to come back first")

// ErrGateClosed ends the upgrade of a node that has not been touched, because a gate closed after it was waited
// for.
var ErrGateClosed = errors.New("a gate closed")

// NoPlaceError is an [ErrYield] because no other node can take the pods.
type NoPlaceError struct{ Why string }

func (n *NoPlaceError) Error() string { return n.Why }

func (n *NoPlaceError) Unwrap() error { return ErrYield }

// WaitsError is an [ErrYield] because nodes that were moved before are not in the required state, or because
// observations take too long.
type WaitsError struct{ Why string }

func (w *WaitsError) Error() string { return w.Why }

func (w *WaitsError) Unwrap() error { return ErrYield }

// LeftError ends the upgrade of a node, or of a component, before anything was done to it, because the upgrades
// were suspended meanwhile, because labels hold the node, or because a canary has to go first.
type LeftError struct{ Why string }

func (l *LeftError) Error() string { return l.Why }

// Unwrap returns both errors, because the node or component is left as it was found.
func (l *LeftError) Unwrap() []error { return []error{ErrYield, ErrStopped} }

// yieldTo returns the error with which the upgrade yields to these findings; nil if it does not yield.
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

// componentYieldsTo is [World.yieldTo] for a component, which yields to no other upgrade.
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

// nodeTouched is [Ask.Touched] regardless of whether a cordon is asked for.
func (a Ask) nodeTouched() bool {
	a.Cordons = true

	return a.Touched()
}

// onlyGates reports whether nothing but closed gates prevents an upgrade: it then waits for them as long as their
// timeouts allow, without holding up other upgrades.
func onlyGates(findings []cluster.Finding) bool {
	return !slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check != cluster.CheckGates })
}

// leftTo returns the error of an upgrade that has done nothing yet and leaves its node to a later run; nil if the
// findings do not require that.
func leftTo(findings []cluster.Finding) error {
	index := slices.IndexFunc(findings, func(f cluster.Finding) bool {
		return f.Check == cluster.CheckSuspended && f.Err == nil || f.Check == cluster.CheckSelectors
	})
	if index < 0 {
		return nil
	}

	return &LeftError{Why: findings[index].Found}
}

// standsBackFor returns the error with which an upgrade yields for these reasons.
func standsBackFor(findings []cluster.Finding) error {
	if index := slices.IndexFunc(findings, rule.AboutMoved); index >= 0 {
		return &WaitsError{Why: findings[index].String()}
	}

	if slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check != rule.CheckRoom && f.Check != cluster.CheckGates }) {
		return ErrYield
	}

	return &NoPlaceError{Why: findings[0].Found}
}

// yields reports whether the upgrade ends here without having done anything to its node, so that the run can use
// the time for other nodes: the only findings are about other upgrades of this run, or about a node moved before
// that has to become healthy first. An upgrade that has only cordoned its node yields only if others have used up
// the budget meanwhile.
func (w World) yields(a Ask, findings []cluster.Finding) bool {
	beside := len(w.Others) > 0

	// Closed gates are waited for once there is room.
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
