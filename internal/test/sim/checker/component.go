// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	kubelet           = "kubelet"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	proxy             = "kube-proxy"
)

const (
	stateStopped  = "stopped"
	stateStarting = "starting"
	stateReady    = "ready"
)

// component is a part of Kubernetes on one node.
type component struct {
	// version and image are those of what runs; image is empty until it is known. guessed is true if the version
	// was only derived from that of the kubelet.
	version, image string
	guessed        bool
	// by is who last changed the image in the machine configuration; empty if nobody did.
	by string
	// restarting is true while a configuration of ours restarts it: until it is ready. was is the image that it had
	// before.
	restarting bool
	was        string
	// away is true while it does not run, awaySince is since when, and awayByUs is true if what we did has stopped
	// it.
	away, awayByUs bool
	awaySince      float64
}

// part returns a component of a machine; one without events has no version.
func (n *node) part(name string) *component {
	found, known := n.parts[name]
	if !known {
		found = &component{}

		if n.parts == nil {
			n.parts = map[string]*component{}
		}

		n.parts[name] = found
	}

	return found
}

// runs returns the version of a component without v; empty if it is not known.
func (n *node) runs(name string) string {
	if found, known := n.parts[name]; known {
		return found.version
	}

	return ""
}

// introduceParts notes what a machine runs that joins. The history has its lowest version, which all of its
// components have unless it says more.
func (c *Checker) introduceParts(n *node, detail map[string]string) {
	for _, name := range []string{kubelet, apiServer, controllerManager, scheduler, proxy} {
		if n.role == controlPlane || name == kubelet || name == proxy {
			n.part(name).version = cmp.Or(detail[name], detail["kubernetes"], detail[kubelet])
		}
	}
}

// moveTogether notes that a machine has booted with another kubelet. The components that no configuration pins move
// together; what the others run follows in the history. kube-proxy does not change with a boot.
func (c *Checker) moveTogether(n *node, version string) {
	n.part(kubelet).version = version

	if n.role != controlPlane {
		return
	}

	for _, name := range []string{apiServer, controllerManager, scheduler} {
		part := n.part(name)
		part.version, part.guessed = version, true
	}
}

// speaks reports whether what is known about a component may be relied on: the pods of kube-proxy follow the
// manifests, if at all.
func (c *Checker) speaks(name string) bool {
	return name != proxy || c.proxyMoved || c.options.syncsManifests
}

// bootParts notes that a boot recreates everything. The API server is away until the history says that it is back
// or, if it does not say so, the node is ready.
func (c *Checker) bootParts(n *node) {
	for _, part := range n.parts {
		part.restarting = false
	}

	if n.role == controlPlane {
		server := n.part(apiServer)
		server.away, server.awaySince, server.awayByUs, n.untold = true, c.at, false, true
	}
}

// component judges a change of a component.
func (c *Checker) component(event history.Event) {
	n := c.node(event.Node)
	name, state := event.Detail["component"], event.Detail["state"]
	part := n.part(name)

	switch name {
	case proxy:
		c.proxyMoved = true
	case apiServer:
		n.untold = false
	}

	if away := state != stateReady; away != part.away {
		part.away, part.awaySince = away, c.at
		part.awayByUs = state == stateStopped && n.stoppedByUs(name)

		if name == apiServer && part.awayByUs {
			c.checkServers(n)
		}
	}

	if state == stateStopped && event.Detail["version"] == "" {
		// It is switched off here, and runs nothing any more.
		part.version, part.guessed, part.restarting = "", false, false

		return
	}

	if state != stateStarting && state != stateReady {
		return
	}

	part.image = cmp.Or(event.Detail["image"], part.image)
	c.moves(n, name, event.Detail["version"])

	if state == stateReady && part.restarting {
		part.restarting = false

		if part.was != "" && part.image == part.was && part.by == byClient {
			c.violate(S4, n.name, "its %s was configured although it ran from %s already", name, part.image)
		}

		if name == kubelet {
			n.unproven = !n.ready
		}

		c.restarted(n)
	}
}

// stoppedByUs reports whether a component that stops while its machine runs does so because of us: our
// configuration restarts it, or the kubelet that we replaced does.
func (n *node) stoppedByUs(name string) bool {
	if by := n.part(name).by; by != "" && by != byClient {
		return false
	}

	return n.part(name).restarting || n.part(kubelet).by == byClient
}

// checkServers asserts S1 for an API server that goes away because of us.
func (c *Checker) checkServers(n *node) {
	for _, other := range c.controlPlanes() {
		if server := other.part(apiServer); other != n && server.away && server.awayByUs {
			c.violate(S1, n.name, "its %s was stopped by what we did, while that of control plane %s was away because of us as well", apiServer, other.name)
		}
	}
}

// moves judges another version of a component, unless somebody else asked for it.
func (c *Checker) moves(n *node, name, to string) {
	part := n.part(name)
	if to == "" || to == part.version {
		return
	}

	from, guessed := part.version, part.guessed
	part.version, part.guessed = to, false

	if !c.responsible(n, name) {
		return
	}

	if !guessed {
		c.checkComponentMove(n, name, from, to)
	}

	c.checkSkew(n, name)
	c.checkSupport(n, name)

	if name == kubelet {
		c.checkKubeletCanaries(n)
	}
}

// responsible reports whether we, or nobody, caused a change of a component: kube-proxy is configured on the
// control planes.
func (c *Checker) responsible(n *node, name string) bool {
	deciding := []*node{n}
	if name == proxy {
		deciding = c.controlPlanes()
	}

	return !slices.ContainsFunc(deciding, func(d *node) bool {
		by := d.part(name).by

		return by != "" && by != byClient
	})
}

// checkComponentMove asserts that the version of a component neither goes down nor skips a minor.
func (c *Checker) checkComponentMove(n *node, name, from, to string) {
	running, next := parse(from), parse(to)
	if running.IsZero() || next.IsZero() {
		return
	}

	switch {
	case next.Less(running):
		c.violate(S5, n.name, "its %s went down from %s to %s", name, from, to)
	case next.Minor().Compare(running.Minor().Next()) > 0:
		c.violate(S5, n.name, "its %s went from %s to %s, which skips a minor", name, from, to)
	}
}

// checkSkew asserts that the minor of a component is not newer than that of any API server.
func (c *Checker) checkSkew(n *node, name string) {
	running := parse(n.runs(name))
	if running.IsZero() || name == apiServer || !n.introduced {
		return
	}

	for _, other := range c.controlPlanes() {
		server := parse(other.runs(apiServer))
		if !server.IsZero() && running.Minor().Compare(server.Minor()) > 0 {
			c.violate(S5, n.name, "its %s %s is newer than the API server %s on %s", name, n.runs(name), other.runs(apiServer), other.name)
		}
	}
}

// checkKubeletCanaries asserts S10 for a kubelet that moves because of us.
func (c *Checker) checkKubeletCanaries(n *node) {
	if c.isCanary(n) || n.part(kubelet).by != byClient {
		return
	}

	for _, canary := range c.all() {
		// A label that is set while a kubelet restarts came too late.
		led := c.isCanaryFor(canary, n) && (c.options.canary[canary.name] || c.at-canary.canaryBy.since.at > unnoticed)
		if led && !c.gone(canary) && parse(canary.runs(kubelet)).Less(parse(n.runs(kubelet))) {
			c.violate(S10, n.name, "its kubelet moved to %s before that of the canary %s", n.runs(kubelet), canary.name)
		}
	}
}

// named splits a list of components.
func named(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(name string) bool { return name == "" })
}

// underway lists the components of a machine that restart because of us, sorted by name.
func (n *node) underway() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(n.parts)), func(name string) bool { return !n.parts[name].restarting })
}
