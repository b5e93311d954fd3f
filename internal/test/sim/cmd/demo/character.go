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
	// before is the version the node had when it was introduced.
	before, talos string

	cordoned, rebooting, down, ready, etcdDown bool
	// pulled is the last image that was pulled: each is told once.
	pulled string

	// evicted counts pods since the last line about the node, the last of them
	// at evictedAt.
	evicted   int
	evictedAt float64
	blocked   bool

	// started and finished span the node's turn, in simulated seconds; started
	// is negative before it.
	started, finished float64
	moved             bool
}

// state is the node in a word or two.
func (c *character) state(target string) string {
	switch {
	case c.down:
		return "down"
	case c.rebooting:
		return c.talos + " rebooting"
	case !c.ready:
		return c.talos + " starting"
	case c.cordoned:
		return c.talos + " cordoned"
	case c.talos == target:
		return c.talos + " ok"
	default:
		return c.talos
	}
}

// act changes the node by an event and returns the lines about it, without
// their node.
func (c *character) act(event history.Event) []entry {
	switch event.Kind {
	case history.KindEvict, history.KindDelete:
		c.leave(event)

		return nil
	case history.KindRPC, history.KindRead, history.KindTold, history.KindWrite, history.KindJournal:
		return nil
	}

	what, as := c.change(event)
	if what == "" {
		return nil
	}

	entries := c.drained()

	return append(entries, entry{sim: event.Sim, what: what, mood: as})
}

// leave counts a pod on its way out.
func (c *character) leave(event history.Event) {
	switch outcome := event.Detail["outcome"]; {
	case outcome == "blocked":
		c.blocked = true
	case outcome == "evicted", event.Kind == history.KindDelete && event.Detail["by"] == "client":
		c.evicted++
		c.evictedAt = event.Sim
	}
}

// drained is the line about the pods that left since the last line.
func (c *character) drained() []entry {
	if c.evicted == 0 {
		return nil
	}

	what := fmt.Sprintf("drained: %d pods", c.evicted)
	if c.evicted == 1 {
		what = "drained: 1 pod"
	}

	if c.blocked {
		what += ", after waiting for a disruption budget"
	}

	at := c.evictedAt
	c.evicted, c.blocked = 0, false

	return []entry{{sim: at, what: what, mood: busy}}
}

// change is what an event does to the node, and how that reads; empty when it
// is not worth a line.
func (c *character) change(event history.Event) (what string, as mood) {
	detail := event.Detail

	switch event.Kind {
	case history.KindPull:
		return c.pull(detail)
	case history.KindCordon:
		return c.cordon(event)
	case history.KindInstall:
		return installed(detail)
	case history.KindStage:
		return c.stage(detail)
	case history.KindDown:
		c.down, c.rebooting, c.ready = true, false, false

		return "down", busy
	case history.KindBoot:
		return c.boot(detail)
	case history.KindEtcd:
		return c.etcd(detail)
	case history.KindKubelet:
		return c.kubelet(event)
	case history.KindFault:
		return fault(detail)
	default:
		return "", plain
	}
}

func (c *character) pull(detail map[string]string) (string, mood) {
	image := detail["image"]

	switch {
	case detail["ok"] != "true":
		return "pull failed: " + image, bad
	case image == c.pulled:
		return "", plain
	default:
		c.pulled = image

		return "pulled " + tag(image), busy
	}
}

// etcd tells of a member that is back; the others' events are about elections.
func (c *character) etcd(detail map[string]string) (string, mood) {
	wasDown := c.etcdDown
	c.etcdDown = detail["state"] != "healthy"

	if !wasDown || c.etcdDown {
		return "", plain
	}

	return "etcd member healthy", busy
}

func installed(detail map[string]string) (string, mood) {
	if exit := detail["exit"]; exit != "0" {
		return "installer failed with exit code " + exit, bad
	}

	return fmt.Sprintf("installed %s in slot %s, beside the running system", detail["talos"], detail["slot"]), busy
}

func (c *character) cordon(event history.Event) (string, mood) {
	c.cordoned = event.Detail["unschedulable"] == "true"

	if c.cordoned {
		c.started = event.Sim

		return "cordoned", busy
	}

	c.finished, c.moved = event.Sim, true

	return "uncordoned", good
}

func (c *character) stage(detail map[string]string) (string, mood) {
	switch detail["to"] {
	case "rebooting":
		c.rebooting = true

		return "rebooting", busy
	case "upgrading":
		return "upgrading by itself (one call below Talos 1.13)", busy
	default:
		return "", plain
	}
}

func (c *character) boot(detail map[string]string) (string, mood) {
	c.down, c.rebooting, c.ready = false, false, false
	c.talos = detail["talos"]

	if detail["fallback"] == "true" {
		return "FELL BACK to " + c.talos, bad
	}

	return "booted " + c.talos, busy
}

func (c *character) kubelet(event history.Event) (string, mood) {
	ready := event.Detail["ready"] == "true"
	changed := ready != c.ready
	c.ready = ready

	switch {
	case !changed, c.down, !ready:
		return "", plain
	default:
		c.finished, c.moved = event.Sim, true

		return "Ready", good
	}
}

// tag is the tag of an image.
func tag(image string) string {
	_, after, found := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !found {
		return image
	}

	return after
}
