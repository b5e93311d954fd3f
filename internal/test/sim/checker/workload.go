// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// cordoned judges a change of spec.unschedulable, and remembers whose cordon it is.
func (c *Checker) cordoned(event history.Event) {
	n := c.node(event.Node)
	by := cmp.Or(event.Detail["by"], byClient)
	on := event.Detail["unschedulable"] == isTrue

	if by == byClient {
		what := "cordoned the node"
		if !on {
			what = "uncordoned the node"
		}

		c.acted(event, what)
		c.ownHands(event, what)
	}

	if !on {
		if by != byOther && n.cordonedBy == byOther {
			c.violate(S9, n.name, "lifted a cordon that somebody else had set")
		}

		switch {
		case by == byClient:
			n.lifts = 0
			c.checkExtensions(n)
		case n.cordonedBy == byClient:
			n.lifted = moment{c.now, c.at}
			n.lifts++
		}

		// When a turn ends, the calls of that turn have long been recorded.
		n.cordonedBy, n.fell = "", 0
		n.moved = by == byClient && c.atTarget(n)

		return
	}

	if by == byClient {
		if !c.begun(n) {
			c.begins(n, "was cordoned")

			if n.unpulled != "" {
				c.violate(S10, n.name, "was cordoned although its last pull of %s had failed", n.unpulled)
			}
		}

		c.checkHazards(n, "was cordoned", c.phases[n.name] == rollingBack)
		c.checkHeld(n, "cordoned")
		c.checkCanaries(n, "was cordoned")
		c.checkWorkers(n, "was cordoned")
	}

	n.cordonedBy, n.cordonedAt = by, moment{c.now, c.at}
	delete(c.evicted, n.name)
}

// pulled notes whether a node has its installer image. Images of components, which a node may pull besides its
// upgrade, do not matter to a cordon.
func (c *Checker) pulled(event history.Event) {
	image := event.Detail["image"]
	if !strings.Contains(image, installer) {
		return
	}

	c.node(event.Node).unpulled = ""

	if event.Detail["ok"] != isTrue {
		c.node(event.Node).unpulled = image
	}
}

// removed judges the eviction or the deletion of a pod.
func (c *Checker) removed(event history.Event) {
	detail := event.Detail
	if !ours(event) || detail["outcome"] == "dry-run" {
		return
	}

	pod := detail["namespace"] + "/" + detail["pod"]

	c.checkHeld(c.node(event.Node), "drained")

	if event.Kind == history.KindEvict {
		if _, begun := c.evicted[event.Node]; !begun {
			c.evicted[event.Node] = c.at
		}

		switch detail["outcome"] {
		case "evicted":
			c.acted(event, "evicted "+pod)
			c.ownHands(event, "evicted "+pod)
			c.checkBudget(event, "evicted", pod, false)
			c.checkLifted(event, "evicted", pod)
		case "blocked":
			c.acted(event, "asked for the eviction of "+pod)
		}

		return
	}

	c.acted(event, "deleted "+pod)
	c.ownHands(event, "deleted "+pod)
	c.checkBudget(event, "deleted", pod, true)
	c.checkLifted(event, "deleted", pod)
}

// checkLifted asserts S11 for a pod that comes back: somebody lifted the cordon of its node, or did so again after
// we had set it once more.
func (c *Checker) checkLifted(event history.Event, what, pod string) {
	n := c.node(event.Node)
	if n.lifts == 0 || n.lifts == 1 && n.cordonedBy != "" || !c.known(n.lifted, c.nodesRead) {
		return
	}

	c.violate(S11, event.Node, "%s %s, which comes back: somebody else had uncordoned the node", what, pod)
}

// volume notes which volumes of a node no pod on it uses.
func (c *Checker) volume(event history.Event) {
	n := c.node(event.Node)
	if n.volumes == nil {
		n.volumes = map[string]float64{}
	}

	delete(n.volumes, event.Detail["volume"])

	if event.Detail["state"] == "unused" {
		n.volumes[event.Detail["volume"]] = c.at
	}
}

// awaited is how many seconds a run has to wait for volumes, less what observations take.
const awaited = 110

// checkVolumes asserts S11 for a node that reboots because of us.
func (c *Checker) checkVolumes(n *node) {
	for _, volume := range slices.Sorted(maps.Keys(n.volumes)) {
		if c.at-n.volumes[volume] < awaited && !c.options.ignoresVolumes {
			c.violate(S11, n.name, "was rebooted while the volume %s was attached, which its last pod there had just left", volume)
		}
	}
}

// punctual is the part of a timeout that must have passed: on a clock that runs fast, events are recorded seconds
// after they happened.
const punctual = 0.9

// checkBudget asserts S11 for a pod that was removed because of us.
func (c *Checker) checkBudget(event history.Event, what, pod string, mayForce bool) {
	budget := event.Detail["budget"]
	if budget == "" {
		return
	}

	since, tried := c.evicted[event.Node]

	switch {
	case !mayForce || !c.options.drainDelete:
		c.violate(S11, event.Node, "%s %s although the budget %s had nothing to give", what, pod, budget)
	case !tried || c.at-since < c.options.drainTimeout*punctual:
		c.violate(S11, event.Node, "%s %s against the budget %s before the drain had timed out", what, pod, budget)
	}
}
