// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// outline tells what is about to be done, or what forbids it; nothing where there
// is neither.
func (e *Engine) outline(snapshot cluster.Snapshot, made plan.Plan, findings []cluster.Finding, request Request) {
	if len(made.Steps) == 0 && len(cluster.Blocking(findings)) == 0 {
		return
	}

	outline := cluster.Outline{
		ClusterID: snapshot.ID, Nodes: snapshot.Nodes, Held: made.Held,
		Turns: make([]cluster.Turn, 0, len(made.Steps)), Estimate: made.Estimate(), Findings: findings,
	}

	for _, step := range made.Steps {
		outline.Turns = append(outline.Turns, cluster.Turn{
			Node: step.Node, Role: step.Role, Component: step.Component, From: step.From, To: step.To,
			Image: step.Image, Estimate: step.Estimate, Canary: step.Canary, Finish: step.Finish,
		})
	}

	// It claims nothing of how far the halves are: there is no lease yet under which
	// anybody could say so.
	e.emit(cluster.Event{Kind: cluster.EventPlanned, Target: request.Target, Outline: &outline})
}
