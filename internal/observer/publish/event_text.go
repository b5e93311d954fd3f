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

// maxEventMessage is how long the message of a Kubernetes Event may be, in bytes,
// with room for what is put before it where several are combined.
const maxEventMessage = 1024 - 64

// reasonWaiting is the reason of Events that say what is being waited for.
const reasonWaiting = "Waiting"

// eventRank is what is given up last where not everything can be written.
type eventRank int

const (
	rankWait eventRank = iota
	rankStep
	rankTurn
	rankWarning
	rankRun
)

// eventText is what a Kubernetes Event says.
type eventText struct {
	// node is the node that it is about; empty for the published object.
	node string
	// message is about the published object, alone where the Event is about the node
	// itself.
	message, alone string
	reason         string
	warning        bool
	rank           eventRank
	at             time.Time
}

// about is the text about a node.
func (t eventText) about(node string) eventText {
	t.node, t.message = node, t.alone

	return t
}

// Text is what a Kubernetes Event about a cluster says of the event, in one printable line
// of less than 1024 bytes; empty where there is nothing to tell.
func Text(event cluster.Event) string {
	text, _ := eventTextOf(event)

	return text.message
}

// eventTextOf is the event for people; not ok where there is nothing to tell.
func eventTextOf(event cluster.Event) (text eventText, ok bool) {
	switch event.Kind {
	case cluster.EventRunStarted:
		text = eventText{reason: "UpgradeStarted", message: "Upgrade started: " + runPlanned(event), rank: rankRun}
	case cluster.EventRunDone:
		text = eventText{reason: "UpgradeCompleted", message: "Upgrade completed: " + runReached(event), rank: rankRun}
	case cluster.EventRunFailed:
		text = eventText{reason: "UpgradeFailed", message: "Upgrade failed: " + reasonOf(event), warning: true, rank: rankRun}
	case cluster.EventNodeStarted, cluster.EventNodeDone:
		text.reason, text.message, text.alone = turnWords(event)
		text.message, text.alone, text.rank = text.message+toVersion(event), text.alone+toVersion(event), rankTurn
	case cluster.EventNodeStep:
		text = stepText(event)
	case cluster.EventRollingBack:
		rest := toVersion(event) + ": " + reasonOf(event)
		text = eventText{reason: "RollingBack", message: "Rolling back node " + event.Node + rest, alone: "Rolling back" + rest, warning: true, rank: rankRun}
	case cluster.EventRolledBack:
		text = eventText{reason: "RolledBack", message: "Rolled back node " + event.Node, alone: "Rolled back", rank: rankRun}
		if event.Err != nil {
			text = eventText{reason: "RollbackFailed", message: "Unable to roll back node " + event.Node, alone: "Unable to roll back", warning: true, rank: rankRun}
		}

		rest := toVersion(event) + ": " + reasonOf(event)
		text.message, text.alone = text.message+rest, text.alone+rest
	case cluster.EventWarning:
		text = ownText(event)
		text.reason, text.warning, text.rank = "UpgradeWarning", true, rankWarning
	case cluster.EventSuspended:
		text = ownText(event)
		text.reason, text.warning, text.rank = "UpgradesSuspended", true, rankRun
	case cluster.EventResumed:
		text = ownText(event)
		text.reason, text.rank = "UpgradesResumed", rankRun
	case cluster.EventWaiting:
		text = ownText(event)
		text.reason, text.rank = reasonWaiting, rankWait
	default:
		return eventText{}, false
	}

	text.message, text.alone = eventMessage(text.message), eventMessage(cmp.Or(text.alone, text.message))
	text.at = event.Time

	return text, true
}

// runPlanned is from where to where the products move.
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

// runReached is where the products are, as far as every node shows it.
func runReached(event cluster.Event) string {
	var running, parts []string

	for _, p := range products(event) {
		switch {
		case !p.managed() || !p.known():
			// Where all nodes are held nothing is known of any.
		case p.progress.Done < p.progress.Total:
			parts = append(parts, fmt.Sprintf("%s nodes show %s %s so far", p.count(), p.name, p.target))
		default:
			running = append(running, p.name+" "+p.reached().String())
		}
	}

	if len(running) > 0 {
		parts = slices.Insert(parts, 0, "now running "+strings.Join(running, " and "))
	}

	return cmp.Or(strings.Join(parts, ", "), "nothing is managed")
}

// toVersion is where a turn leads; empty where that is not known.
func toVersion(event cluster.Event) string {
	switch {
	case event.To.IsZero() || event.Component == cluster.Manifests:
		return ""
	case event.Component == "":
		return " to Talos " + event.To.String()
	default:
		return " to " + event.To.String()
	}
}

// stepText is what is being done to a node, a component or the manifests.
func stepText(event cluster.Event) eventText {
	reason, what := stepWords(event.Step)

	if event.Component != "" && event.Component != cluster.Manifests {
		what += " (" + string(event.Component) + ")"
	}

	if event.Text != "" {
		what += ": " + event.Text
	}

	text := eventText{reason: reason, message: what, alone: what, rank: rankStep}
	if event.Node != "" {
		text.message = event.Node + ": " + what
	}

	return text
}

// stepWords are the reason and the beginning of the message of a step.
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

// ownText is what the event says in its own words. They may begin with the node.
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

// eventMessage is a text in one line that is no longer than a message may be.
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
