// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// soak watches nodes that were moved: each must have stayed healthy for a while before the next one is disturbed.
// The rollout asks it before it starts an upgrade, and each upgrade right before it disturbs its node. The lock
// of shared guards it.
type soak struct {
	// most is how long they must stay healthy; if it is 0, nothing is watched.
	most time.Duration

	watched map[string]*soakingNode
	// passed are the transitions of the Ready conditions of the nodes that stayed healthy for long enough.
	passed map[string]time.Time
	// moved is true if an upgrade of this run has ended well.
	moved bool
}

// soakingNode is a node that has not stayed healthy for long enough yet.
type soakingNode struct {
	// since is when it became healthy; zero while it is not.
	since time.Time
	// ready is the last transition of its Ready condition.
	ready time.Time
	// waiting is when it was first waited for.
	waiting time.Time
	// ails says what is wrong with it.
	ails string
}

func newSoak(most time.Duration) *soak {
	return &soak{most: most, watched: map[string]*soakingNode{}, passed: map[string]time.Time{}}
}

// watch watches a node whose upgrade has ended.
func (w *soak) watch(step plan.Step, ready, now time.Time) {
	w.moved = true

	if w.most > 0 {
		w.watched[step.Node] = &soakingNode{since: now, ready: ready}
	}
}

// judge judges the watched nodes. Nodes that are no longer part of the cluster are dropped.
func (w *soak) judge(observed cluster.Observation, now time.Time) {
	if observed.KubernetesError != nil {
		w.suspectAll(observed.KubernetesError, now)

		return
	}

	for name, node := range w.watched {
		found, there := observed.Node(name)

		switch {
		case !there, found.Gone:
			delete(w.watched, name)

			continue
		case found.Machine == nil && found.Unreachable == nil:
			// It was not asked, because it was not watched yet when the observation began.
			continue
		}

		node.ails = ailment(observed, found)
		flapped := found.Kube != nil && !found.Kube.ReadySince.Equal(node.ready)

		switch {
		case node.ails != "":
			node.since = time.Time{}
		case node.since.IsZero(), flapped:
			node.since = now
		}

		if found.Kube != nil {
			node.ready = found.Kube.ReadySince
		}

		if node.waiting.IsZero() {
			node.waiting = now
		}

		if node.ails == "" && now.Sub(node.since) >= w.most {
			w.passed[name] = node.ready
			delete(w.watched, name)
		}
	}
}

// suspectAll records an observation that failed: what cannot be observed is not known to be healthy.
func (w *soak) suspectAll(err error, now time.Time) {
	for _, node := range w.watched {
		node.since, node.ails = time.Time{}, "it cannot be observed: "+err.Error()

		if node.waiting.IsZero() {
			node.waiting = now
		}
	}
}

// ailment returns why a node does not count as healthy; empty if it does.
func ailment(observed cluster.Observation, node cluster.Node) string {
	switch {
	case node.Kube == nil:
		return "it has no Node object in Kubernetes"
	case !node.Kube.Ready:
		return unreadyText(node)
	case node.Machine == nil:
		return fmt.Sprintf("its Talos API does not answer: %v", node.Unreachable)
	case !node.Machine.Settled():
		return fmt.Sprintf("the machine is %s and has not finished booting%s", node.Machine.Stage, rule.Unmet(*node.Machine))
	case node.Role != cluster.ControlPlane:
		return ""
	}

	if findings := rule.Etcd(observed); len(findings) > 0 {
		return findings[0].Found
	}

	return ""
}

// unreadyText says that the node is not Ready in Kubernetes.
func unreadyText(node cluster.Node) string {
	return "it is not Ready in Kubernetes: " + node.Kube.ReadyReason
}

// waiting reports whether a node has to be waited for.
func (w *soak) waiting() bool {
	return len(w.watched) > 0
}

// watches reports whether a node is among those that have to be waited for.
func (w *soak) watches(name string) bool {
	_, found := w.watched[name]

	return found
}

// unsettled returns findings about moved nodes that speak against acting on the observation. Before an upgrade
// has touched its node, each of them must have stayed healthy for long enough; from then on, each must be
// healthy. The upgrade's own node does not count. A node that had stayed healthy is watched again if it is not
// Ready, or was not meanwhile, unless another upgrade is working on it.
func (w *soak) unsettled(s rule.View, now time.Time, touched bool) []cluster.Finding {
	if w.most == 0 || s.KubernetesError != nil {
		return nil
	}

	w.judge(s.Observation, now)
	w.relapsed(s, now)

	var findings []cluster.Finding

	for _, name := range slices.Sorted(maps.Keys(w.watched)) {
		node := w.watched[name]
		if name == s.Step.Node || touched && node.ails == "" {
			continue
		}

		findings = append(findings, rule.NewFinding(rule.CheckSettle, name,
			fmt.Sprintf("a node that was moved has to stay healthy for %s before another one is disturbed: %s", w.most, node.stateText(name, now)),
			fmt.Sprintf("Look at it if it does not become healthy by itself (kubectl describe node %s, talosctl health).", name), nil)...)
	}

	return findings
}

// relapsed watches again those nodes that had stayed healthy for long enough and are no longer Ready, or were not
// meanwhile.
func (w *soak) relapsed(s rule.View, now time.Time) {
	for name, ready := range w.passed {
		node, found := s.Node(name)
		_, busy := s.Others[name]
		_, known := w.watched[name]

		if !found || node.Gone || node.Kube == nil || busy || known || name == s.Step.Node || node.Kube.ReadySince.Equal(ready) {
			continue
		}

		again := &soakingNode{since: now, ready: node.Kube.ReadySince, waiting: now}
		if !node.Kube.Ready {
			again.since, again.ails = time.Time{}, unreadyText(node)
		}

		w.watched[name] = again
	}
}

// soakState is the state of the nodes that are waited for.
type soakState struct {
	// waiting is true if there are any, and text says what is being waited for.
	waiting bool
	text    string
	// remaining is the least time until nothing has to be waited for.
	remaining time.Duration
	// late is the name of a node that has used up its time, and overdue is its state; nil if there is none.
	late    string
	overdue *soakingNode
}

// state returns the state of the nodes that are waited for; canaries are named as such.
func (w *soak) state(now time.Time, canaries []string) soakState {
	found := soakState{waiting: w.waiting(), text: w.waitText(now, canaries), remaining: w.remaining(now)}
	found.late, found.overdue = w.overdue(now)

	return found
}

// remaining returns the least time until nothing has to be waited for.
func (w *soak) remaining(now time.Time) time.Duration {
	var longest time.Duration

	for _, node := range w.watched {
		if node.since.IsZero() {
			return w.most
		}

		longest = max(longest, w.most-now.Sub(node.since))
	}

	return longest
}

// overdue returns a node that has used up its time, which begins with the first observation of it.
func (w *soak) overdue(now time.Time) (name string, node *soakingNode) {
	for _, name := range slices.Sorted(maps.Keys(w.watched)) {
		if found := *w.watched[name]; !found.waiting.IsZero() && now.Sub(found.waiting) >= w.most+guardTimeout {
			return name, &found
		}
	}

	return "", nil
}

// waitText says what is being waited for.
func (w *soak) waitText(now time.Time, canaries []string) string {
	lines := make([]string, 0, len(w.watched))

	for _, name := range slices.Sorted(maps.Keys(w.watched)) {
		line := w.watched[name].stateText(name, now)

		if slices.Contains(canaries, name) {
			line = "canary " + line
		}

		lines = append(lines, line)
	}

	return fmt.Sprintf("nodes to stay healthy for %s: %s", w.most, strings.Join(lines, "; "))
}

// stateText says in which state a node is.
func (n *soakingNode) stateText(name string, now time.Time) string {
	if n.ails != "" {
		return name + " is not healthy: " + n.ails
	}

	return name + " is healthy for " + now.Sub(n.since).Round(time.Second).String()
}

// judgeAll judges the watched nodes by an observation of the whole cluster. It first watches nodes that an
// earlier run may have moved just before it was killed: they were not Ready a while ago, and run the target of
// the present hop or, if that has moved no node yet, the version that the hop begins with.
func (w *soak) judgeAll(observed cluster.Observation, made plan.Plan, busy []plan.Step, now time.Time) {
	if w.most == 0 || len(made.Steps) == 0 {
		return
	}

	if made.Steps[0].Component != "" {
		// Nodes that have reached the end of Talos cannot be distinguished any more.
		w.judge(observed, now)

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

	others := slices.DeleteFunc(observed.Managed(), func(node cluster.Node) bool {
		return left[node.Name] || node.Machine == nil || node.Machine.Talos.Less(hop.To)
	})

	for _, node := range others {
		w.watchUnready(node, now)
	}

	if !w.moved && len(others) == 0 {
		for _, node := range notBegun(observed, made, hop.Hop) {
			w.watchUnready(node, now)
		}
	}

	w.judge(observed, now)
}

// notBegun returns the nodes in service that the hop will move, provided that it has not begun with any of them.
func notBegun(observed cluster.Observation, made plan.Plan, hop int) []cluster.Node {
	var nodes []cluster.Node

	for _, step := range made.Steps {
		switch node, found := observed.Node(step.Node); {
		case step.Hop != hop:
		case step.Finish:
			return nil
		case found && node.Available() && node.Machine != nil && node.Machine.Talos.Equal(step.From):
			nodes = append(nodes, node)
		}
	}

	return nodes
}

// watchUnready watches a node that was not Ready a while ago, unless it is known to have stayed healthy since.
func (w *soak) watchUnready(node cluster.Node, now time.Time) {
	if _, known := w.watched[node.Name]; known || node.Kube == nil {
		return
	}

	ready := node.Kube.ReadySince
	if ago := now.Sub(ready); ago < w.most && !ready.Equal(w.passed[node.Name]) {
		// The clock of the cluster may be ahead of ours.
		w.watched[node.Name] = &soakingNode{since: now.Add(-max(ago, 0)), ready: ready}
	}
}
