// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// messageLimit keeps a long error from crowding out what else is annotated.
const messageLimit = 500

// translate says which annotations an event changes, and whether the run goes
// on after it. An event claims nothing that it does not say itself.
func translate(event cluster.Event, running bool) (changes map[string]*string, goesOn bool) {
	talos, kubernetes := halves(event)
	if !talos.managed() && !kubernetes.managed() {
		return nil, running
	}

	moving, other := concerned(event, talos, kubernetes)
	changes = map[string]*string{}

	switch event.Kind {
	case cluster.EventRunStarted:
		start(changes, moving)
		changes[KeyFailedNodes] = nil
		goesOn = true
	case cluster.EventNodeStarted:
		moving.say(changes, StatusInProgress, begun(event)+onTheWay(event, moving)+moving.aside())
		goesOn = true
	case cluster.EventNodeDone:
		moving.say(changes, StatusInProgress, ended(event)+onTheWay(event, moving)+moving.aside())
		goesOn = true
	case cluster.EventRollingBack:
		if !talos.managed() {
			// Of what is not managed nothing is said.
			return nil, running
		}

		talos.say(changes, StatusRollingBack, rolling(event))
		goesOn = true
	case cluster.EventRunDone:
		moving.complete(changes)
		changes[KeyFailedNodes] = nil
	case cluster.EventRunFailed:
		moving.fail(changes, event)
		changes[KeyFailedNodes] = failedNodes(event)
	default:
		return nil, running
	}

	moving.measure(changes)

	if other.managed() {
		beside(changes, event, moving, other)
		other.measure(changes)
	}

	return changes, goesOn
}

// concerned are the half that an event is about and the other one. What is not
// managed is never the first: bootstrap manifests that follow a roll of Talos are
// a part of that.
func concerned(event cluster.Event, talos, kubernetes half) (moving, other half) {
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

// beside says how the half is that an event is not about. A run that ends leaves
// nothing behind that looks as if it went on.
func beside(changes map[string]*string, event cluster.Event, moving, other half) {
	switch {
	case event.Kind == cluster.EventRunDone, other.done():
		other.complete(changes)
	case other.progress.Steps > 0:
		other.say(changes, StatusBlocked, cmp.Or(other.progress.Waits, "Waiting for "+moving.name+" upgrade to complete"))
	case event.Kind == cluster.EventRunFailed:
		other.fail(changes, event)
	}
}

// start says that the half begins to move, or that there is nothing to do in it.
func start(changes map[string]*string, moving half) {
	if moving.done() {
		moving.complete(changes)

		return
	}

	from := "an unknown version"
	if !moving.progress.Lowest.IsZero() {
		from = moving.progress.Lowest.String()
	}

	if moving.progress.Lowest.Equal(moving.target) {
		// What is left to do moves no version.
		moving.say(changes, StatusInProgress, fmt.Sprintf("Finishing the %s upgrade to %s", moving.name, moving.target))

		return
	}

	moving.say(changes, StatusInProgress, fmt.Sprintf("%s upgrade started: %s \u2192 %s", moving.name, from, moving.target))
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

	return text(strings.Join(names, ","))
}

// onTheWay names a version between what ran and the target, so that nobody takes
// the node to be at the target.
func onTheWay(event cluster.Event, moving half) string {
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

	if runes := []rune(why); len(runes) > messageLimit {
		why = string(runes[:messageLimit-1]) + "\u2026"
	}

	if why == "" {
		return "the reason is not known"
	}

	return why
}
