// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// The lease says whether somebody has suspended the upgrades of the cluster. It is read before anything is
// started, and once more before a node to which nothing was done is cordoned. Upgrades in progress continue.

// Suspend suspends the upgrades of the cluster, with a reason for people, and touches nothing else: a run in
// progress keeps the lease. An existing suspension is not changed, and is returned. If there is no lease, one
// without a holder is created, so that the first run finds it. Errors are a [*say.Failure], or the cause of the
// context.
func (e *Engine) Suspend(ctx context.Context, reason string) (standing *cluster.Suspension, err error) {
	return e.changeSuspension(ctx, "suspend the upgrades of the cluster", &reason)
}

// Resume ends a suspension of the upgrades, whoever made it, and returns it; nil if there was none. Errors are a
// [*say.Failure], or the cause of the context.
func (e *Engine) Resume(ctx context.Context) (lifted *cluster.Suspension, err error) {
	return e.changeSuspension(ctx, "let the upgrades of the cluster go on", nil)
}

// changeSuspension writes the reason to the lease, or removes the suspension if it is nil, and returns the
// suspension that was there before. If the lease is renewed meanwhile, it tries again. Doing completes "Unable
// to".
func (e *Engine) changeSuspension(ctx context.Context, doing string, reason *string) (before *cluster.Suspension, err error) {
	if failure := e.anotherKubernetes(ctx); failure != nil {
		failure.Summary = "Unable to " + doing

		return nil, failure
	}

	bounded, cancel := e.clock.WithTimeout(ctx, acquireTimeout)
	defer cancel()

	unheard := false

	err = e.waitClosely(bounded, "", "the lease kube-system/talosupgrade to be written", minPoll, func(ctx context.Context) (bool, string, error) {
		lease, err := e.kubernetes.Lease(ctx)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		ours := unheard && reason != nil && lease.Suspended != nil && lease.Suspended.Reason == *reason
		if lease.Suspended != nil && !ours {
			before = lease.Suspended
		}

		if (lease.Suspended != nil) == (reason != nil) {
			return true, "", nil
		}

		_, err = e.kubernetes.WriteSuspension(ctx, lease, reason)
		unheard = errors.Is(err, cluster.ErrOutcomeUnknown)

		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		return true, "", nil
	})

	switch {
	case err == nil:
		return before, nil
	case ctx.Err() != nil:
		return nil, cluster.Ended(ctx)
	default:
		remedy := say.WritableRemedyOfAction
		if errors.Is(err, cluster.ErrDenied) {
			remedy = leaseRights + "invoke the action again."
		}

		return nil, &say.Failure{
			Summary: "Unable to " + doing, Seen: say.Sentence(err.Error()), State: "Whoever upgrades it goes on as before.", Remedy: remedy, Err: err,
		}
	}
}

// anotherKubernetesTimeout bounds how long a suspension waits to learn whose Kubernetes it reaches.
const anotherKubernetesTimeout = 10 * time.Second

// anotherKubernetes returns a failure without a summary if the kubeconfig belongs to another cluster than the
// talosconfig: no node has an address of a machine that discovery lists. If either list is missing or empty, nil is
// returned: the upgrades of a cluster in trouble can be suspended.
func (e *Engine) anotherKubernetes(ctx context.Context) *say.Failure {
	bounded, cancel := e.clock.WithTimeout(ctx, anotherKubernetesTimeout)
	defer cancel()

	var (
		group   errgroup.Group
		members []cluster.Member
		nodes   []cluster.KubeNode
	)

	group.Go(func() (err error) {
		members, err = e.talos.Members(bounded)

		return err
	})
	group.Go(func() (err error) {
		nodes, err = e.kubernetes.Nodes(bounded)

		return err
	})

	if group.Wait() != nil || len(members) == 0 || len(nodes) == 0 {
		return nil
	}

	known, foreign := fact.Inventory(members, nodes, e.clock.Now())

	var machines []string

	for _, node := range known {
		switch {
		case node.Member && node.Kube != nil:
			return nil
		case node.Member:
			machines = append(machines, node.Name)
		default:
			foreign = append(foreign, node.Name)
		}
	}

	return &say.Failure{
		Seen: fmt.Sprintf("The kubeconfig belongs to another cluster than the talosconfig: none of the nodes in Kubernetes (%s) has an address of a machine that Talos discovery lists (%s).",
			readable.List(foreign), readable.List(machines)),
		State:  "Nothing was touched.",
		Remedy: "Correct the kubeconfig in the provider block, or remove it if one talosconfig serves several clusters; then invoke the action again.",
		Err:    say.ErrWrongCluster,
	}
}

// resumeSuspended is the command that resumes the upgrades.
const resumeSuspended = "kubectl -n kube-system annotate lease talosupgrade upgrade.vitistack.io/suspend-"

// suspendedText says that the upgrades are suspended, a sentence without a full stop.
func suspendedText(standing cluster.Suspension) string {
	return "upgrades of this cluster are suspended " + standing.String()
}

// suspended reports whether nothing may be started now because the upgrades are suspended, and emits an event if
// that changes. It fails if the run has to stop instead of waiting.
func (r *run) suspended(ctx context.Context, made plan.Plan) (bool, error) {
	lease, _, err := r.engine.readLease(ctx)
	if ctx.Err() != nil {
		return true, r.stoppedBetween(ctx)
	}

	var unread *say.Failure
	if errors.As(err, &unread) {
		// The state of the cluster is known when all upgrades have ended.
		unread.State = ""

		return true, unread
	}

	standing, before := lease.Suspended, r.suspension
	r.suspension = standing

	switch {
	case standing == nil && before == nil:
		return false, nil
	case standing == nil:
		r.engine.emit(r.progress(cluster.Event{Kind: cluster.EventResumed, Text: "upgrades of this cluster are no longer suspended"}, made))

		return false, nil
	case before == nil || *before != *standing:
		r.engine.emit(r.progress(cluster.Event{Kind: cluster.EventSuspended, Text: suspendedText(*standing)}, made))
	}

	seen := say.Sentence(suspendedText(*standing))

	if r.request.Policy.OnSuspend == cluster.StopOnSuspend {
		return true, &say.Failure{
			Summary: "Upgrades of this cluster are suspended", Seen: seen,
			Remedy: "Ask whoever suspended them. When they may go on (" + resumeSuspended + "), run terraform apply again: it continues where the cluster is.",
			Err:    say.ErrSuspended,
		}
	}

	switch err := r.noMoreStarts(); {
	case errors.Is(err, say.ErrDeadline):
		return true, r.overtime(seen)
	case err != nil:
		return true, r.outside(err, seen)
	default:
		return true, nil
	}
}

// awaitResume waits until the upgrades are not suspended. It is called only while no upgrade is in progress.
func (r *run) awaitResume(ctx context.Context, made plan.Plan) error {
	for {
		held, err := r.suspended(ctx, made)
		if err != nil || !held {
			return err
		}

		if r.engine.clock.Sleep(ctx, maxPoll) != nil {
			return r.stoppedBetween(ctx)
		}
	}
}

// stoppedBetween returns the failure of a run that was asked to stop before it began the next upgrade.
func (r *run) stoppedBetween(ctx context.Context) error {
	if r.suspension != nil {
		return r.stopped(ctx, "while upgrades of this cluster were suspended")
	}

	return r.stopped(ctx, "between two nodes")
}

// begun returns the steps that an earlier run began.
func begun(steps []plan.Step) []plan.Step {
	return slices.DeleteFunc(slices.Clone(steps), func(step plan.Step) bool { return !step.Finish && !step.Done })
}

// suspendedNow reports whether the upgrades are known to be suspended.
func (r *run) suspendedNow(ctx context.Context) bool {
	lease, err := r.engine.kubernetes.Lease(ctx)

	return err == nil && lease.Suspended != nil
}

// suspensionFindings returns the finding that the upgrades are suspended, or that this is unknown.
func (r *run) suspensionFindings(ctx context.Context) []cluster.Finding {
	lease, err := r.engine.kubernetes.Lease(ctx)

	switch {
	case err != nil:
		return rule.NewFinding(cluster.CheckSuspended, "", fmt.Sprintf("unable to find out whether upgrades of this cluster are suspended: %v", err), leaseRemedy(err), err)
	case lease.Suspended != nil:
		return rule.NewFinding(cluster.CheckSuspended, "", suspendedText(*lease.Suspended), "", nil)
	default:
		return nil
	}
}
