// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// guard is one condition for disturbing a node. Unknown counts as not holding.
type guard struct {
	name  string
	check func(snapshot cluster.Snapshot, step plan.Step) []cluster.Finding
	// unarmed limits it to nodes on which nothing is installed yet.
	unarmed bool
}

// defaultGuards are checked before the cordon, before the install and before
// the reboot, each time on a new observation.
func defaultGuards() []guard {
	return []guard{
		{name: "kubernetes-api", check: guardKubernetes},
		{name: "talos-api", check: guardMachines},
		{name: "etcd-members", check: guardMembers},
		{name: "etcd-quorum", check: guardQuorum},
		{name: "etcd-alarms", check: guardAlarms},
		{name: "etcd-raft-lag", check: guardLag},
		{name: "control-planes", check: guardControlPlanes},
		{name: "nodes-ready", check: guardBudget},
		{name: "pending-install", check: guardPending, unarmed: true},
	}
}

// guarded waits until every guard holds on an observation of its own, and the
// lease is ours. It fails when that does not come about in time, or when
// waiting cannot help. An armed node has all the time that its turn has: to
// stop with it is worse than to wait.
func (t *turn) guarded(ctx context.Context, before string) error {
	patience := guardPatience
	if t.armed {
		patience = t.request.Policy.NodeTimeout
	}

	bounded, cancel := t.clock.WithTimeout(ctx, patience)
	defer cancel()

	var last []cluster.Finding

	err := t.wait(bounded, t.step.Node, "it to be safe to "+before+" "+t.step.Node, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := t.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		snapshot, err := t.observe(ctx, func(node cluster.Node) bool {
			return node.Role == cluster.ControlPlane || node.Name == t.step.Node
		})
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		last = nil
		for _, guard := range t.guards {
			if !guard.unarmed || !t.armed {
				last = append(last, guard.check(snapshot, t.step)...)
			}
		}

		if len(last) == 0 {
			node, _ := snapshot.Node(t.step.Node)
			t.seen, t.looked = *node.Machine, snapshot.Taken

			// The observation took its time; the lease must have outlived it.
			return t.lock.holds(ctx)
		}

		return false, last[0].String(), fatal(last)
	})
	if err == nil {
		return nil
	}

	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return err
	}

	return &guardError{before: before, findings: last, err: err}
}

// guardError is a guard that did not come to hold.
type guardError struct {
	before   string
	findings []cluster.Finding
	err      error
}

func (g *guardError) Error() string { return g.err.Error() }

func (g *guardError) Unwrap() []error { return []error{ErrGuard, g.err} }

// onlyFatal passes on an error that waiting does not cure.
func onlyFatal(err error) error {
	if cluster.Heals(err) {
		return nil
	}

	return err
}

// fatal is the error among the findings that waiting does not cure, if any.
func fatal(findings []cluster.Finding) error {
	for _, finding := range findings {
		if finding.Err != nil && !cluster.Heals(finding.Err) {
			return fmt.Errorf("%s: %w", finding.Found, finding.Err)
		}
	}

	return nil
}

// unsafe makes the finding of a guard.
func unsafe(check, node, found string, err error) []cluster.Finding {
	return []cluster.Finding{{Check: check, Severity: cluster.Observed, Node: node, Found: found, Err: err}}
}

func guardKubernetes(snapshot cluster.Snapshot, _ plan.Step) []cluster.Finding {
	if snapshot.KubernetesError == nil {
		return nil
	}

	return unsafe("kubernetes-api", "", "the Kubernetes API does not answer: "+snapshot.KubernetesError.Error(), snapshot.KubernetesError)
}

// guardMachines wants an answer from every control plane and from the node
// itself, which must be there and neither booting nor going down.
func guardMachines(snapshot cluster.Snapshot, step plan.Step) []cluster.Finding {
	var findings []cluster.Finding

	node, found := snapshot.Node(step.Node)
	if !found {
		return unsafe("talos-api", step.Node, "the node is no longer part of the cluster", nil)
	}

	if node.Machine != nil && node.Machine.Stage != cluster.StageRunning {
		findings = append(findings, unsafe("talos-api", node.Name, fmt.Sprintf("the machine is %s", node.Machine.Stage), nil)...)
	}

	for _, other := range snapshot.Managed() {
		if other.Machine == nil && (other.Name == step.Node || other.Role == cluster.ControlPlane) {
			findings = append(findings, unsafe("talos-api", other.Name, fmt.Sprintf("its Talos API does not answer: %v", other.Unreachable), other.Unreachable)...)
		}
	}

	return findings
}

// guardControlPlanes wants every other control plane whole: finished booting
// and Ready, whatever is about to be disturbed.
func guardControlPlanes(snapshot cluster.Snapshot, step plan.Step) []cluster.Finding {
	var findings []cluster.Finding

	for _, node := range snapshot.ControlPlanes() {
		if node.Name == step.Node {
			continue
		}

		switch {
		case node.Machine != nil && !node.Machine.Settled():
			findings = append(findings, unsafe("control-planes", node.Name,
				fmt.Sprintf("this control plane is %s and not settled %v", node.Machine.Stage, node.Machine.Unmet), nil)...)
		case node.Kube == nil || !node.Kube.Ready:
			findings = append(findings, unsafe("control-planes", node.Name, "this control plane is not Ready in Kubernetes", nil)...)
		}
	}

	return findings
}

// guardBudget keeps at most one worker unavailable. A node that is unavailable
// without our doing costs nothing.
func guardBudget(snapshot cluster.Snapshot, step plan.Step) []cluster.Finding {
	node, found := snapshot.Node(step.Node)
	if !found || node.Role != cluster.Worker || node.Kube == nil {
		return nil
	}

	if !node.Kube.Ready || (node.Kube.Unschedulable && node.Kube.CordonedBy == "") {
		return nil
	}

	for _, other := range snapshot.Workers() {
		if other.Name != step.Node && !other.Available() {
			return unsafe("nodes-ready", other.Name, "this worker is not Ready or cordoned, and one worker may be unavailable at a time", nil)
		}
	}

	return nil
}

// guardPending refuses to touch a system that has not confirmed itself: an
// install now would overwrite the one it could return to.
func guardPending(snapshot cluster.Snapshot, step plan.Step) []cluster.Finding {
	node, found := snapshot.Node(step.Node)
	if !found || node.Machine == nil || !node.Machine.UpgradePending {
		return nil
	}

	return unsafe("pending-install", node.Name, "the running system has not confirmed its own upgrade yet", nil)
}
