// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"strconv"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// CordonAsPerson makes a node unschedulable, or schedulable, the way a person
// with kubectl does: without any mark of ours.
func (c *Cluster) CordonAsPerson(node string, on bool) error {
	c.mu.Lock()

	object, found := c.nodes[node]
	if !found {
		c.mu.Unlock()

		return fmt.Errorf("node %s: %w", node, cluster.ErrNotFound)
	}

	changed := object.set(on)
	if changed {
		c.recordCordon(node, on, map[string]string{"by": "other"})
	}
	c.mu.Unlock()

	c.world.SetUnschedulable(node, on)

	return nil
}

// set changes spec.unschedulable and tells whether that was a change.
func (n *nodeObject) set(on bool) bool {
	if n.unschedulable == on {
		return false
	}

	n.unschedulable = on

	return true
}

func (c *Cluster) recordCordon(node string, on bool, detail map[string]string) {
	detail["unschedulable"] = strconv.FormatBool(on)
	c.record(node, history.KindCordon, detail)
}

// cordon is the request of a client that marks what it does.
func (c *Cluster) cordon(client, node, run string) (ours bool, err error) {
	c.mu.Lock()

	object, found := c.nodes[node]

	switch {
	case !found:
		c.mu.Unlock()

		return false, fmt.Errorf("unable to cordon node %s: %w", node, cluster.ErrNotFound)
	case object.unschedulable:
		ours = object.mark != ""
		c.mu.Unlock()

		return ours, nil
	}

	object.set(true)
	object.mark, object.byMachine = run, false
	c.recordCordon(node, true, map[string]string{"by": "client", "client": client, "run": run})
	c.mu.Unlock()

	c.world.SetUnschedulable(node, true)

	return true, nil
}

func (c *Cluster) uncordon(client, node string) {
	c.mu.Lock()

	object, found := c.nodes[node]
	if !found || object.mark == "" {
		c.mu.Unlock()

		return
	}

	object.mark = ""
	if object.set(false) {
		c.recordCordon(node, false, map[string]string{"by": "client", "client": client})
	}
	c.mu.Unlock()

	c.world.SetUnschedulable(node, false)
}

// UncordonAnyway makes a node schedulable in the name of a client, whoever set
// its cordon: what a careless client would do.
func (c *Cluster) UncordonAnyway(client, node string) {
	c.mu.Lock()
	if object, found := c.nodes[node]; found && object.unschedulable && object.mark == "" {
		object.mark = client
	}
	c.mu.Unlock()

	c.uncordon(client, node)
}
