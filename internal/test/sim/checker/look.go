// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// nodeWrite is a write of our client to a Node object, with the version of the object after it.
type nodeWrite struct {
	client, name string
	version      int64
	moment       moment
}

// wroteNode remembers a write to a Node object: it may prove how new the deliveries of a watch are.
func (c *Checker) wroteNode(event history.Event) {
	version, known := versionOf(event)
	if known && ours(event) && event.Detail["resource"] == "nodes" && strings.HasPrefix(event.Detail["code"], "2") {
		c.nodeWrites = append(c.nodeWrites, nodeWrite{
			event.Detail["client"], event.Detail["name"], version, moment{c.now, c.at},
		})
	}
}

// lookedAtNodes notes an observation of the Node objects. A list is one as of its own time. What a watch delivers
// is one as of the client's newest write that it contains, and none without such a write: only that write shows
// that nothing older is still to come. An event contains the writes to its own object up to its version; a list
// that a cache answered, and the end of the objects with which a watch began, contain those to any object. A
// bookmark contains nothing.
func (c *Checker) lookedAtNodes(event history.Event) {
	c.nodesTold = true

	via := event.Detail["via"]
	if via == "" {
		c.nodesRead, c.nodesReadAt = c.now, c.at

		return
	}

	version, known := versionOf(event)
	object := event.Detail["object"]

	if !known || via != "watch" && via != "cache" || via == "watch" && object == "" {
		return
	}

	proven := moment{}

	for _, write := range c.nodeWrites {
		if write.client == event.Detail["client"] && write.version <= version && (object == "" || object == write.name) {
			proven = write.moment
		}
	}

	if proven.place > c.nodesRead {
		c.nodesRead, c.nodesReadAt = proven.place, proven.at
	}

	c.nodeWrites = slices.DeleteFunc(c.nodeWrites, func(write nodeWrite) bool { return write.moment.place <= c.nodesRead })
}

func versionOf(event history.Event) (int64, bool) {
	version, err := strconv.ParseInt(event.Detail["version"], 10, 64)

	return version, err == nil
}

// read notes an observation of a node, or of the Node objects.
func (c *Checker) read(event history.Event) {
	if event.Node == "" {
		if event.Detail["what"] == "nodes" {
			c.lookedAtNodes(event)
		}

		return
	}

	n := c.node(event.Node)

	// Reading a configuration in order to write it is no observation of the node, nor is reading a log of the past.
	if event.Detail["what"] != "config" && event.Detail["what"] != "logs" {
		n.seen = c.now
	}

	if event.Detail["what"] == "etcd" {
		n.etcdSeen = c.now
	}
}

// boot is one boot of a machine: what it ran, and when the next one began, zero if there is none.
type boot struct {
	talos, schematic, platform string
	until                      float64
}

// inBoot notes that the machine is in another boot now.
func (n *node) inBoot(id string, now boot, at float64) {
	if before, found := n.boots[n.bootID]; found {
		before.until = at
		n.boots[n.bootID] = before
	}

	if n.boots == nil {
		n.boots = map[string]boot{}
	}

	n.bootID, n.talos, n.schematic, n.platform = id, now.talos, now.schematic, now.platform
	n.boots[id] = now
}

// toldOf asserts S15 for the result of an observation of a machine. A client that may not read boot IDs gets none,
// and what the client did not ask for is not in the event.
func (c *Checker) toldOf(event history.Event) {
	n, told := c.node(event.Node), event.Detail

	of, known := n.boots[told["boot_id"]]
	if !known {
		return
	}

	began, err := strconv.ParseFloat(told["began"], 64)
	if err == nil && of.until > 0 && of.until < began {
		c.violate(S15, n.name, "%s was told of boot %s, which had ended before it asked", told["client"], told["boot_id"])
	}

	for _, fact := range []struct{ key, what, was string }{
		{"talos", "Talos", of.talos}, {"schematic", "schematic", of.schematic}, {"platform", "platform", of.platform},
	} {
		said, asked := told[fact.key]
		unversioned := fact.key == "talos" && said == ""

		if asked && !unversioned && said != fact.was {
			c.violate(S15, n.name, "%s was told of boot %s that it runs %s %q, which is of another boot: it runs %q",
				told["client"], told["boot_id"], fact.what, said, fact.was)
		}
	}
}

// lastStep is the place of the last disruptive step that matters to the node and that the holder of the lease could
// know of when it asked for an action: what a run that died left on a node may take effect after that.
func (n *node) lastStep(asked int64) int64 {
	if n.lateStep > asked {
		return n.step
	}

	return max(n.step, n.lateStep)
}

// observedBefore asserts S3: since the last step the node itself, etcd on every control plane that was up when the
// action was asked for, and the Node objects were observed.
func (c *Checker) observedBefore(n *node, what string, asked int64) {
	var unseen []string

	step := n.lastStep(asked)
	if n.seen <= step {
		unseen = append(unseen, n.name)
	}

	for _, other := range c.controlPlanes() {
		if other.up && other.cameUp <= asked && other.etcdSeen <= step {
			unseen = append(unseen, "etcd on "+other.name)
		}
	}

	if c.nodesTold && c.nodesRead <= step {
		unseen = append(unseen, "the Node objects")
	}

	if len(unseen) > 0 {
		c.violate(S3, n.name, "%s %s although since the last disruptive step nobody had looked at %s", what, n.name, strings.Join(unseen, ", "))
	}
}
