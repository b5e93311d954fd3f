// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// messageLimit keeps a long error from crowding out what else is annotated.
const messageLimit = 500

// translate says which annotations an event changes, and whether the run goes
// on after it. An event claims nothing that it does not say itself.
func translate(event cluster.Event, running bool) (changes map[string]*string, goesOn bool) {
	if event.Target.Talos.IsZero() {
		return nil, running
	}

	switch event.Kind {
	case cluster.EventRunStarted:
		changes = states(StatusInProgress, fmt.Sprintf("Talos upgrade started: %s \u2192 %s", event.Lowest, event.Target.Talos))
		changes[KeyFailedNodes] = nil
		goesOn = true
	case cluster.EventNodeStarted:
		changes = states(StatusInProgress, "Upgrading node "+event.Node+onTheWay(event)+counted(event))
		goesOn = true
	case cluster.EventNodeDone:
		changes = states(StatusInProgress, "Node "+event.Node+" upgraded"+onTheWay(event)+counted(event))
		goesOn = true
	case cluster.EventRunDone:
		changes = states(StatusCompleted, fmt.Sprintf("Talos upgrade completed: now running %s", reached(event)))
		changes[KeyFailedNodes] = nil
	case cluster.EventRunFailed:
		changes = states(StatusFailed, "Talos upgrade failed: "+reason(event))
		changes[KeyFailedNodes] = nil

		if event.Node != "" {
			changes[KeyFailedNodes] = text(event.Node)
		}
	case cluster.EventNodeStep, cluster.EventWaiting, cluster.EventWarning:
		return nil, running
	default:
		return nil, running
	}

	if event.Total > 0 {
		changes[KeyProgress] = text(progress(event))
	}

	if !event.Lowest.IsZero() {
		changes[KeyCurrent] = text(event.Lowest.String())
	}

	return changes, goesOn
}

func states(status, message string) map[string]*string {
	return map[string]*string{KeyStatus: text(status), KeyMessage: text(message)}
}

func progress(event cluster.Event) string { return fmt.Sprintf("%d/%d", event.Done, event.Total) }

// onTheWay names a version between what ran and the target, so that nobody takes
// the node to be at the target.
func onTheWay(event cluster.Event) string {
	if event.To.IsZero() || event.To.Equal(event.Target.Talos) {
		return ""
	}

	return " to " + event.To.String()
}

// counted is how far the run is, as part of a message; empty where the event
// does not say.
func counted(event cluster.Event) string {
	if event.Total == 0 {
		return ""
	}

	return " (" + progress(event) + ")"
}

// reached is what runs now. The lowest version seen is nearer to the truth than
// the one that was wanted.
func reached(event cluster.Event) version.Version {
	if !event.Lowest.IsZero() {
		return event.Lowest
	}

	return event.Target.Talos
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
