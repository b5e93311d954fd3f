// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	byClient = "client"
	byOther  = "other"
	// keyHolder is the entry of the journal that names who acquired the lease last.
	keyHolder = "holder"
)

// lease is who may act.
type lease struct {
	holder, by string
	renewed    float64
	// held is true once somebody ever had it.
	held bool
	// noted is who acquired it last according to the journal.
	noted string
}

// leased follows the lease. A new holder has its own target, and none of its cordons has been lifted yet.
func (c *Checker) leased(event history.Event) {
	holder := event.Detail["holder"]
	if holder != c.lease.holder && holder != "" {
		c.target, c.configures = "", false
		clear(c.claims)

		for _, n := range c.nodes {
			n.wanted, n.unpulled, n.lifts = "", "", 0
			n.heldBy.forget()
			n.canaryBy.forget()
		}
	}

	if holder == "" && c.lease.holder != "" {
		c.checkReleased(cmp.Or(event.Detail["by"], byClient))
	}

	c.lease.holder, c.lease.by = holder, cmp.Or(event.Detail["by"], byClient)
	c.lease.renewed = c.at
	c.lease.held = c.lease.held || holder != ""
}

// acted asserts for a change by our client that it held the lease, and had renewed it recently.
func (c *Checker) acted(event history.Event, what string) {
	actor := event.Detail["client"]
	if actor == "" && event.Kind == history.KindJournal && event.Detail["phase"] != "" {
		actor = event.Detail["run"]
	}

	switch {
	case c.lease.holder == "":
		c.violate(S12, event.Node, "%s without a lease", what)
	case c.lease.by == byOther || actor != "" && !holds(c.lease.holder, actor):
		c.violate(S7, event.Node, "%s while the lease was held by %s", what, c.lease.holder)
	case c.options.leaseSeconds > 0 && c.at-c.lease.renewed > c.options.leaseSeconds:
		c.violate(S7, event.Node, "%s %.0f s after the lease was last renewed", what, c.at-c.lease.renewed)
	}
}

// holds reports whether the holder is the run. The holder may have the owner of the run appended.
func holds(holder, run string) bool {
	return holder == run || strings.HasPrefix(holder, run+" ")
}

// ours reports whether our client did it; a history that does not say who did has no other writers.
func ours(event history.Event) bool { return cmp.Or(event.Detail["by"], byClient) == byClient }

// journalled judges a change of the journal, and learns the target of the run.
func (c *Checker) journalled(event history.Event) {
	phase := event.Detail["phase"]
	name := cmp.Or(event.Node, event.Detail["key"])

	if event.Detail["key"] == keyManifests {
		name = keyManifests
	}

	if event.Detail["key"] == keyHolder {
		c.lease.noted = event.Detail["value"]

		if ours(event) && c.lease.noted != "" {
			c.acted(event, "wrote the journal")
		}

		return
	}

	if event.Detail["key"] == keySnapshot {
		// The entry is not unfinished work, and anybody may remove it.
		if ours(event) && event.Detail["value"] != "" {
			c.acted(event, "wrote the journal")
		}

		return
	}

	before := c.phases[name]
	if phase == "intent" && ours(event) {
		c.intends(name, event.Detail["run"])

		if noted := c.lease.noted; noted != "" && !holds(noted, event.Detail["run"]) {
			c.violate(S7, event.Node, "%s wrote an intent into a journal that %s had put its name into", event.Detail["run"], noted)
		}
	}

	c.phases[name] = phase

	if before == rollingBack && phase != rollingBack {
		c.rolledAt = moment{c.now, c.at}
	}

	if !ours(event) {
		return
	}

	if phase != "" || open(before) {
		c.acted(event, "wrote the journal")
	}

	var entry struct {
		Target string `json:"target"`
	}

	// A value that cannot be parsed has no target.
	if json.Unmarshal([]byte(event.Detail["value"]), &entry) == nil && entry.Target != "" && phase == "intent" {
		c.node(name).wanted = entry.Target

		if entry.Target != c.target {
			c.target = entry.Target
			c.checkClaims()
		}
	}
}

// open reports whether the entry is unfinished work, which only a run may remove.
func open(phase string) bool { return phase != "" && phase != "fallback" && phase != phaseRolledBack }

// wrote judges a write that has no kind of its own, and learns from it that a node has left: its machine may be
// gone for long. A write that failed has changed nothing; our own objects may be created for the lease and removed
// without it.
func (c *Checker) wrote(event history.Event) {
	detail := event.Detail

	if detail["verb"] == "delete" && detail["resource"] == "nodes" && strings.HasPrefix(detail["code"], "2") {
		c.node(detail["name"]).left = true
	}

	c.wroteNode(event)

	if !ours(event) || strings.HasPrefix(detail["code"], "4") || strings.HasPrefix(detail["code"], "5") {
		return
	}

	own := detail["namespace"] == "kube-system" && strings.HasPrefix(detail["name"], "talosupgrade")
	if own && (detail["resource"] == "leases" || detail["verb"] == "delete" || detail["name"] == "talosupgrade") {
		return
	}

	if c.operatorWrote(event) {
		return
	}

	c.acted(event, detail["verb"]+" of "+detail["resource"]+" "+detail["name"])
}
