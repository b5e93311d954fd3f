// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// observeAll takes an observation into account: of the nodes that are watched, and of
// those that an earlier run may have moved just before it was killed. These run
// what the present hop leads to or, where it has moved nobody yet, what it
// begins with, and were not Ready a while ago.
func (w *soak) observeAll(snapshot cluster.Snapshot, made plan.Plan, busy []plan.Step, now time.Time) {
	if w.most == 0 || len(made.Steps) == 0 {
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if made.Steps[0].Component != "" {
		// Whoever has reached the end of Talos is not told apart any more.
		w.judge(snapshot, now)

		return
	}

	hop := made.Steps[0]
	left := map[string]bool{}

	for _, step := range made.Steps {
		if step.Hop < hop.Hop {
			hop = step
		}
	}

	for _, step := range made.Steps {
		left[step.Node] = left[step.Node] || step.Hop == hop.Hop
	}

	for _, step := range busy {
		left[step.Node] = true
	}

	for _, held := range made.Held {
		left[held] = true
	}

	others := slices.DeleteFunc(snapshot.Managed(), func(node cluster.Node) bool {
		return left[node.Name] || node.Machine == nil || node.Machine.Talos.Less(hop.To)
	})

	for _, node := range others {
		w.resume(node, now)
	}

	if !w.moved && len(others) == 0 {
		for _, node := range notBegun(snapshot, made, hop.Hop) {
			w.resume(node, now)
		}
	}

	w.judge(snapshot, now)
}

// notBegun are the nodes in service that the hop is to move, provided that it
// has not begun with any of them.
func notBegun(snapshot cluster.Snapshot, made plan.Plan, hop int) []cluster.Node {
	var nodes []cluster.Node

	for _, step := range made.Steps {
		switch node, found := snapshot.Node(step.Node); {
		case step.Hop != hop:
		case step.Finish:
			return nil
		case found && node.Available() && node.Machine != nil && node.Machine.Talos.Equal(step.From):
			nodes = append(nodes, node)
		}
	}

	return nodes
}

// resume watches a node that was not Ready a while ago, unless it is known to
// have stayed healthy since.
func (w *soak) resume(node cluster.Node, now time.Time) {
	if _, known := w.watched[node.Name]; known || node.Kube == nil {
		return
	}

	ready := node.Kube.ReadySince
	if ago := now.Sub(ready); ago < w.most && !ready.Equal(w.passed[node.Name]) {
		// The clock of the cluster may be ahead of ours.
		w.watched[node.Name] = &soakingNode{since: now.Add(-max(ago, 0)), ready: ready}
	}
}
