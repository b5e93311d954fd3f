// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// request asks the operator, in the words of its own protocol: what failed before is
// asked for anew by taking it back first.
func (l *operatorStage) request(ctx context.Context) error {
	bounded, cancel := l.delegation.run.engine.clock.WithTimeout(ctx, askPatience)
	defer cancel()

	// idle is since when the operator is asked for nothing.
	idle := l.delegation.run.engine.clock.Now()

	return l.delegation.run.engine.waitClosely(bounded, "", fmt.Sprintf("%s to be asked for %s", l.delegation.run.engine.operator, goalOf(l.step)), maxPoll, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := l.delegation.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		report, err := l.delegation.run.engine.operator.Report(ctx)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		if found, err := l.delegation.cleanUpOne(ctx, report); found || err != nil {
			return false, "what earlier runs left there to be taken away", permanentOnly(err)
		}

		if findings := l.refusals(report); len(findings) > 0 {
			return false, "", &occupiedError{findings}
		}

		said := report.Of(l.product)

		switch {
		case l.requested(said) && said.Status == cluster.OperatorFailed && !l.asked:
			idle = l.delegation.run.engine.clock.Now()

			return false, "the failure before to be taken back", l.withdrawFailed(ctx)
		case said.Target == "" && said.Status == cluster.OperatorFailed && l.delegation.run.engine.clock.Now().Sub(idle) < noticePatience:
			return false, "it to notice that it is asked for nothing, so that it forgets its failure", nil
		case !l.requested(said) && (report.Talos.Status.Busy() || report.Kubernetes.Status.Busy()):
			return false, fmt.Sprintf("it is at work on something else (%s%s)", said.Status, quoted(said.Message)), nil
		}

		// Also where a run before this one has asked: it may have been cut off in the
		// middle of several objects. What fails may have taken effect.
		l.asked = true

		if err := l.delegation.run.engine.callWhole(ctx, func(ctx context.Context) error {
			return l.delegation.run.engine.operator.Ask(ctx, l.product, l.step.To)
		}); err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		l.before, l.report, l.acknowledged = report, report, l.requested(said) && said.Status.Busy()
		l.askedAt, l.changed = l.delegation.run.engine.clock.Now(), l.delegation.run.engine.clock.Now()
		l.delegation.run.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("asked %s for %s", l.delegation.run.engine.operator, goalOf(l.step))})

		return true, "", nil
	})
}

// requested tells whether what the leg asks for is what the operator is asked for.
func (l *operatorStage) requested(said cluster.OperatorHalf) bool {
	return said.Target == l.step.To.String()
}

// withdrawFailed takes back what has failed. An operator that cannot be asked for nothing
// goes on trying by itself.
func (l *operatorStage) withdrawFailed(ctx context.Context) error {
	err := l.delegation.run.engine.callWhole(ctx, func(ctx context.Context) error {
		return l.delegation.run.engine.operator.Withdraw(ctx, l.product, l.step.To)
	})
	l.asked = err == nil || errors.Is(err, cluster.ErrUnsupported)

	if l.asked {
		return nil
	}

	return permanentOnly(err)
}

// occupiedError is an operator that may not be asked.
type occupiedError struct{ findings []cluster.Finding }

func (o *occupiedError) Error() string { return o.findings[0].String() }

func (o *occupiedError) Unwrap() error { return ErrOperator }

// refusals is why the operator may not be asked: it is held or goes away, or
// somebody else asked it for something.
func (l *operatorStage) refusals(report cluster.OperatorReport) []cluster.Finding {
	findings := cluster.Blocking(l.delegation.run.engine.judgeOperator(report, nil, l.delegation.run.request))

	for _, half := range halves {
		target := report.Of(half).Target
		if target == "" || half == l.product && target == l.step.To.String() || half != l.product && passes(l.path, l.delegation.run.request.Target, half, target) {
			continue
		}

		findings = append(findings, l.delegation.run.engine.operatorFinding(
			fmt.Sprintf("somebody else has asked the operator of %s to bring %s to %s, where the next leg is %s", l.delegation.run.engine.operator, half.Name(), target, goalOf(l.step)),
			"Let it finish, or take that back. "+report.Of(half).Undo))
	}

	return findings
}
