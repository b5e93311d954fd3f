// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// chosen is the effect of labels on a node: since is when it began, zero if there was none in the present run. An
// effect that a run has observed lasts until it releases its lease.
type chosen struct {
	since moment
	now   bool
}

// pool is a part of the workers, chosen by labels.
type pool struct {
	name    string
	matches func(labels map[string]string) bool
	most    func(workers int) int
}

// labelled follows the labels of a Node object.
func (c *Checker) labelled(event history.Event) {
	n := c.node(event.Node)
	n.labels, n.labelledAt = map[string]string{}, moment{c.now, c.at}
	n.unread = event.Detail["object"] == "none"

	for pair := range strings.SplitSeq(event.Detail["labels"], ",") {
		if name, value, found := strings.Cut(pair, "="); found {
			n.labels[name] = value
		}
	}

	c.relabel(n)
}

// relabel updates the effects of the labels of a node. Labels that cannot be read may be those that hold it.
func (c *Checker) relabel(n *node) {
	holds := func(labels map[string]string) bool { return n.unread || c.options.holds(labels) }
	if c.options.holds == nil {
		holds = nil
	}

	n.heldBy = c.choose(n.heldBy, holds, n)

	if n.role == worker {
		n.canaryBy = c.choose(n.canaryBy, c.options.leads, n)
	}
}

// choose returns the effect of the labels of a node now. An effect that came and went without an observation is not
// known.
func (c *Checker) choose(before chosen, matches func(labels map[string]string) bool, n *node) chosen {
	after := before
	after.now = matches != nil && matches(n.labels)

	switch {
	case after.now && before.since == moment{}:
		after.since = n.labelledAt
	case !after.now && c.nodesRead <= before.since.place:
		after.since = moment{}
	}

	return after
}

// forget ends the effect of labels in an earlier run.
func (c *chosen) forget() {
	if !c.now {
		c.since = moment{}
	}
}

// chosenFor reports whether a run that disturbs the node has to know the effect of labels on another one, or on
// itself: it began before the node's turn, and there was an observation.
func (c *Checker) chosenFor(n *node, made chosen) bool {
	before := n.cordonedBy == byClient && n.cordonedAt.place < made.since.place

	return made.since != moment{} && !before && c.known(made.since, c.nodesRead)
}

// isCanary reports whether the node is a canary.
func (c *Checker) isCanary(n *node) bool {
	return c.options.canary[n.name] || n.canaryBy.since != moment{}
}

// isCanaryFor reports whether the node is a canary for which the other one waits.
func (c *Checker) isCanaryFor(canary, n *node) bool {
	return c.options.canary[canary.name] || c.chosenFor(n, canary.canaryBy)
}

// checkPools asserts S10 for a worker that becomes unavailable in its pool because of a run. away are the workers
// that are unavailable besides it.
func (c *Checker) checkPools(n *node, what string, away []*node) {
	for _, pool := range c.options.pools {
		if !pool.matches(n.labels) || !c.settledLabels(n) {
			continue
		}

		var (
			workers int
			names   []string
		)

		for _, other := range c.workers() {
			if !c.gone(other) && pool.matches(other.labels) {
				workers++

				if slices.Contains(away, other) && c.settledLabels(other) {
					names = append(names, other.name)
				}
			}
		}

		if most := max(pool.most(workers), 1); len(names)+1 > most {
			c.violate(S10, n.name, "%s although %d of the pool %s may be unavailable at a time and these were: %s", what, most, pool.name, strings.Join(names, ", "))
		}
	}
}

// settledLabels reports whether a run has to know the labels of the node.
func (c *Checker) settledLabels(n *node) bool {
	return n.labelledAt == moment{} || c.known(n.labelledAt, c.nodesRead)
}
