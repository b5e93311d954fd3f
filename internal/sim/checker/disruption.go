// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
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

// The calls that bring an image onto a machine. They take a minute and more.
const (
	methodPull       = "/machine.ImageService/Pull"
	methodLegacyPull = "/machine.MachineService/ImagePull"
)

// called judges a Talos call that ended.
func (c *Checker) called(event history.Event) {
	method, code := event.Detail["method"], event.Detail["code"]

	// A pull disturbs nothing, and one that is under way when the lease is lost
	// ends when it ends.
	pulled := method == methodPull || method == methodLegacyPull

	if event.Detail["mutating"] == isTrue && code == codeOK && !(pulled && c.lease.holder != "") {
		c.acted(event, "the call "+shortMethod(method))
	}

	if !tookEffect(code) {
		return
	}

	n := c.node(event.Node)

	switch method {
	case methodInstall:
		c.observedBefore(n, "install on")
	case methodUpgrade, methodReboot, methodRollback, methodShutdown, methodReset:
		c.observedBefore(n, shortMethod(method)+" of")
		c.takenDown(n, method)
	default:
		return
	}

	c.step = c.now
}

const codeOK = "OK"

// tookEffect tells whether a call may have done something. The node answered,
// or the connection broke after it had begun; every other code is a refusal.
func tookEffect(code string) bool { return code == codeOK || code == "Unavailable" }

func shortMethod(method string) string { return method[strings.LastIndex(method, "/")+1:] }

// observedBefore asserts S3: since the last step the node itself, etcd on every
// control plane that is up and the Node objects have been looked at.
func (c *Checker) observedBefore(n *node, what string) {
	var unseen []string

	if n.seen <= c.step {
		unseen = append(unseen, n.name)
	}

	for _, other := range c.controlPlanes() {
		if other.up && other.etcdSeen <= c.step {
			unseen = append(unseen, "etcd on "+other.name)
		}
	}

	if c.nodesRead > 0 && c.nodesRead <= c.step {
		unseen = append(unseen, "the Node objects")
	}

	if len(unseen) > 0 {
		c.violate(S3, n.name, "%s %s although since the last disruptive step nobody had looked at %s", what, n.name, strings.Join(unseen, ", "))
	}
}

// takenDown judges a call that makes a machine go down.
func (c *Checker) takenDown(n *node, method string) {
	switch {
	case n.role == controlPlane:
		c.checkControlPlanes(n)
		c.checkQuorum(n)
	case n.cordonedBy == "":
		c.checkWorkers(n, "was taken down uncordoned")
	}

	if method == methodReboot && !n.returned() && n.installers == 0 && c.atTarget(n) {
		c.violate(S4, n.name, "rebooted although it runs the target %s and nothing was installed", n.talos)
	}

	n.goingDown = !n.returned()
	n.awaited = n.goingDown || !n.ready
}

// checkControlPlanes asserts S1.
func (c *Checker) checkControlPlanes(n *node) {
	for _, other := range c.controlPlanes() {
		if other != n && other.down() {
			c.violate(S1, n.name, "taken down while control plane %s was down", other.name)
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

	if members > 1 && healthy < members/2+1 {
		c.violate(S2, n.name, "taken down although that leaves %d of %d members of etcd healthy", healthy, members)
	}
}

// unnoticed is how long, in seconds, a worker may have been away without
// anybody being able to know: Kubernetes takes 40 to notice.
const unnoticed = 60

// checkWorkers asserts S10 for a worker that becomes unavailable because of us.
// One that is unavailable anyway costs nothing.
func (c *Checker) checkWorkers(n *node, what string) {
	if n.role != worker || !n.ready {
		return
	}

	for _, other := range c.workers() {
		if other == n || c.gone(other) {
			continue
		}

		switch {
		case other.awaited:
			c.violate(S10, n.name, "%s while worker %s had not come back", what, other.name)
		case other.cordonedBy != "":
			c.violate(S10, n.name, "%s while worker %s was cordoned", what, other.name)
		case !other.ready && c.at-other.lostAt > unnoticed:
			c.violate(S10, n.name, "%s while worker %s was not ready", what, other.name)
		}
	}
}
