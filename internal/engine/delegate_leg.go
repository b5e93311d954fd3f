// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// operatorStage is one thing that the operator is asked for: a half and a version.
type operatorStage struct {
	delegation *delegation

	step    plan.Step
	product cluster.Half
	// path are the hops to the target, of which the leg is the first.
	path []plan.Hop
	// cordoned are the nodes that somebody had cordoned before.
	cordoned map[string]bool
	// before is what the object said when the operator was asked.
	before cluster.OperatorReport
	// asked tells that the operator may have been asked, since when it was.
	asked   bool
	askedAt time.Time

	// report is the last report, and when it, or the cluster, last changed.
	report  cluster.OperatorReport
	changed time.Time
	// seenRequested tells that what the operator is asked for was seen to stand, spoke that the
	// object has changed since, and noticed that the operator has shown that it knows.
	seenRequested, seenChanged, acknowledged bool
	// doneSince is since when the operator says that it is done; zero while it does
	// not.
	doneSince time.Time
	// observedAt is when all nodes were last looked at, running what they ran then.
	observedAt time.Time
	running    string
	problem    string
}

func newOperatorStage(d *delegation, step plan.Step, way []plan.Hop) *operatorStage {
	l := &operatorStage{delegation: d, step: step, product: productOf(step), path: way, cordoned: map[string]bool{}}

	for _, node := range d.snapshot.Managed() {
		if node.Kube != nil && node.Kube.Unschedulable && !node.Kube.CordonedByTalos {
			l.cordoned[node.Name] = true
		}
	}

	return l
}

// run asks, follows and verifies. What the operator was asked for is taken back
// when it does not come about, since it would try again for as long as it stands.
func (l *operatorStage) run(ctx context.Context) error {
	if err := l.request(ctx); err != nil {
		return l.failed(ctx, err)
	}

	if err := l.follow(ctx); err != nil {
		return l.failed(ctx, err)
	}

	// An operator that forgets to would begin again.
	kept, end := l.delegation.run.engine.recordContext(ctx)
	defer end()

	if err := l.withdrawRequest(kept); err != nil && !errors.Is(err, cluster.ErrUnsupported) {
		l.delegation.run.engine.warn(fmt.Sprintf("%s still says that %s is wanted, although it is reached: %v", l.delegation.run.engine.operator, goalOf(l.step), err))
	}

	return nil
}

// follow waits until every node is seen to be there. What the operator says tells
// when to look, and when there is nothing left to wait for.
func (l *operatorStage) follow(ctx context.Context) error {
	what := fmt.Sprintf("the operator of %s to bring the cluster to %s", l.delegation.run.engine.operator, goalOf(l.step))

	return l.delegation.run.engine.waitClosely(ctx, "", what, pollOperator, func(ctx context.Context) (bool, string, error) {
		if _, _, err := l.delegation.run.lock.holds(ctx); err != nil {
			return false, "", err
		}

		report, err := l.delegation.run.engine.operator.Report(ctx)
		if err != nil && !cluster.Heals(err) {
			return false, "", err
		}

		// An API that is away says nothing about the cluster.
		if err == nil {
			l.record(report)

			if findings := l.refusals(report); len(findings) > 0 {
				return false, "", &occupiedError{findings}
			}
		}

		if done, failed := l.observe(ctx); done || failed != nil {
			return done, "", failed
		}

		return false, l.waitingFor(), l.hopeless()
	})
}

// record takes note of what the operator says.
func (l *operatorStage) record(report cluster.OperatorReport) {
	said, before := report.Of(l.product), l.report.Of(l.product)

	if said.Message != before.Message && said.Message != "" {
		l.delegation.run.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("%s: %s", l.delegation.run.engine.operator, said.Message)})
	}

	if said.Status != before.Status || said.Message != before.Message || said.Progress != before.Progress || said.Target != before.Target {
		l.changed = l.delegation.run.engine.clock.Now()
	}

	first, gone := l.before.Of(l.product), l.seenRequested && said.Target == ""
	l.seenRequested = l.seenRequested || l.requested(said)
	l.seenChanged = l.seenChanged || said.Status.Busy() || said.Status != first.Status || said.Message != first.Message ||
		said.Progress != first.Progress || gone
	l.acknowledged = l.acknowledged || l.seenChanged
	l.report = report

	claims := l.acknowledged && !said.Status.Busy() && (said.Status == cluster.OperatorCompleted || gone)

	switch {
	case !claims:
		l.doneSince = time.Time{}
	case l.doneSince.IsZero():
		l.doneSince = l.delegation.run.engine.clock.Now()
	}
}

// observe looks at the nodes where there is reason to, and tells whether the leg is
// done. An operator that is at work is not: it may be cleaning up after itself.
func (l *operatorStage) observe(ctx context.Context) (bool, error) {
	now := l.delegation.run.engine.clock.Now()
	if now.Sub(l.observedAt) < lookEvery && l.doneSince.IsZero() && !l.changed.After(l.observedAt) {
		return false, nil
	}

	snapshot, err := l.delegation.run.engine.Observe(ctx)
	if err != nil {
		return false, permanentOnly(err)
	}

	l.observedAt, l.delegation.snapshot = now, snapshot

	if running := versionsIn(snapshot); running != l.running && snapshot.KubernetesError == nil {
		l.running, l.changed, l.acknowledged = running, l.delegation.run.engine.clock.Now(), l.acknowledged || l.running != ""
	}

	l.problem = l.remaining(snapshot)

	return l.problem == "" && !l.report.Of(l.product).Status.Busy(), nil
}

// versionsIn are what the nodes run and since which boot, for comparison.
func versionsIn(snapshot cluster.Snapshot) string {
	var text strings.Builder

	for _, node := range snapshot.Managed() {
		text.WriteString(node.Name)

		if node.Machine != nil {
			text.WriteString(" " + node.Machine.Talos.String() + " " + node.Machine.BootID)
		}

		for _, component := range slices.Sorted(maps.Keys(node.Versions)) {
			text.WriteString(" " + string(component) + " " + node.Versions[component].String())
		}
	}

	return text.String()
}

// waitingFor are what is being waited for.
func (l *operatorStage) waitingFor() string {
	said := l.report.Of(l.product)

	text := string(said.Status)
	if said.Progress != "" {
		text += " " + said.Progress
	}

	return strings.TrimSpace(text+quoted(said.Message)) + "; seen: " + l.problem
}

// hopeless is why there is nothing left to wait for.
func (l *operatorStage) hopeless() error {
	now, said := l.delegation.run.engine.clock.Now(), l.report.Of(l.product)

	switch {
	case l.seenChanged && said.Status == cluster.OperatorFailed:
		return fmt.Errorf("%w says that it failed%s", ErrOperator, quoted(said.Message))
	case !l.acknowledged && now.Sub(l.askedAt) >= answerPatience:
		return fmt.Errorf("%w did not react within %s (%s); is it running, and does it look after this object?", ErrOperator, answerPatience, l.waitingFor())
	case said.Status == cluster.OperatorBlocked && now.Sub(l.changed) >= answerPatience:
		return fmt.Errorf("%w says that it is blocked%s", ErrOperator, quoted(said.Message))
	case !l.doneSince.IsZero() && now.Sub(l.doneSince) >= claimPatience && now.Sub(l.changed) >= claimPatience:
		return fmt.Errorf("%w says that it is done%s, and the cluster is not: %s", ErrOperator, quoted(said.Message), l.problem)
	case now.Sub(l.changed) >= l.delegation.run.request.Policy.NodeTimeout:
		return fmt.Errorf("%w made no progress within node_timeout (%s); it last said %s", ErrOperator, l.delegation.run.request.Policy.NodeTimeout, l.waitingFor())
	case l.delegation.run.deadlinePassed():
		return fmt.Errorf("%w: %s", ErrDeadline, l.waitingFor())
	default:
		return nil
	}
}
