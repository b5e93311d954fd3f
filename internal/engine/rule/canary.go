// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// canaries requires every canary to run what the step leads to, and to be in service. That stops other nodes even
// if their upgrades have begun.
func canaries(s View) []cluster.Finding {
	if s.Step.Canary || s.Returning || s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for _, name := range s.Policy.Canaries() {
		// A missing canary has left the cluster, and the plan reports other problems.
		if node, found := s.Node(name); found && !node.Left() && node.Role == cluster.Worker && !s.Policy.Hold[name] {
			findings = append(findings, plan.Faltering(s.Policy, node, s.Step)...)
		}
	}

	return findings
}

// kubeletCanaries requires the kubelet of every canary to be replaced before others: labels may have made a node
// a canary since the plan was made, or hold one.
func kubeletCanaries(s View) []cluster.Finding {
	if !s.Starting || s.Step.Component != cluster.Kubelet || s.Step.Canary || s.KubernetesError != nil {
		return nil
	}

	for _, name := range s.Policy.Selected.Canaries {
		node, found := s.Node(name)
		if found && !node.Gone && plan.BehindKubelet(node, s.Step) {
			return NewFinding(cluster.CheckCanary, name, fmt.Sprintf("this canary runs the kubelet %s, and the other nodes get %s only behind it", node.Kube.Kubelet, s.Step.To),
				"Nothing has to be done: it is planned to go first.", nil)
		}
	}

	return nil
}

// AboutMoved reports whether the finding is about a node that was moved before.
func AboutMoved(f cluster.Finding) bool {
	return f.Check == cluster.CheckCanary || f.Check == CheckSettle
}
