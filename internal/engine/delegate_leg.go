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

// leg is one thing that the operator is asked for: a half and a version.
type leg struct {
	delegation *delegation

	step plan.Step
	half cluster.Half
	// way are the hops to the target, of which the leg is the first.
	way []plan.Hop
	// cordoned are the nodes that somebody had cordoned before.
	cordoned map[string]bool
	// before is what the object said when the operator was asked.
	before cluster.OperatorReport
	// asked tells that the operator may have been asked, since when it was.
	asked   bool
	askedAt time.Time

	// said is the last report, and when it, or the cluster, last changed.
	said    cluster.OperatorReport
	changed time.Time
	// stood tells that what the operator is asked for was seen to stand, spoke that the
	// object has changed since, and noticed that the operator has shown that it knows.
	stood, spoke, noticed bool
	// claimed is since when the operator says that it is done; zero while it does
	// not.
	claimed time.Time
	// looked is when all nodes were last looked at, running what they ran then.
	looked  time.Time
	running string
	ails    string
}

func newLeg(d *delegation, step plan.Step, way []plan.Hop) *leg {
	l := &leg{delegation: d, step: step, half: halfOf(step), way: way, cordoned: map[string]bool{}}

	for _, node := range d.snapshot.Managed() {
		if node.Kube != nil && node.Kube.Unschedulable && !node.Kube.CordonedByTalos {
			l.cordoned[node.Name] = true
		}
	}

	return l
}

// run asks, follows and verifies. What the operator was asked for is taken back
// when it does not come about, since it would try again for as long as it stands.
func (l *leg) run(ctx context.Context) error {
	if err := l.ask(ctx); err != nil {
		return l.failed(ctx, err)
	}

	if err := l.follow(ctx); err != nil {
		return l.failed(ctx, err)
	}

	// An operator that forgets to would begin again.
	kept, end := l.delegation.run.engine.outlasting(ctx)
	defer end()

	if err := l.withdraw(kept); err != nil && !errors.Is(err, cluster.ErrUnsupported) {
		l.delegation.run.engine.warn(fmt.Sprintf("%s still says that %s is wanted, although it is reached: %v", l.delegation.run.engine.operator, goalOf(l.step), err))
	}

	return nil
}

// follow waits until every node is seen to be there. What the operator says tells
// when to look, and when there is nothing left to wait for.
func (l *leg) follow(ctx context.Context) error {
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
			l.hear(report)

			if findings := l.occupied(report); len(findings) > 0 {
				return false, "", &occupiedError{findings}
			}
		}

		if done, failed := l.look(ctx); done || failed != nil {
			return done, "", failed
		}

		return false, l.words(), l.hopeless()
	})
}

// hear takes note of what the operator says.
func (l *leg) hear(report cluster.OperatorReport) {
	said, before := report.Of(l.half), l.said.Of(l.half)

	if said.Message != before.Message && said.Message != "" {
		l.delegation.run.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("%s: %s", l.delegation.run.engine.operator, said.Message)})
	}

	if said.Status != before.Status || said.Message != before.Message || said.Progress != before.Progress || said.Target != before.Target {
		l.changed = l.delegation.run.engine.clock.Now()
	}

	first, gone := l.before.Of(l.half), l.stood && said.Target == ""
	l.stood = l.stood || l.stands(said)
	l.spoke = l.spoke || said.Status.Busy() || said.Status != first.Status || said.Message != first.Message ||
		said.Progress != first.Progress || gone
	l.noticed = l.noticed || l.spoke
	l.said = report

	claims := l.noticed && !said.Status.Busy() && (said.Status == cluster.OperatorCompleted || gone)

	switch {
	case !claims:
		l.claimed = time.Time{}
	case l.claimed.IsZero():
		l.claimed = l.delegation.run.engine.clock.Now()
	}
}

// look looks at the nodes where there is reason to, and tells whether the leg is
// done. An operator that is at work is not: it may be cleaning up after itself.
func (l *leg) look(ctx context.Context) (bool, error) {
	now := l.delegation.run.engine.clock.Now()
	if now.Sub(l.looked) < lookEvery && l.claimed.IsZero() && !l.changed.After(l.looked) {
		return false, nil
	}

	snapshot, err := l.delegation.run.engine.Observe(ctx)
	if err != nil {
		return false, onlyFatal(err)
	}

	l.looked, l.delegation.snapshot = now, snapshot

	if running := versionsIn(snapshot); running != l.running && snapshot.KubernetesError == nil {
		l.running, l.changed, l.noticed = running, l.delegation.run.engine.clock.Now(), l.noticed || l.running != ""
	}

	l.ails = l.arrived(snapshot)

	return l.ails == "" && !l.said.Of(l.half).Status.Busy(), nil
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

// words are what is being waited for.
func (l *leg) words() string {
	said := l.said.Of(l.half)

	text := string(said.Status)
	if said.Progress != "" {
		text += " " + said.Progress
	}

	return strings.TrimSpace(text+quoted(said.Message)) + "; seen: " + l.ails
}

// hopeless is why there is nothing left to wait for.
func (l *leg) hopeless() error {
	now, said := l.delegation.run.engine.clock.Now(), l.said.Of(l.half)

	switch {
	case l.spoke && said.Status == cluster.OperatorFailed:
		return fmt.Errorf("%w says that it failed%s", ErrOperator, quoted(said.Message))
	case !l.noticed && now.Sub(l.askedAt) >= answerPatience:
		return fmt.Errorf("%w did not react within %s (%s); is it running, and does it look after this object?", ErrOperator, answerPatience, l.words())
	case said.Status == cluster.OperatorBlocked && now.Sub(l.changed) >= answerPatience:
		return fmt.Errorf("%w says that it is blocked%s", ErrOperator, quoted(said.Message))
	case !l.claimed.IsZero() && now.Sub(l.claimed) >= claimPatience && now.Sub(l.changed) >= claimPatience:
		return fmt.Errorf("%w says that it is done%s, and the cluster is not: %s", ErrOperator, quoted(said.Message), l.ails)
	case now.Sub(l.changed) >= l.delegation.run.request.Policy.NodeTimeout:
		return fmt.Errorf("%w made no progress within node_timeout (%s); it last said %s", ErrOperator, l.delegation.run.request.Policy.NodeTimeout, l.words())
	case l.delegation.run.late():
		return fmt.Errorf("%w: %s", ErrDeadline, l.words())
	default:
		return nil
	}
}
