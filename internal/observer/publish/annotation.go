// SPDX-License-Identifier: MPL-2.0

// Package publish tells people and other tools how an upgrade is going, as
// upgrade.vitistack.io annotations on an object, and as phase and conditions in
// its status where its kind has them. It observes the engine and never holds it
// up: what cannot be published is retried in the background, and the last word is
// made true when the publisher is flushed or closed.
//
// Of a product that a run does not manage, and of both where nothing is to be done,
// it says what runs and what could run, and that the product is idle, unless the
// object says already that an upgrade to the very version is completed. It never
// writes a target: an operator would take that for an order.
//
// Others may write to the same object. Only keys of ours are patched; what somebody
// else makes of them is corrected with the next heartbeat and no sooner, and
// [Publisher.Notes] names it.
package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ cluster.Observer  = (*Publisher)(nil)
	_ cluster.Flusher   = (*Publisher)(nil)
	_ cluster.Announcer = (*Publisher)(nil)
)

// productRun is what an event says about one of Talos and Kubernetes.
type productRun struct {
	name string
	// progress is how far the product is; without a total where the event does not
	// say.
	progress cluster.Progress
	// target is zero where the product is not managed.
	target version.Version
	// next is the version that the product could be upgraded to after it; zero where
	// there is none that anybody knows of.
	next version.Version

	available, current, status, message, count string
}

// productRuns are the two of an event.
func productRuns(event cluster.Event) (talos, kubernetes productRun) {
	talos = productRun{
		name: "Talos", progress: event.Talos, target: event.Target.Talos,
		available: protocol.KeyTalosAvailable, current: protocol.KeyTalosCurrent, status: protocol.KeyTalosStatus, message: protocol.KeyTalosMessage, count: protocol.KeyTalosProgress,
	}
	kubernetes = productRun{
		name: "Kubernetes", progress: event.Kubernetes, target: event.Target.Kubernetes,
		available: protocol.KeyKubernetesAvailable, current: protocol.KeyKubernetesCurrent, status: protocol.KeyKubernetesStatus, message: protocol.KeyKubernetesMessage, count: protocol.KeyKubernetesProgress,
	}

	return talos, kubernetes
}

// managed tells whether the run is to say anything about the product.
func (h productRun) managed() bool { return !h.target.IsZero() }

// known tells whether the event says how far the product is.
func (h productRun) known() bool { return h.progress.Total > 0 }

// done tells whether nothing of the product is left to do and every node is known to
// be there.
func (h productRun) done() bool {
	return h.known() && h.progress.Steps == 0 && h.progress.Done == h.progress.Total
}

// settled tells whether a run has nothing to do in the product.
func (h productRun) settled() bool {
	return !h.managed() || h.known() && h.progress.Steps == 0
}

// say sets status and message of the product.
func (h productRun) say(changes map[string]*string, status, message string) {
	changes[h.status], changes[h.message] = text(status), text(message)
}

// complete says that the product is done, as far as every node shows it, and nothing
// where no node does, as where all are held. The lowest version seen is nearer to
// the truth than the one that was wanted.
func (h productRun) complete(changes map[string]*string) {
	if !h.known() {
		return
	}

	if h.progress.Done < h.progress.Total {
		h.say(changes, protocol.StatusPending, fmt.Sprintf("%s upgrade applied: %s nodes show %s so far", h.name, h.counted(), h.target))

		return
	}

	running := h.target
	if !h.progress.Lowest.IsZero() {
		running = h.progress.Lowest
	}

	h.say(changes, protocol.StatusCompleted, fmt.Sprintf("%s upgrade completed: now running %s", h.name, running))
}

// end says that nothing goes on in a product of which something is said to, and
// nothing else is known.
func (h productRun) end(wanted map[string]*string) {
	if !h.known() && moves(wanted, h) {
		h.say(wanted, protocol.StatusIdle, h.name+" upgrade ended: what the nodes run is not known")
	}
}

// fail says that the product did not get to its end.
func (h productRun) fail(changes map[string]*string, event cluster.Event) {
	h.say(changes, protocol.StatusFailed, h.name+" upgrade failed: "+reason(event))
}

// measure adds the numbers that the event knows.
func (h productRun) measure(changes map[string]*string) {
	if h.known() {
		changes[h.count] = text(h.counted())
	}

	if !h.progress.Lowest.IsZero() {
		changes[h.current] = text(h.progress.Lowest.String())
	}
}

func (h productRun) counted() string { return fmt.Sprintf("%d/%d", h.progress.Done, h.progress.Total) }

// aside is how far the product is, as part of a message; empty where the event does
// not say.
func (h productRun) aside() string {
	if !h.known() {
		return ""
	}

	return " (" + h.counted() + ")"
}

const (
	// messageLimit, in runes, keeps a long error from crowding out what else is
	// annotated.
	messageLimit = 500
	// listLimit, in bytes, does so for a long list of nodes.
	listLimit = 8 << 10
	// cutOff ends a list that is not whole.
	cutOff = ",..."
)

// message is what is to be said from an event on.
type message struct {
	// changes are annotations as they should be, nil for those that should not be.
	changes map[string]*string
	// rests are the products in which nothing goes on, by their status annotation.
	rests map[string]idleProduct
}

// runState is how a run has gone so far, as far as what is said depends on it.
type runState struct {
	// running tells that it goes on.
	running bool
	// begun tells that it got past everything that keeps a run from beginning.
	begun bool
	// idle tells that nothing was to be done when it began, and nothing was done.
	idle bool
}

// after is the course after an event about the products.
func (c runState) after(event cluster.Event, talos, kubernetes productRun) runState {
	switch event.Kind {
	case cluster.EventRunStarted:
		c.running, c.begun, c.idle = true, true, talos.settled() && kubernetes.settled()
	case cluster.EventNodeStarted, cluster.EventNodeDone, cluster.EventRollingBack:
		c.running, c.begun, c.idle = true, true, false
	case cluster.EventRunDone:
		c.running, c.begun = false, true
	case cluster.EventRunFailed:
		c.running, c.idle = false, false
	default:
	}

	return c
}

// translate says what an event changes, and how the run stands after it. An event
// claims nothing that it does not say itself.
func translate(event cluster.Event, so runState, available available) (message, runState) {
	talos, kubernetes := productRuns(event)
	if !talos.managed() && !kubernetes.managed() {
		return message{}, so
	}

	moving, other := concerned(event, talos, kubernetes)
	made := message{changes: map[string]*string{}, rests: map[string]idleProduct{}}
	next := so.after(event, talos, kubernetes)

	switch event.Kind {
	case cluster.EventRunStarted:
		start(made.changes, moving, next)
		made.changes[protocol.KeyFailedNodes] = nil
	case cluster.EventNodeStarted:
		moving.say(made.changes, protocol.StatusInProgress, begun(event)+onTheWay(event, moving)+moving.aside())
	case cluster.EventNodeDone:
		moving.say(made.changes, protocol.StatusInProgress, ended(event)+onTheWay(event, moving)+moving.aside())
	case cluster.EventRollingBack:
		if !talos.managed() {
			// Of what is not managed nothing is said.
			return message{}, so
		}

		talos.say(made.changes, protocol.StatusRollingBack, rolling(event))
	case cluster.EventRunDone:
		moving.complete(made.changes)
		made.changes[protocol.KeyFailedNodes] = nil
	case cluster.EventRunFailed:
		moving.fail(made.changes, event)
		made.changes[protocol.KeyFailedNodes] = failedNodes(event)
	default:
		return message{}, so
	}

	moving.measure(made.changes)

	if other.managed() {
		addOther(made.changes, event, next, moving, other)
		other.measure(made.changes)
	}

	talos.next, kubernetes.next = available.offer(made.changes, talos, kubernetes)

	for _, h := range [...]productRun{talos, kubernetes} {
		if h.rests(event, next) {
			made.rest(h, available.known(made.changes, h))
		}
	}

	return made, next
}

// concerned are the product that an event is about and the other one. What is not
// managed is never the first: bootstrap manifests that follow a roll of Talos are
// a part of that.
func concerned(event cluster.Event, talos, kubernetes productRun) (moving, other productRun) {
	switch {
	case !kubernetes.managed():
		return talos, kubernetes
	case !talos.managed(), event.Component != "":
		return kubernetes, talos
	case event.Kind == cluster.EventRunStarted, event.Kind == cluster.EventRunFailed:
		// Such an event is about what comes next.
		if talos.done() {
			return kubernetes, talos
		}
	}

	return talos, kubernetes
}

// addOther says how the product is that an event is not about. A run that ends leaves
// nothing behind that looks as if it went on.
func addOther(changes map[string]*string, event cluster.Event, so runState, moving, other productRun) {
	switch {
	case event.Kind == cluster.EventRunDone, so.idle, other.known() && other.settled():
		// What is applied and not shown by every node waits for those alone.
		other.complete(changes)
	case other.progress.Steps > 0:
		other.say(changes, protocol.StatusBlocked, cmp.Or(other.progress.Waits, "Waiting for "+moving.name+" upgrade to complete"))
	case event.Kind == cluster.EventRunFailed:
		other.fail(changes, event)
	}
}

// start says that the product begins to move, or that there is nothing to do in it.
func start(changes map[string]*string, moving productRun, so runState) {
	switch {
	case !moving.known():
		return
	case so.idle || moving.done():
		moving.complete(changes)

		return
	}

	from := "an unknown version"
	if !moving.progress.Lowest.IsZero() {
		from = moving.progress.Lowest.String()
	}

	if moving.progress.Lowest.Equal(moving.target) {
		// What is left to do moves no version.
		moving.say(changes, protocol.StatusInProgress, fmt.Sprintf("Finishing the %s upgrade to %s", moving.name, moving.target))

		return
	}

	moving.say(changes, protocol.StatusInProgress, fmt.Sprintf("%s upgrade started: %s \u2192 %s", moving.name, from, moving.target))
}

// begun and ended are what a turn does.
func begun(event cluster.Event) string {
	switch event.Component {
	case "":
		return "Upgrading node " + event.Node
	case cluster.Manifests:
		return "Syncing the bootstrap manifests"
	default:
		return "Upgrading " + string(event.Component) + " on " + event.Node
	}
}

func ended(event cluster.Event) string {
	switch event.Component {
	case "":
		return "Node " + event.Node + " upgraded"
	case cluster.Manifests:
		return "Bootstrap manifests synced"
	default:
		return string(event.Component) + " on " + event.Node + " upgraded"
	}
}

// rolling is what is done to a node that did not become healthy.
func rolling(event cluster.Event) string {
	return "Rolling back node " + event.Node + " to " + event.To.String() + ": " + reason(event)
}

// failedNodes lists the nodes of a run that failed, each once; nil where it is
// about none.
func failedNodes(event cluster.Event) *string {
	var names []string

	for name := range strings.SplitSeq(event.Node, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	if len(names) == 0 {
		return nil
	}

	return text(listed(names))
}

// listed is the list of names, cut off between two of them where it is too long.
func listed(names []string) string {
	whole := strings.Join(names, ",")
	if len(whole) <= listLimit {
		return whole
	}

	kept := whole[:listLimit-len(cutOff)]

	return kept[:max(strings.LastIndexByte(kept, ','), 0)] + cutOff
}

// onTheWay names a version between what ran and the target, so that nobody takes
// the node to be at the target.
func onTheWay(event cluster.Event, moving productRun) string {
	if event.Component == cluster.Manifests || event.To.IsZero() || event.To.Equal(moving.target) {
		return ""
	}

	return " to " + event.To.String()
}

// reason is why a run failed, in one line.
func reason(event cluster.Event) string {
	why := strings.TrimSpace(event.Text)

	if why == "" && event.Err != nil {
		why = event.Err.Error()
	}

	why, _, _ = strings.Cut(strings.TrimSpace(why), "\n")

	if why = shortened(why, messageLimit); why == "" {
		return "the reason is not known"
	}

	return why
}

// shortened is the text with at most so many runes.
func shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "\u2026"
	}

	return text
}
