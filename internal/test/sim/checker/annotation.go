// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// annotated asserts S8. It compares with the truth when the annotation is written and when the target becomes
// known, because an annotation that becomes untrue later cannot be taken back in time.
func (c *Checker) annotated(event history.Event) {
	c.operatorTold(event)

	key, value := event.Detail["key"], event.Detail["value"]
	if !ours(event) || value == "" {
		return
	}

	c.publishes(event, "the annotation "+key)
	c.claims[key] = value

	if c.claimed(key, value) {
		return
	}

	switch key {
	case keyTalosCurrent:
		c.checkCurrent(key, value)
	case "talos-progress":
		c.checkProgress(value)
	case "talos-status":
		c.checkStatus(key, value)
		c.checkRollingBack(value)
	case "failed-nodes":
		c.checkFailedNodes(value)
	case "kubernetes-current":
		c.checkKubernetesCurrent(key, value)
	case "kubernetes-progress":
		c.checkKubernetesProgress(value)
	case "kubernetes-status":
		c.checkKubernetesStatus(key, value)
	}
}

// claimed judges the claims that both halves have, and reports whether no more can be judged about the annotation.
func (c *Checker) claimed(key, value string) bool {
	half, rest, _ := strings.Cut(key, "-")
	if half != "talos" && half != "kubernetes" {
		return false
	}

	switch rest {
	case "current", "target":
		return !c.checkVersion(key, value)
	case "available":
		c.checkAvailable(half+"-", key, value)
	case "message":
		c.checkMessage(half+"-", key, value)
	case "status":
		c.checkWord(key, value)
	}

	return false
}

// checkWord asserts that a status is one of the protocol's.
func (c *Checker) checkWord(key, value string) {
	switch value {
	case "idle":
		if key == "talos-status" {
			c.checkIdle(key, func(n *node) bool { return n.goingDown })
		} else {
			c.checkIdle(key, func(n *node) bool { return len(n.underway()) > 0 })
		}
	case "pending", "in-progress", completed, "failed", "blocked", rollingBack:
	default:
		c.notInProtocol(key, value)
	}
}

// checkClaims judges the claims of the run again once its target is known.
func (c *Checker) checkClaims() {
	if progress := c.claims["talos-progress"]; progress != "" {
		c.checkProgress(progress)
	}

	c.checkStatus("talos-status", c.claims["talos-status"])
}

// members returns the machines that annotations are about: not those that are held, unless they had moved before.
func (c *Checker) members() []*node {
	var members []*node

	for _, n := range c.all() {
		behind := parse(c.target).IsZero() || parse(n.talos).Less(parse(c.target))
		if !c.gone(n) && !c.options.held[n.name] && !(n.heldBy.since != moment{} && behind) {
			members = append(members, n)
		}
	}

	return members
}

func (c *Checker) checkCurrent(label, value string) {
	claimed := parse(value)

	for _, n := range c.members() {
		if running := parse(n.talos); !running.IsZero() && running.Less(claimed) {
			c.violate(S8, n.name, "%s says %s, but the node runs %s", label, value, n.talos)

			return
		}
	}
}

// atTargetMost returns how many machines can be at the target: as many as run any one version that is not older
// than the one that the run installs now. The run says that only with its first install, and the way to the target
// may lead through other versions.
func (c *Checker) atTargetMost() (most, total int) {
	counts := map[string]int{}

	for _, n := range c.members() {
		counts[n.talos]++
		total++
	}

	installs := parse(c.target)

	for running, count := range counts {
		if !parse(running).Less(installs) {
			most = max(most, count)
		}
	}

	return most, total
}

func (c *Checker) checkProgress(value string) {
	var done, of int
	if _, err := fmt.Sscanf(value, "%d/%d", &done, &of); err != nil {
		c.violate(S8, "", "talos-progress says %q, which is no progress", value)

		return
	}

	if most, total := c.atTargetMost(); done > most || done >= of && most < total {
		c.violate(S8, "", "talos-progress says %s, but %d of %d nodes run the target", value, most, total)
	}
}

func (c *Checker) checkStatus(label, value string) {
	if value != completed {
		return
	}

	newest := parse(c.target)
	if newest.IsZero() {
		var running []version.Version
		for _, n := range c.members() {
			running = append(running, parse(n.talos))
		}

		newest = version.Highest(running...)
	}

	for _, n := range c.members() {
		if parse(n.talos).Less(newest) {
			c.violate(S8, n.name, "%s says completed, but the node runs %s", label, n.talos)
		}
	}
}
