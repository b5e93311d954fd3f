// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	phaseReady         = "Ready"
	phaseUpgradeFailed = "UpgradeFailed"

	conditionTalos      = "TalosUpgrade"
	conditionKubernetes = "KubernetesUpgrade"

	reasonInProgress = "InProgress"
	reasonCompleted  = "Completed"
)

// status asserts S8 for the status of a custom resource, and S9 for the conditions of others in it.
func (c *Checker) status(event history.Event) {
	if !ours(event) {
		return
	}

	kind := event.Detail["condition"]
	label := "the condition " + kind

	if kind == "" {
		label = "the " + event.Detail["field"]
	}

	c.publishes(event, label)
	c.spokeFor(event, label)

	switch {
	case event.Detail["field"] == "phase":
		c.checkPhase(event.Detail["value"])
	case event.Detail["field"] == "message":
		c.checkMessage("", label, event.Detail["value"])
	case kind == conditionTalos, kind == conditionKubernetes:
		c.checkCondition(event, label)
	case kind != "":
		c.violate(S9, "", "changed %s, which somebody else has set", label)
	}
}

func (c *Checker) checkPhase(phase string) {
	switch phase {
	case "", phaseUpgradeFailed:
	case phaseReady:
		for _, n := range c.members() {
			if why := c.unfinished(n); why != "" {
				c.violate(S8, n.name, "the phase says Ready, but the node %s", why)
			}
		}
	case "UpgradingTalos", "UpgradingKubernetes":
		if c.lease.holder == "" && (!c.lease.held || c.at-c.lease.renewed > publishing) {
			c.violate(S8, "", "the phase says %s, but nobody upgrades the cluster", phase)
		}
	default:
		c.notInProtocol("the phase", phase)
	}
}

func (c *Checker) notInProtocol(label, value string) {
	c.violate(S8, "", "%s says %q, which the protocol does not know", label, value)
}

// unfinished returns what the present run still has to do on a node; empty if nothing is known.
func (c *Checker) unfinished(n *node) string {
	switch {
	case c.lease.holder == "":
		return ""
	case n.goingDown || len(n.underway()) > 0 || open(c.phases[n.name]):
		return "is being upgraded"
	case parse(n.talos).Less(parse(c.target)):
		return "runs Talos " + n.talos
	case c.configures && version.Lowest(c.counted(n)...).Less(c.highestKubernetes()):
		return "runs Kubernetes " + c.lowest(n)
	default:
		return ""
	}
}

// checkCondition judges a condition of the protocol.
func (c *Checker) checkCondition(event history.Event, label string) {
	status, reason := event.Detail["status"], event.Detail["reason"]
	if status == "" && reason == "" {
		return
	}

	prefix := "talos-"
	if event.Detail["condition"] == conditionKubernetes {
		prefix = "kubernetes-"
	}

	switch {
	case !slices.Contains([]string{reasonInProgress, reasonCompleted, "Failed", "Blocked"}, reason):
		c.notInProtocol(label, reason)
	case (status == "True") != (reason == reasonInProgress):
		c.violate(S8, "", "%s is %s for the reason %s", label, status, reason)
	case reason == reasonCompleted && prefix == "talos-":
		c.checkStatus(label, completed)
	case reason == reasonCompleted:
		c.checkKubernetesStatus(label, completed)
	}

	c.checkMessage(prefix, label, event.Detail["message"])
}

// checkMessage asserts that what a message says besides is true as well; prefix is that of its half, empty if that
// is open.
func (c *Checker) checkMessage(prefix, label, message string) {
	if name := nodeIn(message); name != "" {
		if n := c.nodes[name]; n == nil || !n.introduced {
			c.violate(S8, "", "%s says %q, but no node is called %s", label, message, name)
		}
	}

	_, running, completes := strings.Cut(message, "completed: now running ")
	_, next, offers := strings.Cut(message, "Upgrade available: ")

	switch {
	case completes && prefix == "talos-":
		c.checkCurrent(label, running)
	case completes && prefix == "kubernetes-":
		c.checkKubernetesCurrent(label, running)
	case offers && prefix != "":
		_, to, _ := strings.Cut(next, " \u2192 ")
		c.checkAvailable(prefix, label, to)
	}
}

// nodeIn returns the node that a message says something is done to; empty if it names none.
func nodeIn(message string) string {
	words := strings.Fields(message)

	switch {
	case len(words) < 3:
		return ""
	case words[0] == "Upgrading" && words[1] == "node":
		return words[2]
	case words[0] == "Upgrading" && words[2] == "on" && len(words) > 3:
		return words[3]
	case words[0] == "Node" && words[2] == "upgraded":
		return words[1]
	default:
		return ""
	}
}

// checkVersion asserts the spelling of a version, and reports whether it is one.
func (c *Checker) checkVersion(label, value string) bool {
	if read := parse(value); read.IsZero() || read.String() != value {
		c.violate(S8, "", "%s says %q, which is no version as the protocol spells them", label, value)

		return false
	}

	return true
}

// checkAvailable asserts that an offered version is newer than what some node runs and, for Kubernetes, that the
// Talos that runs there supports it.
func (c *Checker) checkAvailable(prefix, label, value string) {
	if !c.checkVersion(label, value) {
		return
	}

	offered, lowest := parse(value), c.lowestTalos()
	talos := lowest

	if prefix == "kubernetes-" {
		lowest = c.lowestKubernetes()
	}

	if !lowest.IsZero() && !lowest.Less(offered) {
		c.violate(S8, "", "%s says %s, but every node runs %s or newer", label, value, lowest)
	}

	oldest, newest, known := supported(talos.Minor())
	if prefix == "kubernetes-" && known && (offered.Minor().Compare(oldest) < 0 || offered.Minor().Compare(newest) > 0) {
		c.violate(S8, "", "%s says %s, but Talos %s supports %s to %s", label, value, talos, oldest, newest)
	}
}

// highestKubernetes returns the newest version of the components that annotations are about: a run brings them all
// to it.
func (c *Checker) highestKubernetes() version.Version {
	var running []version.Version

	for _, n := range c.members() {
		running = append(running, c.counted(n)...)
	}

	return version.Highest(running...)
}

// lowestTalos returns the lowest version of Talos; zero if it is not known.
func (c *Checker) lowestTalos() version.Version {
	var running []version.Version

	for _, n := range c.members() {
		if talos := parse(n.talos); !talos.IsZero() {
			running = append(running, talos)
		}
	}

	return version.Lowest(running...)
}

// lowestKubernetes returns the lowest version of all components, including kube-proxy, which need not be known to
// follow.
func (c *Checker) lowestKubernetes() version.Version {
	var running []version.Version

	for _, n := range c.members() {
		for _, part := range n.parts {
			if known := parse(part.version); !known.IsZero() {
				running = append(running, known)
			}
		}
	}

	return version.Lowest(running...)
}

// checkIdle asserts that nothing of a half is under way because of us.
func (c *Checker) checkIdle(label string, busy func(n *node) bool) {
	for _, n := range c.members() {
		if busy(n) {
			c.violate(S8, n.name, "%s says idle, but the node is being upgraded", label)
		}
	}
}
