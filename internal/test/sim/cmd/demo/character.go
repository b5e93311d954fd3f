// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// character is a node as the events show it.
type character struct {
	role string
	// before is the version that the node had when it was introduced, talos the one that it runs, and slot the slot
	// of that.
	before, talos, target, slot string

	cordoned, down, ready, etcdDown bool
	// pulled is true once it has the image.
	pulled bool
	// turn is nil except from a cordon to its end.
	turn *turn
}

// turn is what happens to a node from its cordon on.
type turn struct {
	began float64
	// doing is what happens now, done is what happened.
	doing string
	done  []string
	bad   bool
	drain drain
}

// drain is how the pods of a node leave it.
type drain struct {
	evicted, deleted int
	// held are the pods that a budget kept, from blockedAt until the last of them left at freedAt.
	held               map[string]bool
	budgets            map[string]bool
	blockedAt, freedAt float64
}

// out reports whether the node is out of service.
func (c *character) out() bool { return c.cordoned || c.down || !c.ready }

// act changes the node by an event and returns the lines about it, without
// their node.
func (c *character) act(event history.Event) []entry {
	detail := event.Detail

	switch event.Kind {
	case history.KindPull:
		return c.pull(detail)
	case history.KindCordon:
		return c.cordon(event)
	case history.KindEvict, history.KindDelete:
		c.leave(event)
	case history.KindInstall:
		c.install(detail)
	case history.KindStage:
		c.stage(detail)
	case history.KindDown:
		c.down, c.ready = true, false
		c.doing("is down")
	case history.KindBoot:
		c.boot(detail)
	case history.KindEtcd:
		c.etcd(detail)
	case history.KindKubelet:
		c.kubelet(detail)
	case history.KindFault:
		return []entry{fault(detail)}
	}

	return nil
}

// doing notes what happens to the node now, in its turn.
func (c *character) doing(what string) {
	if c.turn != nil {
		c.turn.doing = what
	}
}

// did notes what has happened to the node, in its turn.
func (c *character) did(what string) {
	if c.turn != nil {
		c.turn.drained()
		c.turn.done = append(c.turn.done, what)
	}
}

func (c *character) pull(detail map[string]string) []entry {
	c.pulled = c.pulled || detail["ok"] == "true"

	if detail["ok"] != "true" {
		return []entry{{took: "-", what: "could not pull " + detail["image"], mood: bad}}
	}

	return nil
}

// cordon begins the turn, or ends it.
func (c *character) cordon(event history.Event) []entry {
	c.cordoned = event.Detail["unschedulable"] == "true"

	switch {
	case c.cordoned:
		c.turn = &turn{began: event.Sim, doing: "is cordoned"}
	case c.turn != nil:
		return []entry{c.end(event.Sim)}
	}

	return nil
}

// end ends the turn and returns the line about it.
func (c *character) end(now float64) entry {
	c.turn.drained()

	line := entry{took: short(now - c.turn.began), what: strings.Join(c.turn.done, ", "), mood: good}
	if c.turn.bad {
		line.mood = bad
	}

	c.turn = nil

	return line
}

// leave follows a pod that leaves.
func (c *character) leave(event history.Event) {
	if c.turn == nil {
		return
	}

	pods, pod := &c.turn.drain, event.Detail["namespace"]+"/"+event.Detail["pod"]

	switch outcome := event.Detail["outcome"]; {
	case outcome == "blocked":
		if pods.held == nil {
			pods.held, pods.budgets, pods.blockedAt = map[string]bool{}, map[string]bool{}, event.Sim
		}

		pods.held[pod], pods.budgets[event.Detail["budget"]] = true, true
		c.turn.doing = fmt.Sprintf("drains: %s gone, waiting for the budget %s", several(pods.evicted, "pod"), event.Detail["budget"])

		return
	case outcome == "evicted":
		pods.evicted++
	case event.Kind == history.KindDelete && event.Detail["by"] == "client":
		pods.deleted++
	default:
		return
	}

	if pods.held[pod] {
		pods.freedAt = event.Sim
	}

	c.turn.doing = fmt.Sprintf("drains: %s gone", several(pods.evicted+pods.deleted, "pod"))
}

// drained notes how the pods left, once something else happens.
func (t *turn) drained() {
	pods := t.drain
	t.drain = drain{}

	if pods.evicted+pods.deleted == 0 {
		return
	}

	what := "drained " + several(pods.evicted+pods.deleted, "pod")

	if len(pods.held) > 0 && pods.freedAt > 0 {
		budget := "a budget"
		if len(pods.budgets) > 1 {
			budget = "budgets"
		}

		what += fmt.Sprintf(" (%s held %d for %s)", budget, len(pods.held), short(pods.freedAt-pods.blockedAt))
	}

	if pods.deleted > 0 {
		what += fmt.Sprintf(" (%d deleted)", pods.deleted)
	}

	t.done = append(t.done, what)
}

func (c *character) install(detail map[string]string) {
	switch {
	case detail["exit"] != "0":
		c.did("the installer failed with exit code " + detail["exit"])
	case detail["slot"] == c.slot:
		c.did(fmt.Sprintf("installed %s over %s", detail["talos"], c.talos))
	default:
		c.did(fmt.Sprintf("installed %s beside %s", detail["talos"], c.talos))
	}

	if c.turn != nil && (detail["exit"] != "0" || detail["slot"] == c.slot) {
		c.turn.bad = true
	}

	c.doing("has " + detail["talos"] + " installed")
}

func (c *character) stage(detail map[string]string) {
	switch detail["to"] {
	case "upgrading":
		c.doing("installs " + c.target + " beside " + c.talos)
	case "rebooting":
		c.doing("reboots")
	}
}

func (c *character) boot(detail map[string]string) {
	c.down, c.ready = false, false
	c.talos, c.slot = detail["talos"], detail["slot"]
	c.doing("boots " + c.talos)

	if detail["fallback"] != "true" {
		c.did("rebooted")

		return
	}

	c.did("FELL BACK to " + c.talos)

	if c.turn != nil {
		c.turn.bad = true
	}
}

// etcd notes a member that is back; the others' events are about elections.
func (c *character) etcd(detail map[string]string) {
	wasDown := c.etcdDown
	c.etcdDown = detail["state"] != "healthy"

	if wasDown && !c.etcdDown {
		c.did("etcd healthy")
	}
}

func (c *character) kubelet(detail map[string]string) {
	was := c.ready
	c.ready = detail["ready"] == "true"

	if c.ready && !was && !c.down {
		c.did("Ready")
		c.doing("is Ready with " + c.talos + ", checked before it is uncordoned")
	}
}
