// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// What follows is what somebody else does to the objects that a run relies on: a
// person with kubectl, an autoscaler, a GitOps tool. The history says so.

const byOther = "other"

// DeleteLeaseAsPerson takes the lease away, whoever holds it.
func (c *Cluster) DeleteLeaseAsPerson() {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.hasLease {
		return
	}

	c.lease, c.hasLease = cluster.Lease{}, false
	c.record("", history.KindLease, map[string]string{"holder": "", "action": "release", "by": byOther})
}

// EditJournalAsPerson writes what the change makes of the journal, whatever its
// resource version. The journal need not exist.
func (c *Cluster) EditJournalAsPerson(change func(cluster.Journal) cluster.Journal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	wanted := copyJournal(change(copyJournal(c.journal)))
	c.recordForeign(wanted)

	c.journal = wanted
	c.journal.ResourceVersion = c.next()
}

// DeleteJournalAsPerson takes the journal away with all that it holds.
func (c *Cluster) DeleteJournalAsPerson() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.recordForeign(cluster.Journal{})
	c.journal = cluster.Journal{}
}

// recordForeign adds to the history what somebody else has made of the entries of
// the journal; with the lock held.
func (c *Cluster) recordForeign(wanted cluster.Journal) {
	all := maps.Clone(c.journal.Entries)
	if all == nil {
		all = map[string]cluster.Entry{}
	}

	maps.Copy(all, wanted.Entries)

	for _, key := range slices.Sorted(maps.Keys(all)) {
		before, after := c.journal.Entries[key], wanted.Entries[key]
		if before == after {
			continue
		}

		detail := map[string]string{"key": key, "by": byOther, "run": before.Run, "phase": "", "value": ""}

		if _, has := wanted.Entries[key]; has {
			detail["phase"], detail["run"] = string(after.Phase), after.Run
		}

		c.record(all[key].Node, history.KindJournal, detail)
	}

	c.recordHolder(byOther, "", wanted.Holder)

	if c.journal.Manifests != nil && wanted.Manifests == nil {
		c.record("", history.KindJournal, map[string]string{
			"key": "manifests", "by": byOther, "run": c.journal.Manifests.Run, "phase": "", "value": "",
		})
	}
}

// AnnotateAsPerson sets annotations of the published object, by key without
// prefix; an empty value takes the key away.
func (c *Cluster) AnnotateAsPerson(changes map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, key := range slices.Sorted(maps.Keys(changes)) {
		value := changes[key]

		if value == "" {
			delete(c.noted, key)
		} else {
			c.noted[key] = value
		}

		c.record("", history.KindAnnotation, map[string]string{
			"object": "ConfigMap/kube-system/talosupgrade", "key": key, "value": value, "by": byOther,
		})
	}
}

// UnmarkAsPerson takes our mark off a node, and leaves its cordon. It tells whether
// there is a cordon that is nobody's then.
func (c *Cluster) UnmarkAsPerson(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	object, found := c.nodes[node]
	if !found || object.mark == "" {
		return false
	}

	object.mark = ""

	return object.unschedulable && !object.byMachine
}

// LabelAsPerson gives a node a label; an empty value takes it away.
func (c *Cluster) LabelAsPerson(node, key, value string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	object, found := c.nodes[node]
	if !found {
		return fmt.Errorf("node %s: %w", node, cluster.ErrNotFound)
	}

	if object.labels == nil {
		object.labels = map[string]string{}
	}

	object.labels[key] = value
	if value == "" {
		delete(object.labels, key)
	}

	if state, err := c.world.KubeState(node); err == nil {
		object.shown = nodeLabels(state, object.labels)
	}

	c.recordLabels(node, object.labels)

	return nil
}

// recordLabels adds the labels of a node to the history; with the lock held.
func (c *Cluster) recordLabels(node string, labels map[string]string) {
	var pairs []string

	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}

	c.record(node, history.KindLabel, map[string]string{"labels": strings.Join(pairs, ",")})
}

// DeleteNodeAsPerson deletes the Node object of a machine that goes on, and with
// it its cordon and its pods. Its kubelet registers it anew with the next thing
// that happens to it, or when [Cluster.RegisterNode] says so.
func (c *Cluster) DeleteNodeAsPerson(node string) error {
	c.mu.Lock()

	object, found := c.nodes[node]
	if !found {
		c.mu.Unlock()

		return fmt.Errorf("node %s: %w", node, cluster.ErrNotFound)
	}

	if object.set(false) {
		c.recordCordon(node, false, map[string]string{"by": byOther})
	}

	c.record(node, history.KindLabel, map[string]string{"labels": "", "object": "none"})
	delete(c.nodes, node)
	c.release(node)
	c.mu.Unlock()

	c.world.SetUnschedulable(node, false)

	return nil
}

// RegisterNode has the kubelet of a machine register its Node object where there
// is none.
func (c *Cluster) RegisterNode(node string) { c.follow(node) }

// LeaveNode is [Cluster.RemoveNode] with what becomes of the pods: others are
// started elsewhere in their place.
func (c *Cluster) LeaveNode(name string) error {
	if err := c.RemoveNode(name); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.release(name)

	return nil
}

// release has pods wait for another node; with the lock held.
func (c *Cluster) release(node string) {
	for _, p := range c.pods {
		if p.node == node && !p.bound {
			p.node = ""
		}
	}
}
