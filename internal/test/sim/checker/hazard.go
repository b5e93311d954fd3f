// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The names of the checks that a person may skip and that the judgement depends on. They are written down here a
// second time on purpose.
const (
	skipAlarms       = "etcd-alarms"
	skipTwoMembers   = "two-members"
	skipSchematic    = "schematic"
	skipControlPlane = "control-plane-components"
	skipExternal     = "external-changes"
)

// moment is a place in the history.
type moment struct {
	place int64
	at    float64
}

// hazard is a state of the cluster in which no node may be disturbed.
type hazard struct {
	invariant Invariant
	// key distinguishes the hazard from the same one at another time.
	key, what string
}

// unsafeEffects returns the faults of etcd during which no node may be disturbed, and what they do to the member.
func unsafeEffects() map[string]string {
	return map[string]string{
		"alarm-nospace": "had raised the alarm NOSPACE",
		"alarm-corrupt": "had raised the alarm CORRUPT",
		"lagging":       "lagged behind",
		"silent":        "did not answer",
		"learner":       "was a learner",
		"no-leader":     "saw no leader",
		"reports":       "reported an error",
	}
}

// faulted follows the faults that are in force for a while.
func (c *Checker) faulted(event history.Event) {
	n, effect := c.node(event.Node), event.Detail["effect"]

	if event.Detail["step"] != "etcd" || unsafeEffects()[effect] == "" {
		return
	}

	if event.Detail["outcome"] == "over" {
		delete(n.troubles, effect)

		return
	}

	if n.troubles == nil {
		n.troubles = map[string]moment{}
	}

	n.troubles[effect] = moment{c.now, c.at}
}

const (
	// prompt is for how many seconds something may have been wrong without being a violation, because the
	// observation may have come just before.
	prompt = 2
	// blind is for how many seconds it may have been wrong without an observation; it is only judged in histories
	// of virtual time.
	blind = 30
)

// known reports whether a run has to know now what began at a moment: there was an observation since, or there
// should have been one.
func (c *Checker) known(began moment, seen int64) bool {
	lasted := c.at - began.at

	return seen > began.place && lasted > prompt || c.options.leaseSeconds > 0 && lasted > blind
}

// hazards returns the reasons why a node may not be disturbed now. If disturbing the node is the cure, what is
// wrong with itself does not count.
func (c *Checker) hazards(n *node, cure bool) []hazard {
	var found []hazard

	for _, other := range c.controlPlanes() {
		if other == n && cure {
			continue
		}

		found = append(found, c.etcdHazards(n, other)...)

		if other != n && n.role == controlPlane {
			found = append(found, c.neighbourHazards(other)...)
		}
	}

	return found
}

// policyHazards returns what the policy requires of other nodes before one is disturbed, and before anything is
// installed on it, which may be long after its cordon.
func (c *Checker) policyHazards(n *node) []hazard {
	var found []hazard

	// The cost of its cordon was judged then; an install adds what came since.
	used := 1

	for _, other := range c.all() {
		if other == n || c.gone(other) {
			continue
		}

		out, since := c.out(other)

		if out && c.isCanaryFor(other, n) && !c.isCanary(n) && !c.options.held[other.name] {
			found = append(found, hazard{S10, key(other.name, "canary", since), fmt.Sprintf("the canary %s was out of service", other.name)})
		}

		if other.moved && c.options.settleSeconds > 0 {
			ill := !other.ready && out
			early := other.ready && n.cordonedBy == "" && c.at-other.readyAt < c.options.settleSeconds-prompt

			if ill || early {
				found = append(found, hazard{S10, key(other.name, "settle", since), fmt.Sprintf("%s, which was moved, had not stayed healthy for long enough", other.name)})
			}
		}

		if ours := other.cordonedBy == byClient; other.role == worker && (ours && other.cordonedAt.place < n.cordonedAt.place || !ours && out) {
			used++
		}
	}

	most := max(c.options.maxUnavailable, 1)
	if n.role == worker && n.ready && n.cordonedBy == byClient && used > most {
		found = append(found, hazard{S10, key(n.name, "budget", n.cordonedAt), fmt.Sprintf("others had used up the %d that may be unavailable", most)})
	}

	return found
}

// out reports whether, and since when, a run has to know now that a node is out of service: it is cordoned, or
// Kubernetes does not show it as Ready.
func (c *Checker) out(n *node) (out bool, since moment) {
	lost := moment{n.lost, n.lostAt}

	switch {
	case n.cordonedBy != "" && c.known(n.cordonedAt, c.nodesRead):
		return true, n.cordonedAt
	case n.ready:
		return false, moment{}
	case n.complained:
		return c.known(lost, c.nodesRead), lost
	default:
		return c.looked()-n.lostAt > unnoticed, moment{at: n.lostAt}
	}
}

// etcdHazards returns those of a member of etcd. Booting what is installed on a node already may cure its own
// member.
func (c *Checker) etcdHazards(n, member *node) []hazard {
	var found []hazard

	for _, effect := range slices.Sorted(maps.Keys(member.troubles)) {
		if effect == "learner" && c.voters() == 1 {
			// The last voter keeps its vote.
			continue
		}

		began := member.troubles[effect]
		alarm := strings.HasPrefix(effect, "alarm-")

		if alarm && c.options.skips[skipAlarms] || !alarm && member == n && n.installers > 0 || !c.known(began, member.etcdSeen) {
			continue
		}

		found = append(found, hazard{
			S2, key(member.name, effect, began), fmt.Sprintf("etcd on %s %s", member.name, unsafeEffects()[effect]),
		})
	}

	return found
}

// voters returns how many members of etcd have a vote.
func (c *Checker) voters() int {
	return len(slices.DeleteFunc(c.controlPlanes(), func(n *node) bool { return !n.voter }))
}

// neighbourHazards returns those of a control plane other than the one that is disturbed.
func (c *Checker) neighbourHazards(other *node) []hazard {
	var found []hazard

	if !other.ready && c.looked()-other.lostAt > unnoticed && !c.gone(other) {
		found = append(found, hazard{S1, key(other.name, "not ready", moment{at: other.lostAt}), "control plane " + other.name + " was not Ready"})
	}

	server := other.part(apiServer)
	if server.away && other.up && c.looked()-server.awaySince > unseen && !c.options.skips[skipControlPlane] {
		found = append(found, hazard{
			S1, key(other.name, apiServer, moment{at: server.awaySince}), "the API server on control plane " + other.name + " was down",
		})
	}

	if other.foreign != (moment{}) && !c.options.skips[skipExternal] && c.known(other.foreign, other.seen) {
		found = append(found, hazard{
			S1, key(other.name, "foreign", other.foreign), "somebody else was upgrading or rebooting control plane " + other.name,
		})
	}

	return found
}

// looked returns the time of the last observation of the cluster, as far as the history contains it.
func (c *Checker) looked() float64 {
	if !c.nodesTold {
		return c.at
	}

	return c.nodesReadAt
}

func key(node, what string, began moment) string {
	return node + " " + what + " " + strconv.FormatFloat(began.at, 'f', 3, 64)
}

// checkHazards asserts S1, S2 and S10 for a node that is disturbed now. What is installed already has to boot,
// whatever the policy requires of others.
func (c *Checker) checkHazards(n *node, what string, cure bool) {
	found := c.hazards(n, cure)
	if !cure && n.installers == 0 {
		found = append(found, c.policyHazards(n)...)
	}

	c.violateFor(n, what, found)
}

// violateFor records a violation for each hazard.
func (c *Checker) violateFor(n *node, what string, found []hazard) {
	for _, h := range found {
		c.violate(h.invariant, n.name, "%s although %s", what, h.what)
	}
}

// keySnapshot is the entry of the journal with the last snapshot of etcd.
const keySnapshot = "etcd-snapshot"

// intends notes what a run has to know when it is about to start an installer: that runs for a while, and only its
// end is in the history.
func (c *Checker) intends(name, run string) {
	n := c.node(name)

	// Another run cannot know whether an installer was called for the intent of this one.
	n.unwritten = n.unwritten && n.meantBy == run
	n.meantBy = run

	if !c.begun(n) {
		c.begins(n, "was about to be installed")
	}

	n.foreseen, n.intended = map[string]bool{}, c.now

	for _, h := range append(c.hazards(n, false), c.policyHazards(n)...) {
		n.foreseen[h.key] = true
	}
}

// checkIntended asserts the same for an installer that ended: what was wrong before it began, and still is.
func (c *Checker) checkIntended(n *node, what string) {
	for _, h := range append(c.hazards(n, false), c.policyHazards(n)...) {
		if n.foreseen[h.key] {
			c.violate(h.invariant, n.name, "%s although %s", what, h.what)
		}
	}
}

// staged follows the stage of a machine, and who asked for what it does.
func (c *Checker) staged(n *node, event history.Event) {
	n.stage = event.Detail["to"]

	switch foreign := event.Detail["by"] == byOther; {
	case !foreign:
		n.foreign = moment{}
	case n.foreign == moment{}:
		n.foreign = moment{c.now, c.at}
	}
}

// begins asserts S13 and S14 for an action of ours that begins to disturb a node.
func (c *Checker) begins(n *node, what string) {
	if c.options.snapshotFirst && !c.snapshotTaken {
		c.violate(S14, n.name, "%s before a snapshot of etcd was taken", what)
	}

	if len(c.options.openings) > 0 && !c.options.open(c.at) {
		c.violate(S13, n.name, "%s while the maintenance window was closed", what)
	}

	for _, other := range c.controlPlanes() {
		if n.role == controlPlane && other != n && other.mute && other.up {
			c.violate(S1, n.name, "%s before anybody could know how the static pods of control plane %s had come up", what, other.name)
		}
	}
}

// begun reports whether the turn of a node is under way: it is cordoned by us, or an earlier run left work
// unfinished there.
func (c *Checker) begun(n *node) bool {
	return n.cordonedBy == byClient || open(c.phases[n.name])
}

// snapshot notes a snapshot of etcd whose stream was read to its end.
func (c *Checker) snapshot(event history.Event) {
	c.snapshotTaken = c.snapshotTaken || cmp.Or(event.Detail["whole"], isTrue) == isTrue
}
