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
	// keyHold is the annotation that keeps an operator from acting on its object, whatever its value.
	keyHold = "do-not-reconcile"
	// suffixTarget ends the keys that ask an operator to act.
	suffixTarget = "-target"

	keyTalosCurrent = "talos-current"
)

// object is what others read on an object on which an operator acts.
type object struct {
	name string
	// hold keeps the operator from acting; empty if nothing does. heldBy is who wrote it.
	hold, heldBy string
	// lifted is true if somebody else removed our hold, for which we do not answer.
	lifted bool
	// current is the Talos version that the object shows, whoever wrote it.
	current string
}

// object returns an object by its name in the history.
func (c *Checker) object(name string) *object {
	found, known := c.objects[name]
	if !known {
		found = &object{name: name}
		c.objects[name] = found
	}

	return found
}

// ours reports whether the run that has the lease keeps the operator from acting.
func (o *object) ours(holder string) bool {
	return o.hold != "" && o.heldBy == byClient && holds(holder, o.hold)
}

// operatorTold follows what an operator reads on its object, and judges what our client writes there.
func (c *Checker) operatorTold(event history.Event) {
	key, value := event.Detail["key"], event.Detail["value"]
	o := c.object(event.Detail["object"])

	switch {
	case key == keyHold:
		c.holdChanged(event, o)
	case asks(key) && ours(event):
		c.asked(event, key)
	case ours(event) && value != "":
		c.spokeFor(event, "the annotation "+key)
	}

	if key == keyTalosCurrent {
		o.current = value
	}
}

// asks reports whether a key is for people to ask an operator for something.
func asks(key string) bool {
	switch key {
	case "resume", "skip-failed-nodes", "retry-failed-nodes", "talos-reset-upgrade-state":
		return true
	default:
		return strings.HasSuffix(key, suffixTarget)
	}
}

// asked asserts that only a run that delegates asks an operator to act.
func (c *Checker) asked(event history.Event, what string) {
	if !c.options.delegated {
		c.violate(S7, "", "wrote %s, which is how another upgrader is started", what)

		return
	}

	// A request may also be withdrawn after the lease is lost.
	if event.Detail["value"] != "" || event.Kind == history.KindWrite {
		c.acted(event, "wrote "+what)
	}
}

// spokeFor asserts that a run that delegates leaves reporting the progress to the operator.
func (c *Checker) spokeFor(event history.Event, what string) {
	if c.options.delegated {
		c.violate(S7, event.Node, "wrote %s, which is for the operator to say", what)
	}
}

// holdChanged judges a change of a hold. An object without a hold, or with one of our runs, may get the hold of the
// run that has the lease.
func (c *Checker) holdChanged(event history.Event, o *object) {
	value, by := event.Detail["value"], cmp.Or(event.Detail["by"], byClient)
	mine := by == byClient

	switch {
	case !mine:
	case o.hold != "" && o.heldBy == byOther:
		c.violate(S9, "", "took away the hold %q of %s, which somebody else had set", o.hold, o.name)
	case value == "":
		c.checkLetGo(o)
	case c.lease.holder != "" && !holds(c.lease.holder, value):
		c.violate(S7, "", "kept the operator of %s from acting in the name of %s while %s held the lease", o.name, value, c.lease.holder)
	default:
		c.acted(event, "kept the operator of "+o.name+" from acting")
	}

	o.lifted = !mine && o.heldBy == byClient && o.hold != ""
	o.hold, o.heldBy = value, by
}

// checkLetGo asserts that an operator may act again only once its object shows the result of an upgrade.
func (c *Checker) checkLetGo(o *object) {
	if !c.options.operated[o.name] || c.target == "" || o.current == "" {
		return
	}

	if lowest := c.lowestTalos(); parse(o.current).Less(lowest) {
		c.violate(S7, "", "let the operator of %s act again while %s said %s there and every node ran %s or newer", o.name, keyTalosCurrent, o.current, lowest)
	}
}

// ownHands asserts for something that our client did to a machine or to pods that nobody else was to do it, and
// that no operator could do so at the same time.
func (c *Checker) ownHands(event history.Event, what string) {
	if c.options.delegated {
		c.violate(S7, event.Node, "%s although an operator was to upgrade the cluster", what)

		return
	}

	for _, name := range slices.Sorted(maps.Keys(c.options.operated)) {
		if o := c.object(name); !o.ours(c.lease.holder) && !o.lifted {
			c.violate(S7, event.Node, "%s while nothing kept the operator of %s from acting", what, name)
		}
	}
}

// checkReleased asserts that a run that releases the lease has let the operator go before.
func (c *Checker) checkReleased(by string) {
	for _, name := range slices.Sorted(maps.Keys(c.options.operated)) {
		if o := c.object(name); by == byClient && o.hold != "" && o.heldBy == byClient {
			c.violate(S7, "", "gave the lease back and left the hold %q of %s", o.hold, name)
		}
	}
}

// operatorWrote judges a write to a custom resource, or of an Event, about which the history contains nothing more;
// false if it is about something else.
func (c *Checker) operatorWrote(event history.Event) bool {
	resource, part, _ := strings.Cut(event.Detail["resource"], "/")

	switch resource {
	case "taloscontrolplanes", "talosworkers", "talosmachines":
		// This operator is asked by what its objects are to run.
		if part == "" {
			c.asked(event, event.Detail["resource"]+" "+event.Detail["name"])

			return true
		}

		c.spokeFor(event, event.Detail["resource"])
	case "kubernetesclusters", "events":
	default:
		return false
	}

	c.publishes(event, event.Detail["resource"])

	return true
}

// publishes asserts that nothing about an upgrade is published before there is a lease. It may be published late.
func (c *Checker) publishes(event history.Event, what string) {
	if !c.lease.held {
		c.violate(S12, event.Node, "wrote %s before there was a lease", what)
	}
}
