// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// remaining is what shows that the cluster is not where the leg leads to, by our own
// observation alone; empty where it is. Cordons that stood before are nobody's
// fault.
func (l *operatorStage) remaining(snapshot cluster.Snapshot) string {
	if snapshot.KubernetesError != nil {
		return fmt.Sprintf("the Kubernetes API does not answer: %v", snapshot.KubernetesError)
	}

	target := cluster.Target{Talos: l.step.To}
	if l.product == cluster.HalfKubernetes {
		target = cluster.Target{Kubernetes: l.step.To}
	}

	made := plan.Make(snapshot, target, l.delegation.run.request.Policy)
	missing := slices.Clone(made.Elsewhere)

	for index := range made.Steps {
		missing = append(missing, made.Steps[index].Node)
	}

	slices.Sort(missing)

	if missing = slices.Compact(missing); len(missing) > 0 {
		return fmt.Sprintf("not at %s: %s", goalOf(l.step), strings.Join(missing, ", "))
	}

	for _, node := range snapshot.Managed() {
		if wrong := ailment(snapshot, node); wrong != "" {
			return node.Name + ": " + wrong
		}

		if node.Kube != nil && node.Kube.Unschedulable && !l.cordoned[node.Name] {
			return node.Name + " is cordoned"
		}
	}

	return ""
}

// withdrawRequest takes back what the operator was asked for, as long as it is ours to
// do so.
func (l *operatorStage) withdrawRequest(ctx context.Context) error {
	bounded, cancel := l.delegation.run.engine.clock.WithTimeout(ctx, askPatience)
	defer cancel()

	return l.delegation.run.engine.waitClosely(bounded, "", goalOf(l.step)+" to be taken back", minPoll, func(ctx context.Context) (bool, string, error) {
		err := l.delegation.run.engine.operator.Withdraw(ctx, l.product, l.step.To)
		if err != nil && cluster.Heals(err) {
			return false, err.Error(), nil
		}

		return err == nil, "", err
	})
}

// failed is the failure of a leg. Before it is told the operator is asked for
// nothing any more, where that is possible.
func (l *operatorStage) failed(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if lost := errors.Join(err, cause); errors.Is(lost, ErrLeaseLost) && !errors.Is(lost, errLeaseFreed) {
		// What the operator is asked for is the other run's to say.
		failure := l.delegation.run.stopped(ctx, "while the operator was at work")
		failure.State = strings.TrimSpace(fmt.Sprintf("%s may say that %s is wanted; whoever holds the lease now decides about that. %s", l.delegation.run.engine.operator, goalOf(l.step), l.report.Of(l.product).Undo))

		return failure
	}

	failure := &Failure{
		Summary: fmt.Sprintf("Unable to bring the cluster to %s through %s", goalOf(l.step), l.delegation.run.engine.operator),
		Seen:    sentence(err.Error()), State: l.withdrawAndDescribe(ctx), Remedy: l.remedy(err), Err: err,
	}

	var occupied *occupiedError

	switch {
	case errors.Is(cause, ErrLeaseLost):
		failure.Summary, failure.Err = "Unable to go on with the upgrade", cause
		failure.Seen, failure.Remedy = sentence(cause.Error()), lostRemedy(cause)
	case ctx.Err() != nil:
		failure.Summary, failure.Err = "The upgrade was cancelled", cause
		failure.Seen, failure.Remedy = "It was stopped while "+l.delegation.run.engine.operator.String()+" was followed.", resumeRemedy
	case errors.As(err, &occupied):
		failure.Seen, failure.Findings = "", occupied.findings
	case errors.Is(err, ErrDeadline):
		failure.Summary = "Unable to finish the upgrade in the time that timeouts allow"
	}

	if names := l.report.FailedNodes; len(names) > 0 && l.acknowledged {
		failure.Node = names[0]
		failure.State += " By its own account it failed at " + strings.Join(names, ", ") + "."
	}

	return failure
}

// withdrawAndDescribe takes back what the operator was asked for, and says how it is left.
func (l *operatorStage) withdrawAndDescribe(ctx context.Context) string {
	if !l.asked {
		return "The operator was asked for nothing."
	}

	kept, end := l.delegation.run.engine.cleanupContext(ctx)
	defer end()

	err := l.withdrawRequest(kept)

	switch {
	case errors.Is(err, cluster.ErrUnsupported):
		return fmt.Sprintf("What was asked for cannot be taken back: the operator goes on trying for as long as %s says %s.", l.delegation.run.engine.operator, goalOf(l.step))
	case err != nil:
		return strings.TrimSpace(sentence(fmt.Sprintf("%s may still say that %s is wanted, for as long as which its operator goes on trying: %v", l.delegation.run.engine.operator, goalOf(l.step), err)) +
			" " + l.report.Of(l.product).Undo)
	default:
		return "What was asked for was taken back, so that the operator does not begin again; what it is at may go on."
	}
}

// remedy is what a person can do about a leg that failed.
func (l *operatorStage) remedy(err error) string {
	switch {
	case errors.Is(err, ErrDeadline):
		return "Run terraform apply again to continue, or raise timeouts.create and timeouts.update."
	case errors.Is(err, cluster.ErrDenied), errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrNotFound):
		return unreadRemedy(err) + " Then run terraform apply again."
	case !l.acknowledged && l.asked:
		return "Look at the operator (its logs, and whether it watches this object's namespace), then run terraform apply again; or apply with mode = \"direct\"."
	default:
		return "Look at the logs of the operator and at the nodes, then run terraform apply again: it asks anew."
	}
}
