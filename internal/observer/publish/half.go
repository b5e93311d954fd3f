// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// half is what an event says about one of Talos and Kubernetes.
type half struct {
	name string
	// progress is how far the half is; without a total where the event does not
	// say.
	progress cluster.Progress
	// target is zero where the half is not managed.
	target version.Version
	// next is the version that the half could be upgraded to after it; zero where
	// there is none that anybody knows of.
	next version.Version

	available, current, status, message, count string
}

// halves are the two of an event.
func halves(event cluster.Event) (talos, kubernetes half) {
	talos = half{
		name: "Talos", progress: event.Talos, target: event.Target.Talos,
		available: KeyAvailable, current: KeyCurrent, status: KeyStatus, message: KeyMessage, count: KeyProgress,
	}
	kubernetes = half{
		name: "Kubernetes", progress: event.Kubernetes, target: event.Target.Kubernetes,
		available: KeyKubernetesAvailable, current: KeyKubernetesCurrent, status: KeyKubernetesStatus, message: KeyKubernetesMessage, count: KeyKubernetesProgress,
	}

	return talos, kubernetes
}

// managed tells whether the run is to say anything about the half.
func (h half) managed() bool { return !h.target.IsZero() }

// known tells whether the event says how far the half is.
func (h half) known() bool { return h.progress.Total > 0 }

// done tells whether nothing of the half is left to do and every node is known to
// be there.
func (h half) done() bool {
	return h.known() && h.progress.Steps == 0 && h.progress.Done == h.progress.Total
}

// settled tells whether a run has nothing to do in the half.
func (h half) settled() bool {
	return !h.managed() || h.known() && h.progress.Steps == 0
}

// say sets status and message of the half.
func (h half) say(changes map[string]*string, status, message string) {
	changes[h.status], changes[h.message] = text(status), text(message)
}

// complete says that the half is done, as far as every node shows it, and nothing
// where no node does, as where all are held. The lowest version seen is nearer to
// the truth than the one that was wanted.
func (h half) complete(changes map[string]*string) {
	if !h.known() {
		return
	}

	if h.progress.Done < h.progress.Total {
		h.say(changes, StatusPending, fmt.Sprintf("%s upgrade applied: %s nodes show %s so far", h.name, h.counted(), h.target))

		return
	}

	running := h.target
	if !h.progress.Lowest.IsZero() {
		running = h.progress.Lowest
	}

	h.say(changes, StatusCompleted, fmt.Sprintf("%s upgrade completed: now running %s", h.name, running))
}

// end says that nothing goes on in a half of which something is said to, and
// nothing else is known.
func (h half) end(wanted map[string]*string) {
	if !h.known() && moves(wanted, h) {
		h.say(wanted, StatusIdle, h.name+" upgrade ended: what the nodes run is not known")
	}
}

// fail says that the half did not get to its end.
func (h half) fail(changes map[string]*string, event cluster.Event) {
	h.say(changes, StatusFailed, h.name+" upgrade failed: "+reason(event))
}

// measure adds the numbers that the event knows.
func (h half) measure(changes map[string]*string) {
	if h.known() {
		changes[h.count] = text(h.counted())
	}

	if !h.progress.Lowest.IsZero() {
		changes[h.current] = text(h.progress.Lowest.String())
	}
}

func (h half) counted() string { return fmt.Sprintf("%d/%d", h.progress.Done, h.progress.Total) }

// aside is how far the half is, as part of a message; empty where the event does
// not say.
func (h half) aside() string {
	if !h.known() {
		return ""
	}

	return " (" + h.counted() + ")"
}
