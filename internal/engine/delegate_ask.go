// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// ask asks the operator, in the words of its own protocol: what failed before is
// asked for anew by taking it back first.
func (l *leg) ask(ctx context.Context) error {
	bounded, cancel := l.delegation.run.engine.clock.WithTimeout(ctx, askPatience)
	defer cancel()

	// idle is since when the operator is asked for nothing.
	idle := l.delegation.run.engine.clock.Now()

	return l.delegation.run.engine.waitClosely(bounded, "", fmt.Sprintf("%s to be asked for %s", l.delegation.run.engine.operator, goalOf(l.step)), pollMost, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := l.delegation.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		report, err := l.delegation.run.engine.operator.Report(ctx)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		if found, err := l.delegation.clear(ctx, report); found || err != nil {
			return false, "what earlier runs left there to be taken away", onlyFatal(err)
		}

		if findings := l.occupied(report); len(findings) > 0 {
			return false, "", &occupiedError{findings}
		}

		said := report.Of(l.half)

		switch {
		case l.stands(said) && said.Status == cluster.OperatorFailed && !l.asked:
			idle = l.delegation.run.engine.clock.Now()

			return false, "the failure before to be taken back", l.again(ctx)
		case said.Target == "" && said.Status == cluster.OperatorFailed && l.delegation.run.engine.clock.Now().Sub(idle) < noticePatience:
			return false, "it to notice that it is asked for nothing, so that it forgets its failure", nil
		case !l.stands(said) && (report.Talos.Status.Busy() || report.Kubernetes.Status.Busy()):
			return false, fmt.Sprintf("it is at work on something else (%s%s)", said.Status, quoted(said.Message)), nil
		}

		// Also where a run before this one has asked: it may have been cut off in the
		// middle of several objects. What fails may have taken effect.
		l.asked = true

		if err := l.delegation.run.engine.once(ctx, func(ctx context.Context) error { return l.delegation.run.engine.operator.Ask(ctx, l.half, l.step.To) }); err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		l.before, l.said, l.noticed = report, report, l.stands(said) && said.Status.Busy()
		l.askedAt, l.changed = l.delegation.run.engine.clock.Now(), l.delegation.run.engine.clock.Now()
		l.delegation.run.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("asked %s for %s", l.delegation.run.engine.operator, goalOf(l.step))})

		return true, "", nil
	})
}

// stands tells whether what the leg asks for is what the operator is asked for.
func (l *leg) stands(said cluster.OperatorHalf) bool { return said.Target == l.step.To.String() }

// again takes back what has failed. An operator that cannot be asked for nothing
// goes on trying by itself.
func (l *leg) again(ctx context.Context) error {
	err := l.delegation.run.engine.once(ctx, func(ctx context.Context) error {
		return l.delegation.run.engine.operator.Withdraw(ctx, l.half, l.step.To)
	})
	l.asked = err == nil || errors.Is(err, cluster.ErrUnsupported)

	if l.asked {
		return nil
	}

	return onlyFatal(err)
}

// occupiedError is an operator that may not be asked.
type occupiedError struct{ findings []cluster.Finding }

func (o *occupiedError) Error() string { return o.findings[0].String() }

func (o *occupiedError) Unwrap() error { return ErrOperator }

// occupied is why the operator may not be asked: it is held or goes away, or
// somebody else asked it for something.
func (l *leg) occupied(report cluster.OperatorReport) []cluster.Finding {
	findings := cluster.Blocking(l.delegation.run.engine.judgeOperator(report, nil, l.delegation.run.request))

	for _, half := range halves {
		target := report.Of(half).Target
		if target == "" || half == l.half && target == l.step.To.String() || half != l.half && passes(l.way, l.delegation.run.request.Target, half, target) {
			continue
		}

		findings = append(findings, l.delegation.run.engine.operatorFinding(
			fmt.Sprintf("somebody else has asked the operator of %s to bring %s to %s, where the next leg is %s", l.delegation.run.engine.operator, half.Name(), target, goalOf(l.step)),
			"Let it finish, or take that back. "+report.Of(half).Undo))
	}

	return findings
}
