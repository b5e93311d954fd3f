// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const methodApply = "/machine.MachineService/ApplyConfiguration"

// configured judges a machine configuration that was applied. One that was refused, or a dry run, has changed
// nothing.
func (c *Checker) configured(event history.Event) {
	n := c.node(event.Node)
	by := cmp.Or(event.Detail["by"], byClient)
	dry := event.Detail["dry_run"] == isTrue

	if dry && by == byClient {
		n.dryRuns++
	}

	if dry || event.Detail["code"] != codeOK {
		return
	}

	changed := named(event.Detail["changed"])

	if by == byClient {
		c.checkConfiguration(n, event, changed)
	}

	for _, name := range changed {
		if name == installer {
			continue
		}

		part := n.part(name)
		part.by = by

		// Whatever is configured now, it is not ours any more.
		part.restarting = by == byClient && restarts(name)
		part.was = part.image

		if name == scheduler && part.restarting && !parse(n.talos).AtLeast(1, 14) {
			// Its files count as those of the API server, which is recreated with them.
			server := n.part(apiServer)
			server.restarting, server.was = true, ""
		}
	}

	if by == byClient {
		n.configs++

		if disturbs(changed) {
			c.configures = true
			c.restarted(n)
		}
	}
}

// installer is the name in the history of the image from which a machine would be reinstalled.
const installer = "installer"

// disturbs reports whether a configuration does more than name another image to install from, which affects nothing
// that runs.
func disturbs(changed []string) bool {
	return !slices.Equal(changed, []string{installer})
}

// checkConfiguration judges a configuration of ours.
func (c *Checker) checkConfiguration(n *node, event history.Event, changed []string) {
	what := strings.Join(changed, ", ")

	c.acted(event, "configured "+cmp.Or(what, "the machine"))
	c.ownHands(event, "configured "+cmp.Or(what, "the machine"))
	c.checkHeld(n, "configured")

	if len(changed) == 0 {
		c.violate(S4, n.name, "configured although that changed no image")
	}

	if n.seen <= n.lastStep(c.now) {
		c.violate(S3, n.name, "configured %s although nobody had looked at the node since the last disruptive step", what)
	}

	if !disturbs(changed) {
		return
	}

	c.begins(n, "had "+cmp.Or(what, "nothing")+" configured")

	// Canaries, settling and the budget are about nodes that go out of service.
	if n.role == controlPlane {
		c.violateFor(n, "had "+cmp.Or(what, "nothing")+" configured", c.hazards(n, false))
	}

	if c.claims["kubernetes-status"] == completed {
		c.violate(S8, n.name, "kubernetes-status said completed, and then the run configured %s", what)
	}

	for _, name := range changed {
		if restarts(name) {
			c.checkOthers(n, name)
		}
	}
}

// restarts reports whether another image of the component in the configuration of a node restarts something there:
// what is only rendered there runs elsewhere.
func restarts(name string) bool {
	return name == kubelet || name == apiServer || name == controllerManager || name == scheduler
}

// checkOthers asserts S1 and S10 for a component that restarts because of us.
func (c *Checker) checkOthers(n *node, name string) {
	if n.role != controlPlane {
		c.checkKubelets(n)

		return
	}

	for _, other := range c.controlPlanes() {
		if other == n {
			continue
		}

		busy := other.underway()

		switch {
		case name == kubelet && slices.Equal(busy, []string{kubelet}):
			c.violate(S10, n.name, "its kubelet was configured while the one of control plane %s restarted", other.name)
		case len(busy) > 0:
			c.violate(S1, n.name, "its %s was configured while %s restarted on control plane %s", name, strings.Join(busy, ", "), other.name)
		case other.goingDown, name == apiServer && c.outOfService(other):
			c.violate(S1, n.name, "its %s was configured while control plane %s was out of service", name, other.name)
		}
	}
}

// unseen is how long, in seconds, an API server may have been away by itself before a run has to know.
const unseen = 30

// outOfService reports whether a control plane, or its API server, has been away for so long that a run has to
// know.
func (c *Checker) outOfService(n *node) bool {
	part := n.part(apiServer)

	return !n.up && c.at-n.lostAt > unseen && !c.gone(n) || part.away && c.at-part.awaySince > unseen
}

// checkKubelets asserts S10 for the kubelet of a worker that restarts because of us.
func (c *Checker) checkKubelets(n *node) {
	var (
		busy []string
		away []*node
	)

	for _, other := range c.workers() {
		if other != n && !c.gone(other) && (other.part(kubelet).restarting || other.unproven) {
			away = append(away, other)
			busy = append(busy, other.name)
		}
	}

	if most := max(c.options.maxUnavailableKubelets, 1); len(busy)+1 > most {
		c.violate(S10, n.name, "its kubelet was configured although %d may restart at a time and these did: %s", most, strings.Join(busy, ", "))
	}

	c.checkPools(n, "its kubelet was configured", away)
}

// restarted notes a step on a node's components. Kubelets of workers may restart at the same time, so what happens
// to one is no step for the others.
func (c *Checker) restarted(n *node) {
	for _, other := range c.nodes {
		if other == n || n.role != worker || other.role != worker {
			other.step = c.now
		}
	}
}

// triedOnly reports whether a call that ended was a dry run.
func (c *Checker) triedOnly(event history.Event) bool {
	n := c.node(event.Node)
	if event.Detail["method"] != methodApply || n.dryRuns == 0 {
		return false
	}

	n.dryRuns--

	return true
}
