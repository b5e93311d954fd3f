// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The calls that disturb a machine.
const (
	methodInstall  = "/machine.LifecycleService/Upgrade"
	methodUpgrade  = "/machine.MachineService/Upgrade"
	methodReboot   = "/machine.MachineService/Reboot"
	methodRollback = "/machine.MachineService/Rollback"
	methodShutdown = "/machine.MachineService/Shutdown"
	methodReset    = "/machine.MachineService/Reset"
)

// The calls that bring an image to a machine. They take a minute and more.
const (
	methodPull       = "/machine.ImageService/Pull"
	methodLegacyPull = "/machine.MachineService/ImagePull"
)

// called judges a Talos call that ended.
func (c *Checker) called(event history.Event) {
	method, code := event.Detail["method"], event.Detail["code"]

	// A pull disturbs nothing, and one that is under way when the lease is lost continues to its end.
	pulled := method == methodPull || method == methodLegacyPull

	if c.triedOnly(event) {
		return
	}

	if event.Detail["mutating"] == isTrue && code == codeOK && !(pulled && c.lease.held) {
		if !c.meant(event) {
			c.acted(event, "the call "+shortMethod(method))
		}
	}

	if method == methodInstall && code == "Internal" {
		// The call failed on the node, which started no installer.
		c.node(event.Node).unwritten = true
	}

	if !tookEffect(code) {
		return
	}

	if event.Detail["mutating"] == isTrue && !pulled {
		c.ownHands(event, "called "+shortMethod(method))
	}

	n := c.node(event.Node)

	switch method {
	case methodInstall:
		c.observedBefore(n, "install on", n.intended)
		c.checkIntended(n, "was installed")
		c.checkCanaries(n, "was installed")
	case methodUpgrade, methodReboot, methodRollback, methodShutdown, methodReset:
		if !c.begun(n) {
			c.begins(n, "was rebooted")
		}

		cure := c.cures(n, method)

		// A run could not know what came after its intent, while the machine downloaded the image.
		if method == methodUpgrade && n.foreseen != nil {
			c.observedBefore(n, shortMethod(method)+" of", n.intended)
			c.checkIntended(n, "was rebooted")
		} else {
			c.observedBefore(n, shortMethod(method)+" of", c.now)
			c.checkHazards(n, "was rebooted", cure)
			c.checkOthersUp(n)
		}

		c.checkHeld(n, "rebooted")
		c.checkVolumes(n)

		// A system that an earlier run has armed may have to boot before everything else.
		if method == methodUpgrade || n.installers == 0 && !cure {
			c.checkCanaries(n, "was rebooted")
		}

		c.takenDown(n, method)

		if code != codeOK {
			c.unheard[n.name] = c.at
		}
	default:
		return
	}

	client := event.Detail["client"]
	c.stepped(n, client != "" && !holds(c.lease.holder, client))
}

// meant reports whether a call is an install for which its client has written an intent: the holder of the lease
// was judged with that. An install takes a while, and a machine that upgrades itself downloads the image first.
func (c *Checker) meant(event history.Event) bool {
	method, client := event.Detail["method"], event.Detail["client"]
	meantBy := c.node(event.Node).meantBy

	return (method == methodUpgrade || method == methodInstall) && meantBy != "" && (client == "" || client == meantBy)
}

// stepped notes a disruptive step on a node: the next node that is disturbed has to be observed first. The step of
// a worker in its own turn was counted when the turn began; other workers may move meanwhile. Its cordon shows that,
// or, if somebody has lifted it, the intent of the present run. late is true for a call of a run that does not hold the
// lease any more.
func (c *Checker) stepped(n *node, late bool) {
	for _, other := range c.nodes {
		turn := other.cordonedBy != "" || open(c.phases[other.name]) && c.meantByHolder(other)

		switch {
		case other != n && n.role == worker && other.role == worker && turn:
		case late:
			other.lateStep = c.now
		default:
			other.step = c.now
		}
	}
}

// meantByHolder reports whether the holder of the lease wrote the last intent for the node.
func (c *Checker) meantByHolder(n *node) bool { return holds(c.lease.holder, n.meantBy) }

const codeOK = "OK"

// tookEffect reports whether a call may have done something: the node answered, or the connection broke after the
// call had begun. Every other code is a refusal.
func tookEffect(code string) bool { return code == codeOK || code == "Unavailable" }

func shortMethod(method string) string { return method[strings.LastIndex(method, "/")+1:] }

// takenDown judges a call that makes a machine go down.
func (c *Checker) takenDown(n *node, method string) {
	if n.role == worker && n.cordonedBy == "" {
		c.checkWorkers(n, "was taken down uncordoned")
	}

	late := n.askedToGoDown()

	if method == methodReboot && !late && n.installers == 0 && c.atTarget(n) && !c.cures(n, method) {
		c.violate(S4, n.name, "rebooted although it runs the target %s and nothing was installed", n.talos)
	}

	// Another run does not know how the install ended.
	if method == methodReboot && !late && n.installers == 0 && n.unwritten && (n.meantBy == "" || c.meantByHolder(n)) {
		c.violate(S4, n.name, "rebooted although the install on it ended before it wrote anything")
	}

	if method == methodRollback {
		c.checkReverted(n, late)
	}

	n.goingDown = !n.returned()
	n.awaited = n.goingDown || !n.ready
}

// checkOthersUp asserts S1 and S2 for a control plane that goes down now.
func (c *Checker) checkOthersUp(n *node) {
	if n.role == controlPlane {
		c.checkControlPlanes(n)
		c.checkQuorum(n)
	}
}

// checkControlPlanes asserts S1.
func (c *Checker) checkControlPlanes(n *node) {
	for _, other := range c.controlPlanes() {
		if other == n {
			continue
		}

		if other.down() {
			c.violate(S1, n.name, "taken down while control plane %s was down", other.name)
		}

		if busy := other.underway(); len(busy) > 0 {
			c.violate(S1, n.name, "taken down while %s restarted on control plane %s", strings.Join(busy, ", "), other.name)
		}
	}
}

// checkQuorum asserts S2 for the member on a control plane that goes away.
func (c *Checker) checkQuorum(n *node) {
	if !n.voter {
		return
	}

	members, healthy := 0, 0

	for _, other := range c.controlPlanes() {
		if !other.voter {
			continue
		}

		members++

		if other != n && other.etcdHealthy && !other.goingDown {
			healthy++
		}
	}

	needed := members/2 + 1
	if members == 2 && c.options.skips[skipTwoMembers] {
		// Two members have no quorum without either, which somebody accepted. The other one must be healthy, so that no
		// data is lost.
		needed = 1
	}

	if members > 1 && healthy < needed {
		c.violate(S2, n.name, "taken down although that leaves %d of %d members of etcd healthy", healthy, members)
	}
}

// unnoticed is how long, in seconds, a worker may have been away before a run has to know: Kubernetes takes 40 to
// notice.
const unnoticed = 60

// checkWorkers asserts S10 for a worker that becomes unavailable because of us. A worker that is unavailable anyway
// costs nothing.
func (c *Checker) checkWorkers(n *node, what string) {
	if n.role != worker || !n.ready {
		return
	}

	var (
		unavailable []string
		away        []*node
	)

	for _, other := range c.workers() {
		if other == n || c.gone(other) {
			continue
		}

		if why := c.unavailable(other); why != "" {
			away = append(away, other)
			unavailable = append(unavailable, other.name+" "+why)
		}
	}

	if most := max(c.options.maxUnavailable, 1); len(unavailable)+1 > most {
		c.violate(S10, n.name, "%s although %d may be unavailable at a time and these workers were: %s", what, most, strings.Join(unavailable, ", "))
	}

	c.checkPools(n, what, away)
}

// unavailable returns why a worker is out of service; empty if it is not.
func (c *Checker) unavailable(n *node) string {
	switch {
	case n.awaited:
		return "had not come back"
	case n.cordonedBy != "":
		return "was cordoned"
	case !n.ready && c.at-n.lostAt > unnoticed:
		return "was not ready"
	default:
		return ""
	}
}

// checkCanaries asserts S10 for a node that is disturbed although it is not a canary. What the run installs is
// known from its first install on: before that, it is not known that a canary is not done.
func (c *Checker) checkCanaries(n *node, what string) {
	if c.isCanary(n) {
		return
	}

	installs := parse(c.target)

	for _, canary := range c.all() {
		switch {
		case !c.isCanaryFor(canary, n) || installs.IsZero() || c.gone(canary):
		case parse(canary.talos).Less(installs):
			c.violate(S10, n.name, "%s before the canary %s ran Talos %s", what, canary.name, c.target)
		case canary.awaited || canary.cordonedBy == byClient:
			c.violate(S10, n.name, "%s before the canary %s was back in service", what, canary.name)
		}
	}
}

// checkHeld asserts S4 for something that our client did to a node.
func (c *Checker) checkHeld(n *node, what string) {
	if c.options.held[n.name] || c.chosenFor(n, n.heldBy) {
		c.violate(S4, n.name, "%s although it is held", what)
	}
}
