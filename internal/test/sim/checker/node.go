// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"maps"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	controlPlane = "controlplane"
	worker       = "worker"
	isTrue       = "true"
)

// node is what the history contains about a machine.
type node struct {
	name, role string
	introduced bool
	// left is true if somebody deleted its Node object.
	left bool

	talos, schematic, platform, bootID string
	installs, reboots                  int
	// extensions are those that it runs, missing those that it lost because of us.
	extensions, missing []string
	// boots are the boots that it has been in, by ID.
	boots map[string]boot
	// parts are the components of Kubernetes. configs counts our configurations, dryRuns the dry runs whose calls
	// are still to end.
	parts            map[string]*component
	configs, dryRuns int
	// untold is true until there is an event of the API server after a boot. mute is true while the mirrors of its
	// static pods show the state before the boot.
	untold, mute bool

	up, ready bool
	// stage is empty if the history does not contain stages.
	stage string
	// lostAt is when it last went down or stopped being ready, lost is the place of the latter. complained is true
	// if its own kubelet said so while the machine ran, which Kubernetes shows at once. readyAt is when it last
	// became ready.
	lostAt, readyAt float64
	// cameUp is the place of its last boot.
	cameUp int64
	// expected is true for a worker that joins and has not come up yet.
	expected           bool
	lost               int64
	complained         bool
	voter, etcdHealthy bool
	// seen and etcdSeen are the places of the last observations of it, step is that of the last disruptive step
	// that matters to it, lateStep that of the last one by a call of a run that did not hold the lease any more.
	seen, etcdSeen, step, lateStep int64

	// goingDown is true if a call of ours takes it down and it has not booted since, awaited if it has not been
	// ready since either.
	goingDown, awaited bool
	// asked counts the calls to go down that had no effect yet, fell the times that it went down without one: the
	// end of that call is still to be recorded.
	asked, fell int
	// installers counts the runs since the last boot, armed is the version of the last one that succeeded.
	installers int
	armed      string
	// ours is true if a run of ours installed what is armed.
	ours bool
	// unwritten is true if the last install since then ended before it wrote anything, and no other run has written
	// an intent since.
	unwritten bool
	// wanted is the version for which the present holder of the lease last wrote an intent; empty if it has written
	// none for the node.
	wanted string

	// unproven is true if a kubelet that restarted because of us runs, and the node has not been ready with it yet.
	unproven bool

	// troubles are the faults of its member of etcd that are in force, by effect, and since when. foreign is since
	// when it does what somebody else asked for; zero if it does not. foreseen is what was wrong at the last intent
	// to install, intended the place of that, meantBy the run that wrote it.
	troubles map[string]moment
	foreign  moment
	foreseen map[string]bool
	intended int64
	meantBy  string

	// labels are those of its Node object, since labelledAt. unread is true if it has none. heldBy and canaryBy are
	// the effects of the labels.
	labels           map[string]string
	unread           bool
	labelledAt       moment
	heldBy, canaryBy chosen

	// volumes are those that are attached and that no pod on it uses, and since when.
	volumes map[string]float64

	// unpulled is the installer image that the present run could not pull at its last attempt; empty if it could.
	unpulled string

	cordonedBy string
	cordonedAt moment
	// lifted is when somebody else last lifted a cordon of ours, lifts is how often that happened since our first
	// one.
	lifted moment
	lifts  int
	// moved is true if it was put back into service with what the run installs.
	moved bool
	// returnable is true if our installer ran since the last rollback. reverted is true if a call told it to start
	// its other system and it has not booted since.
	returnable, reverted bool
}

// node returns a machine by name; one that was never introduced has no role.
func (c *Checker) node(name string) *node {
	n, found := c.nodes[name]
	if !found {
		n = &node{name: name}
		c.nodes[name] = n
	}

	return n
}

// introduce adds a machine. Machines with which the simulation begins are up and healthy; others are about to join.
func (c *Checker) introduce(event history.Event) {
	n := c.node(event.Node)
	detail := event.Detail

	n.introduced, n.role = true, detail["role"]
	n.inBoot(detail["boot_id"], boot{talos: detail["talos"], schematic: detail["schematic"], platform: detail["platform"]}, c.at)
	n.extensions = extensionsIn(event)
	c.introduceParts(n, detail)

	if detail["joins"] == isTrue {
		n.reboots--
		n.lostAt = c.at
		n.expected = n.role == worker
		n.unread, n.labelledAt = true, moment{c.now, c.at}
		c.relabel(n)

		return
	}

	n.up, n.ready = true, true
	n.voter = n.role == controlPlane
	n.etcdHealthy = n.voter
}

// kubelet follows what a node reports to Kubernetes.
func (c *Checker) kubelet(n *node, event history.Event) {
	ready := event.Detail["ready"] == isTrue
	switch {
	case n.ready && !ready:
		n.lostAt, n.lost = c.at, c.now
		n.complained = n.up && (n.stage == "" || n.stage == "running") && !n.unproven
	case ready && !n.ready:
		n.readyAt = c.at
	}

	n.ready = ready
	n.unproven = n.unproven && !ready

	if ready && !n.goingDown {
		n.awaited = false
	}

	if ready && n.untold {
		n.untold, n.part(apiServer).away = false, false
	}

	c.moves(n, kubelet, event.Detail["version"])
}

// all lists the machines of the cluster, sorted by name.
func (c *Checker) all() []*node {
	nodes := make([]*node, 0, len(c.nodes))

	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		if n := c.nodes[name]; n.introduced && !n.left {
			nodes = append(nodes, n)
		}
	}

	return nodes
}

func (c *Checker) controlPlanes() []*node {
	return slices.DeleteFunc(c.all(), func(n *node) bool { return n.role != controlPlane })
}

func (c *Checker) workers() []*node {
	return slices.DeleteFunc(c.all(), func(n *node) bool { return n.role != worker })
}

// forgotten is after how many seconds a machine that is down no longer belongs to the cluster: discovery drops it.
const forgotten = 30 * 60

// gone reports whether a machine has been away for so long that it is ignored, or is a worker that has never come
// up: it has no Node object, and does not answer. A worker that somebody deleted while it was away is gone for
// every run except the one that upgraded it.
func (c *Checker) gone(n *node) bool {
	departed := n.unread && n.role == worker && n.meantBy != "" && !c.meantByHolder(n)

	return !n.up && (n.expected || departed || c.at-n.lostAt > forgotten)
}

// returned reports whether a machine that a call has taken down is back already: under load, the end of a call is
// recorded late.
func (n *node) returned() bool { return n.up && (n.stage == "booting" || n.stage == "running") }

// wentDown notes that the machine went down.
func (n *node) wentDown(by string) {
	switch {
	case by != byClient:
	case n.asked > 0:
		n.asked--
	default:
		n.fell++
	}
}

// askedToGoDown notes that a call to go down has ended, and reports whether the machine has already gone down: then
// this was recorded late.
func (n *node) askedToGoDown() (late bool) {
	if n.fell > 0 {
		n.fell--

		return true
	}

	n.asked++

	return false
}

// down reports whether the machine does not run, or is about to stop because of us.
func (n *node) down() bool { return !n.up || n.goingDown }
