// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// halves are both, in the order in which people read them.
var halves = [...]cluster.Half{cluster.HalfTalos, cluster.HalfKubernetes}

// findDelegateProblems are the findings of all checks; those that block are reasons not to
// ask the operator for what the plan begins with.
func (e *Engine) findDelegateProblems(ctx context.Context, snapshot cluster.Snapshot, made plan.Plan, request Request) []cluster.Finding {
	found := e.findProblems(ctx, snapshot, made, request)

	// Nodes that a run of ours left in the middle of their upgrades are nothing that an
	// operator could finish.
	for _, step := range made.Steps {
		if !step.Finish && !step.Done {
			continue
		}

		found = append(found, cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: step.Node, Attribute: "mode",
			Found:  "an upgrade of this provider left the node in the middle of its turn, and an operator cannot finish that",
			Remedy: "Apply with mode = \"direct\" first, which continues there.",
		})
	}

	if len(made.Steps) > 0 {
		found = append(found, beyond(snapshot, made.Steps[0])...)
	}

	return found
}

// beyond are the nodes that run more than the leg leads to: an operator brings all
// of them to the one version that it is asked for, back as well.
func beyond(snapshot cluster.Snapshot, step plan.Step) []cluster.Finding {
	var findings []cluster.Finding

	for _, node := range snapshot.Managed() {
		running := version.Version{}

		switch {
		case productOf(step) == cluster.HalfKubernetes:
			for _, seen := range node.Versions {
				running = version.Highest(running, seen)
			}
		case node.Machine != nil:
			running = node.Machine.Talos
		}

		if step.To.Less(running) {
			findings = append(findings, cluster.Finding{
				Check: cluster.CheckVersions, Severity: cluster.Observed, Node: node.Name, Attribute: "mode",
				Found:  fmt.Sprintf("it runs %s %s, and the operator would take it back to %s, through which the way of the others leads", productOf(step).Name(), running, step.To),
				Remedy: "Apply with mode = \"direct\", which moves only those that are behind.",
			})
		}
	}

	return findings
}

// underway is what the operator is at work on, or about to be, where that is on the
// way to the target. One that has failed has to be asked anew.
func (e *Engine) underway(ctx context.Context, snapshot cluster.Snapshot, made plan.Plan, request Request) (plan.Step, bool) {
	report, err := e.operator.Report(ctx)
	if err != nil || report.Hold != "" || report.Deleting {
		return plan.Step{}, false
	}

	for _, half := range halves {
		said := report.Of(half)
		if said.Target == "" || said.Status == cluster.OperatorFailed || !passes(made.Hops, request.Target, half, said.Target) {
			continue
		}

		if _, reached := forgotten(snapshot, report, half); reached {
			continue
		}

		to, err := version.Parse(said.Target)
		if err != nil {
			continue
		}

		step := plan.Step{To: to}
		if half == cluster.HalfKubernetes {
			step.Component = cluster.Kubelet
		}

		return step, true
	}

	return plan.Step{}, false
}

// passes tells whether the way to the target leads through a version of a half.
func passes(way []plan.Hop, target cluster.Target, half cluster.Half, through string) bool {
	if half == cluster.HalfTalos && target.Talos.String() == through || half == cluster.HalfKubernetes && target.Kubernetes.String() == through {
		return true
	}

	for _, hop := range way {
		if half == cluster.HalfTalos && hop.Axis == plan.Talos && hop.To.Talos.String() == through ||
			half == cluster.HalfKubernetes && hop.Axis == plan.Kubernetes && hop.To.Kubernetes.String() == through {
			return true
		}
	}

	return false
}

// permanent are the findings that no waiting cures.
func permanent(findings []cluster.Finding) []cluster.Finding {
	var lasting []cluster.Finding

	for _, finding := range findings {
		if finding.Severity == cluster.Permanent {
			lasting = append(lasting, finding)
		}
	}

	return lasting
}
