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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// eventMessageMost is how long the message of a Kubernetes Event may be, in bytes,
// with room for what is put before it where several are combined.
const eventMessageMost = 1024 - 64

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

// saying is what a Kubernetes Event says.
type saying struct {
	// node is the node that it is about; empty for the published object.
	node string
	// alone is the message where the Event is about the node itself.
	message, alone string
	reason         string
	warning        bool
	rank           eventRank
	at             time.Time
}

// of is the saying about a node.
func (s saying) of(node string) saying {
	s.node, s.message = node, s.alone

	return s
}

// concernedNodes are the nodes that an event is about, each once.
func concernedNodes(event cluster.Event) []string {
	var names []string

	for name := range strings.SplitSeq(event.Node, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return names
}

// sayingOf is the event for people; not ok where there is nothing to tell.
func sayingOf(event cluster.Event) (said saying, ok bool) {
	switch event.Kind {
	case cluster.EventRunStarted:
		said = saying{reason: "UpgradeStarted", message: "Upgrade started: " + journey(event), rank: rankRun}
	case cluster.EventRunDone:
		said = saying{reason: "UpgradeCompleted", message: "Upgrade completed: " + arrival(event), rank: rankRun}
	case cluster.EventRunFailed:
		said = saying{reason: "UpgradeFailed", message: "Upgrade failed: " + firstLine(event), warning: true, rank: rankRun}
	case cluster.EventNodeStarted:
		said = started(event)
	case cluster.EventNodeDone:
		said = finished(event)
	case cluster.EventNodeStep:
		said = stepped(event)
	case cluster.EventRollingBack:
		said = saying{
			reason: "RollingBack", message: "Rolling back node " + event.Node + onto(" to Talos ", event.To) + ": " + firstLine(event),
			alone:   "Rolling back" + onto(" to Talos ", event.To) + ": " + firstLine(event),
			warning: true, rank: rankRun,
		}
	case cluster.EventWarning:
		said = remarked(event, "UpgradeWarning", rankWarning)
		said.warning = true
	case cluster.EventWaiting:
		said = remarked(event, reasonWaiting, rankWait)
	default:
		return saying{}, false
	}

	said.message, said.alone = eventMessage(said.message), eventMessage(cmp.Or(said.alone, said.message))
	said.at = event.Time

	return said, true
}

// eventHalf is one of Talos and Kubernetes, as an event speaks of it.
type eventHalf struct {
	name     string
	progress cluster.Progress
	target   version.Version
}

// managedHalves are those about which the target says something.
func managedHalves(event cluster.Event) []eventHalf {
	return slices.DeleteFunc([]eventHalf{
		{"Talos", event.Talos, event.Target.Talos}, {"Kubernetes", event.Kubernetes, event.Target.Kubernetes},
	}, func(one eventHalf) bool { return one.target.IsZero() })
}

// journey is from where to where the halves move.
func journey(event cluster.Event) string {
	var parts []string

	for _, one := range managedHalves(event) {
		switch lowest := one.progress.Lowest; {
		case one.progress.Total > 0 && one.progress.Steps == 0:
			parts = append(parts, one.name+" "+one.target.String()+" already")
		case lowest.IsZero() || lowest.Equal(one.target):
			parts = append(parts, one.name+" to "+one.target.String())
		default:
			parts = append(parts, fmt.Sprintf("%s %s \u2192 %s", one.name, lowest, one.target))
		}
	}

	return cmp.Or(strings.Join(parts, ", "), "nothing is managed")
}

// arrival is where the halves are, as far as every node shows it.
func arrival(event cluster.Event) string {
	var running, parts []string

	for _, one := range managedHalves(event) {
		switch {
		case one.progress.Total == 0:
			// Where all nodes are held nothing is known of any.
		case one.progress.Done < one.progress.Total:
			parts = append(parts, fmt.Sprintf("%d/%d nodes show %s %s so far", one.progress.Done, one.progress.Total, one.name, one.target))
		case one.progress.Lowest.IsZero():
			running = append(running, one.name+" "+one.target.String())
		default:
			running = append(running, one.name+" "+one.progress.Lowest.String())
		}
	}

	if len(running) > 0 {
		parts = slices.Insert(parts, 0, "now running "+strings.Join(running, " and "))
	}

	return cmp.Or(strings.Join(parts, ", "), "nothing is managed")
}

func started(event cluster.Event) saying {
	switch event.Component {
	case "":
		return saying{
			reason: "NodeUpgradeStarted", message: "Upgrading node " + event.Node + onto(" to Talos ", event.To),
			alone: "Upgrading the node" + onto(" to Talos ", event.To), rank: rankTurn,
		}
	case cluster.Manifests:
		return saying{reason: "ManifestsStarted", message: "Syncing the bootstrap manifests", rank: rankTurn}
	default:
		return saying{
			reason: "ComponentUpgradeStarted", message: "Upgrading " + string(event.Component) + " on " + event.Node + onto(" to ", event.To),
			alone: "Upgrading " + string(event.Component) + onto(" to ", event.To), rank: rankTurn,
		}
	}
}

func finished(event cluster.Event) saying {
	switch event.Component {
	case "":
		return saying{
			reason: "NodeUpgraded", message: "Node " + event.Node + " upgraded" + onto(" to Talos ", event.To),
			alone: "Node upgraded" + onto(" to Talos ", event.To), rank: rankTurn,
		}
	case cluster.Manifests:
		return saying{reason: "ManifestsSynced", message: "Bootstrap manifests synced", rank: rankTurn}
	default:
		return saying{
			reason: "ComponentUpgraded", message: string(event.Component) + " on " + event.Node + " upgraded" + onto(" to ", event.To),
			alone: string(event.Component) + " upgraded" + onto(" to ", event.To), rank: rankTurn,
		}
	}
}

// onto is the version with what comes before it; empty where it is not known.
func onto(before string, to version.Version) string {
	if to.IsZero() {
		return ""
	}

	return before + to.String()
}

// stepped is what is being done to a node, a component or the manifests.
func stepped(event cluster.Event) saying {
	why, what := stepWords(event.Step)

	if event.Component != "" && event.Component != cluster.Manifests {
		what += " (" + string(event.Component) + ")"
	}

	if event.Text != "" {
		what += ": " + event.Text
	}

	said := saying{reason: why, message: what, alone: what, rank: rankStep}
	if event.Node != "" {
		said.message = event.Node + ": " + what
	}

	return said
}

// stepWords are the reason and the beginning of the message of a step.
func stepWords(step cluster.NodeStep) (reason, what string) {
	switch step {
	case cluster.StepPull:
		return "Pulling", "Pulling the image"
	case cluster.StepCordon:
		return "Cordoning", "Cordoning the node"
	case cluster.StepDrain:
		return "Draining", "Draining the node"
	case cluster.StepInstall:
		return "Installing", "Installing"
	case cluster.StepLegacy:
		return "Installing", "Installing and rebooting"
	case cluster.StepInstaller:
		return "WaitingForInstaller", "Waiting until no installation is running"
	case cluster.StepReboot:
		return "Rebooting", "Rebooting the node"
	case cluster.StepReturn:
		return "WaitingForReturn", "Waiting for the node to come back"
	case cluster.StepEtcd:
		return "WaitingForEtcd", "Waiting for the etcd member to be healthy"
	case cluster.StepReady:
		return "WaitingForReady", "Waiting for the node to be ready"
	case cluster.StepUncordon:
		return "Uncordoning", "Uncordoning the node"
	case cluster.StepSnapshot:
		return "TakingSnapshot", "Taking a snapshot of etcd"
	case cluster.StepGates:
		return "WaitingForGates", "Waiting for the gates"
	case cluster.StepRollback:
		return "SendingBack", "Sending the node back to its previous system"
	case cluster.StepInstallImage:
		return "UpdatingInstallImage", "Updating machine.install.image"
	default:
		return componentWords(step)
	}
}

func componentWords(step cluster.NodeStep) (reason, what string) {
	switch step {
	case cluster.StepConfigure:
		return "Configuring", "Changing the machine configuration"
	case cluster.StepRestart:
		return "Restarting", "Waiting for the component to run from its new image"
	case cluster.StepApply:
		return "ApplyingManifests", "Applying the bootstrap manifests"
	case cluster.StepRollout:
		return "WaitingForRollout", "Waiting for the bootstrap manifests to be rolled out"
	default:
		return "UpgradeStep", string(step)
	}
}

// remarked is what the event says in its own words. They may begin with the node.
func remarked(event cluster.Event, why string, rank eventRank) saying {
	said := saying{reason: why, message: firstLine(event), rank: rank}

	if event.Node != "" {
		said.alone = strings.TrimPrefix(said.message, event.Node+": ")
		if !strings.Contains(said.message, event.Node) {
			said.message += " (" + event.Node + ")"
		}
	}

	return said
}

// firstLine is what the event says in its own words: the lines after the first are
// for those who read the log.
func firstLine(event cluster.Event) string {
	text := strings.TrimSpace(event.Text)
	if text == "" && event.Err != nil {
		text = strings.TrimSpace(event.Err.Error())
	}

	text, _, _ = strings.Cut(text, "\n")

	return cmp.Or(text, "the reason is not known")
}

// eventMessage is a text in one line that is no longer than a message may be.
func eventMessage(text string) string {
	line := cluster.Escaped(strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " "))
	if len(line) <= eventMessageMost {
		return line
	}

	cut := eventMessageMost - len("\u2026")
	for !utf8.RuneStart(line[cut]) {
		cut--
	}

	return line[:cut] + "\u2026"
}
