// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// messageLimit, in runes, keeps a long error from crowding out what else is
	// annotated.
	messageLimit = 500
	// listLimit, in bytes, does so for a long list of nodes.
	listLimit = 8 << 10
	// cutOff ends a list that is not whole.
	cutOff = ",..."
)

// word is what is to be said from an event on.
type word struct {
	// changes are annotations as they should be, nil for those that should not be.
	changes map[string]*string
	// rests are the halves in which nothing goes on, by their status annotation.
	rests map[string]quiet
}

// course is how a run has gone so far, as far as what is said depends on it.
type course struct {
	// running tells that it goes on.
	running bool
	// begun tells that it got past everything that keeps a run from beginning.
	begun bool
	// idle tells that nothing was to be done when it began, and nothing was done.
	idle bool
}

// after is the course after an event about the halves.
func (c course) after(event cluster.Event, talos, kubernetes half) course {
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
func translate(event cluster.Event, so course, available available) (word, course) {
	talos, kubernetes := halves(event)
	if !talos.managed() && !kubernetes.managed() {
		return word{}, so
	}

	moving, other := concerned(event, talos, kubernetes)
	made := word{changes: map[string]*string{}, rests: map[string]quiet{}}
	next := so.after(event, talos, kubernetes)

	switch event.Kind {
	case cluster.EventRunStarted:
		start(made.changes, moving, next)
		made.changes[KeyFailedNodes] = nil
	case cluster.EventNodeStarted:
		moving.say(made.changes, StatusInProgress, begun(event)+onTheWay(event, moving)+moving.aside())
	case cluster.EventNodeDone:
		moving.say(made.changes, StatusInProgress, ended(event)+onTheWay(event, moving)+moving.aside())
	case cluster.EventRollingBack:
		if !talos.managed() {
			// Of what is not managed nothing is said.
			return word{}, so
		}

		talos.say(made.changes, StatusRollingBack, rolling(event))
	case cluster.EventRunDone:
		moving.complete(made.changes)
		made.changes[KeyFailedNodes] = nil
	case cluster.EventRunFailed:
		moving.fail(made.changes, event)
		made.changes[KeyFailedNodes] = failedNodes(event)
	default:
		return word{}, so
	}

	moving.measure(made.changes)

	if other.managed() {
		beside(made.changes, event, next, moving, other)
		other.measure(made.changes)
	}

	talos.next, kubernetes.next = available.offer(made.changes, talos, kubernetes)

	for _, h := range [...]half{talos, kubernetes} {
		if h.rests(event, next) {
			made.rest(h, available.known(made.changes, h))
		}
	}

	return made, next
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
func beside(changes map[string]*string, event cluster.Event, so course, moving, other half) {
	switch {
	case event.Kind == cluster.EventRunDone, so.idle, other.known() && other.settled():
		// What is applied and not shown by every node waits for those alone.
		other.complete(changes)
	case other.progress.Steps > 0:
		other.say(changes, StatusBlocked, cmp.Or(other.progress.Waits, "Waiting for "+moving.name+" upgrade to complete"))
	case event.Kind == cluster.EventRunFailed:
		other.fail(changes, event)
	}
}

// start says that the half begins to move, or that there is nothing to do in it.
func start(changes map[string]*string, moving half, so course) {
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
