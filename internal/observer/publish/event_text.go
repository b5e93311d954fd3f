// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// maxEventMessage bounds the message of a Kubernetes Event in bytes. It leaves room for the prefix of combined
// Events.
const maxEventMessage = 1024 - 64

// reasonWaiting is the reason of Events about waits.
const reasonWaiting = "Waiting"

// eventWeight says which Events are dropped first and which is written last.
type eventWeight int

const (
	// minor are steps and waits, major is the rest but for the end of a run.
	minor eventWeight = iota
	major
	ending
)

// eventText is the content of a Kubernetes Event.
type eventText struct {
	// node is the node that the Event is about, empty for the published object.
	node string
	// message is the text for the published object, alone the one for the node itself.
	message, alone string
	reason         string
	warning        bool
	weight         eventWeight
	at             time.Time
}

// about returns the text for the Event about the node.
func (t eventText) about(node string) eventText {
	t.node, t.message = node, t.alone

	return t
}

// Text returns the message of a Kubernetes Event about a cluster in one printable line of less than 1024 bytes,
// or an empty string if the event is not worth one.
func Text(event cluster.Event) string {
	text, _ := eventTextOf(event)

	return text.message
}

// eventTextOf returns the text of an event. ok is false if the event is not worth one.
func eventTextOf(event cluster.Event) (text eventText, ok bool) {
	switch event.Kind {
	case cluster.EventRunStarted:
		text = eventText{reason: "UpgradeStarted", message: "Upgrade started: " + runPlanned(event), weight: major}
	case cluster.EventRunDone:
		text = eventText{reason: "UpgradeCompleted", message: "Upgrade completed: " + runReached(event), weight: ending}
	case cluster.EventRunFailed:
		text = eventText{reason: "UpgradeFailed", message: "Upgrade failed: " + reasonOf(event), warning: true, weight: ending}
	case cluster.EventNodeStarted, cluster.EventNodeDone:
		text.reason, text.message, text.alone = turnWords(event)
		text.message, text.alone, text.weight = text.message+toVersion(event), text.alone+toVersion(event), major
	case cluster.EventNodeStep:
		text = stepText(event)
	case cluster.EventRollingBack:
		rest := toVersion(event) + ": " + reasonOf(event)
		text = eventText{reason: "RollingBack", message: "Rolling back node " + event.Node + rest, alone: "Rolling back" + rest, warning: true, weight: major}
	case cluster.EventRolledBack:
		text = eventText{reason: "RolledBack", message: "Rolled back node " + event.Node, alone: "Rolled back", weight: major}
		if event.Err != nil {
			text = eventText{reason: "RollbackFailed", message: "Unable to roll back node " + event.Node, alone: "Unable to roll back", warning: true, weight: major}
		}

		rest := toVersion(event) + ": " + reasonOf(event)
		text.message, text.alone = text.message+rest, text.alone+rest
	case cluster.EventWarning:
		text = ownText(event)
		text.reason, text.warning, text.weight = "UpgradeWarning", true, major
	case cluster.EventSuspended:
		text = ownText(event)
		text.reason, text.warning, text.weight = "UpgradesSuspended", true, major
	case cluster.EventResumed:
		text = ownText(event)
		text.reason, text.weight = "UpgradesResumed", major
	case cluster.EventWaiting:
		text = ownText(event)
		text.reason = reasonWaiting
	default:
		return eventText{}, false
	}

	text.message, text.alone = eventMessage(text.message), eventMessage(cmp.Or(text.alone, text.message))
	text.at = event.Time

	return text, true
}

// runPlanned says from which to which versions the products move.
func runPlanned(event cluster.Event) string {
	var parts []string

	for _, p := range products(event) {
		switch lowest := p.progress.Lowest; {
		case !p.managed():
		case p.settled():
			parts = append(parts, p.name+" "+p.target.String()+" already")
		case lowest.IsZero() || lowest.Equal(p.target):
			parts = append(parts, p.name+" to "+p.target.String())
		default:
			parts = append(parts, fmt.Sprintf("%s %s \u2192 %s", p.name, lowest, p.target))
		}
	}

	return cmp.Or(strings.Join(parts, ", "), "nothing is managed")
}

// runReached says which versions the products run, and how many nodes show them if not all do.
func runReached(event cluster.Event) string {
	var running, parts []string

	for _, p := range products(event) {
		switch {
		case !p.managed() || !p.known():
			// If all nodes are held, nothing is known.
		case !p.progress.Complete():
			parts = append(parts, fmt.Sprintf("%s nodes show %s %s so far", p.showing(), p.name, p.target))
		default:
			running = append(running, p.name+" "+p.reached().String())
		}
	}

	if len(running) > 0 {
		parts = slices.Insert(parts, 0, "now running "+strings.Join(running, " and "))
	}

	return cmp.Or(strings.Join(parts, ", "), "nothing is managed")
}

// toVersion names the version that an upgrade leads to. It is empty for the manifests and if the version is
// unknown.
func toVersion(event cluster.Event) string {
	switch {
	case event.Returns, event.To.IsZero(), event.Component == cluster.Manifests:
		return ""
	case event.Component == "":
		return " to Talos " + event.To.String()
	default:
		return " to " + event.To.String()
	}
}

// stepText returns the text of a step on a node, a component or the manifests.
func stepText(event cluster.Event) eventText {
	reason, what := stepWords(event.Step)

	if event.Component != "" && event.Component != cluster.Manifests {
		what += " (" + string(event.Component) + ")"
	}

	if event.Text != "" {
		what += ": " + event.Text
	}

	text := eventText{reason: reason, message: what, alone: what}
	if event.Node != "" {
		text.message = event.Node + ": " + what
	}

	return text
}

// stepWords returns the reason of a step and the beginning of its message.
func stepWords(step cluster.NodeStep) (reason, what string) {
	words, known := map[cluster.NodeStep][2]string{
		cluster.StepPull:         {"Pulling", "Pulling the image"},
		cluster.StepCordon:       {"Cordoning", "Cordoning the node"},
		cluster.StepDrain:        {"Draining", "Draining the node"},
		cluster.StepInstall:      {"Installing", "Installing"},
		cluster.StepLegacy:       {"Installing", "Installing and rebooting"},
		cluster.StepInstaller:    {"WaitingForInstaller", "Waiting until no installation is running"},
		cluster.StepReboot:       {"Rebooting", "Rebooting the node"},
		cluster.StepReturn:       {"WaitingForReturn", "Waiting for the node to come back"},
		cluster.StepEtcd:         {"WaitingForEtcd", "Waiting for the etcd member to be healthy"},
		cluster.StepReady:        {"WaitingForReady", "Waiting for the node to be ready"},
		cluster.StepUncordon:     {"Uncordoning", "Uncordoning the node"},
		cluster.StepSnapshot:     {"TakingSnapshot", "Taking a snapshot of etcd"},
		cluster.StepGates:        {"WaitingForGates", "Waiting for the gates"},
		cluster.StepRollback:     {"SendingBack", "Sending the node back to its previous system"},
		cluster.StepInstallImage: {"UpdatingInstallImage", "Updating machine.install.image"},
		cluster.StepConfigure:    {"Configuring", "Changing the machine configuration"},
		cluster.StepRestart:      {"Restarting", "Waiting for the component to run from its new image"},
		cluster.StepApply:        {"ApplyingManifests", "Applying the bootstrap manifests"},
		cluster.StepRollout:      {"WaitingForRollout", "Waiting for the bootstrap manifests to be rolled out"},
	}[step]

	if !known {
		return "UpgradeStep", string(step)
	}

	return words[0], words[1]
}

// ownText returns the event's own text, which may begin with the name of the node.
func ownText(event cluster.Event) eventText {
	text := eventText{message: reasonOf(event)}

	if event.Node != "" {
		text.alone = strings.TrimPrefix(text.message, event.Node+": ")
		if !strings.Contains(text.message, event.Node) {
			text.message += " (" + event.Node + ")"
		}
	}

	return text
}

// eventMessage returns the text as one line of at most maxEventMessage bytes.
func eventMessage(text string) string {
	line := readable.Escaped(strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " "))
	if len(line) <= maxEventMessage {
		return line
	}

	cut := maxEventMessage - len("\u2026")
	for !utf8.RuneStart(line[cut]) {
		cut--
	}

	return line[:cut] + "\u2026"
}
