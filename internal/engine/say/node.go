// SPDX-License-Identifier: MPL-2.0

package say

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Node is what a person has to know about a failed upgrade or rollback of a node.
type Node struct {
	Step plan.Step
	// Entry is the journal's entry, as last written. Open is true if it is in the journal, and open.
	Entry cluster.Entry
	Open  bool
	// MayHaveInstalled is true if the next boot may start another system, Rebooted if the node has booted since
	// the entry was written, and InService if it is in service with the system that it should run.
	MayHaveInstalled, Rebooted, InService bool
	// Cordoned is true if the cordon on the node is ours.
	Cordoned bool
	// Runs is what the node runs; zero if it is unknown.
	Runs version.Version
	// NotSentBack is why the node was not sent back to its old system; empty if it was, or was not meant to be.
	NotSentBack string
	// At is the step that was entered last, and Waits is what is waited for before the next one: it completes
	// "until", and is empty during a step.
	At    cluster.NodeStep
	Waits string
	// Ended is why the context of the upgrade ended; nil if it did not.
	Ended error
	// Excerpts are the last lines of the installer and of the logs of the node.
	Excerpts []Excerpt
	// Stored is what the node has under the tag of the image; nil if it was not asked, or is unknown.
	Stored *StoredImage
}

// StoredImage is what a node has under the tag of an image that failed.
type StoredImage struct {
	// Digest is empty if the node no longer has anything under the tag.
	Digest string
}

// Failure puts the error of the upgrade into words: what was seen, in which state the node and the cluster are
// left, and what to do.
func (n Node) Failure(err error) *Failure {
	failed := &Failure{
		Summary: fmt.Sprintf("Unable to upgrade node %s to Talos %s", n.Step.Node, n.Step.To),
		Node:    n.Step.Node, Seen: err.Error(), Excerpts: n.Excerpts, State: n.state(), Remedy: ResumeRemedy, Err: err,
	}

	if n.NotSentBack != "" {
		failed.State += " It was not rolled back: " + WithFullStop(n.NotSentBack)
	}

	switch {
	case failed.explained(n.Ended, err):
	case n.Ended != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled while upgrading node %s", n.Step.Node)
		n.interrupted(failed)
	case errors.Is(err, ErrRolledBack), errors.Is(err, ErrFallback):
		failed.State = returnedState(err)
		failed.Remedy = n.lookRemedy()

		if !n.Open {
			failed.Remedy = n.retryRemedy()
		}
	case errors.Is(err, ErrUnhealthy):
		failed.Remedy = n.lookRemedy()
	case errors.Is(err, ErrPlatform):
		failed.Remedy = fmt.Sprintf("Start its old system again (talosctl -n %s rollback), which has its platform. Then choose an installer_image that is built for %s, and run terraform apply again.",
			n.Step.Address, n.Entry.Platform)
	case errors.Is(err, ErrExtensions):
		failed.Remedy = n.extensionsRemedy(err)
	case errors.Is(err, ErrInstaller):
		failed.Remedy = "Fix what the installer reports, or choose another talos_version or installer_image, then run terraform apply again"
		if n.MayHaveInstalled {
			failed.Remedy += ": it drains and reboots this node first, which shows what was installed"
		}

		failed.Remedy += "."
	case errors.Is(err, ErrNeverReturned):
		waited := strings.TrimPrefix(err.Error(), ErrNeverReturned.Error()+": ")
		failed.Seen = fmt.Sprintf("Node %s did not come back online: %s", n.Step.Node, WithFullStop(waited))
		failed.Remedy = "Look at its console. When it is back, run terraform apply again: it continues with this node."
	case errors.Is(err, ErrDeparted):
		failed.Seen, failed.State, failed.Remedy = n.withoutNode(err)
	case errors.Is(err, ErrUnconfigured):
		failed.Seen, failed.Remedy = n.withoutConfiguration(err)
	case errors.Is(err, ErrRenamed):
		failed.Remedy = n.renamedRemedy(err)
	case errors.Is(err, ErrUncordoned):
		failed.Remedy = "Find out who uncordons it (a person, an autoscaler, a controller that looks after cordons) and have the node left alone while it is upgraded, then run terraform apply again."
	case errors.Is(err, ErrDrain):
		failed.Remedy = drainRemedy(err)
	case errors.Is(err, ErrGate):
		failed.Remedy = GateRemedy(err)
	case errors.Is(err, cluster.ErrNoInstaller):
		failed.Remedy = "The image is no installer of Talos. Choose another installer_image, then run terraform apply again."
	case errors.Is(err, cluster.ErrBusy):
		failed.Remedy = "Somebody else is installing on this node; find out who, then run terraform apply again."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials, then run terraform apply again."
	}

	if n.Step.Canary && n.Ended == nil {
		failed.State += " " + CanaryState
	}

	failed.Remedy += n.storedImage()

	return failed
}

// withoutNode returns the texts about a node that was deleted before its new system was seen.
func (n Node) withoutNode(err error) (seen, state, advice string) {
	seen = fmt.Sprintf("Node %s %s. Nobody has seen whether its new system boots, so no other node is started.", n.Step.Node, strings.TrimPrefix(err.Error(), ErrDeparted.Error()+": "))
	advice = fmt.Sprintf("Find out who deleted it, such as an autoscaler or a health check, and have nodes left alone while they are upgraded. When you know that %s boots, run terraform apply again: it goes on without this node. "+
		"If its machine (%s) comes back, an apply continues with it.",
		n.Entry.Image, n.Step.Key)

	return seen, "The journal keeps the node, as departed.", advice
}

// withoutConfiguration returns the texts about a node that came back in maintenance mode.
func (n Node) withoutConfiguration(err error) (seen, advice string) {
	seen = fmt.Sprintf("Node %s did not come back with its configuration: %s", n.Step.Node, WithFullStop(strings.TrimPrefix(err.Error(), ErrUnconfigured.Error()+": ")))
	advice = fmt.Sprintf("Talos starts without a configuration where it does not find the partition STATE: a disk is missing, or another one was found first. Look at its console and at its disks (talosctl get disks --insecure --nodes %s), and start it anew. "+
		"Give it no configuration before you know why (talosctl apply-config --insecure): Talos would be installed again, on the disk that it names. When it is back, run terraform apply again: it continues with this node.",
		n.Step.Address)

	return seen, advice
}

// renamedRemedy says what to do about a node that came back under another name.
func (n Node) renamedRemedy(err error) string {
	var other *RenamedError
	if !errors.As(err, &other) {
		return ResumeRemedy
	}

	return fmt.Sprintf("Find out what names it: its machine configuration (a HostnameConfig, machine.network.hostname), the metadata of its cloud, or DHCP. If it should be %s, give it that name again and restart it; "+
		"if it should be %s, delete the Node object of before (kubectl delete node %s). Then run terraform apply again: it continues with this machine.",
		other.Before, other.Now, other.Before)
}

// extensionsRemedy says what to do about a node that lost extensions, or came back with another schematic.
func (n Node) extensionsRemedy(err error) string {
	remedy := fmt.Sprintf("Start its old system again (talosctl -n %s rollback).", n.Step.Address)

	if other := (*SchematicError)(nil); errors.As(err, &other) {
		return remedy + fmt.Sprintf(" Then see to it that what the registry has under that name is what it says, or choose another installer_image, and run terraform apply again. "+
			"If somebody gave the node this system on purpose, accept it with preflight = { skip = [%q] }.", cluster.CheckSchematic)
	}

	return remedy + fmt.Sprintf(" Then choose an installer_image that has what is missing, and run terraform apply again. If the node does not need it, accept that with preflight = { skip = [%q] }.",
		cluster.CheckSchematic)
}

// returnedState says in which state a node that returned to its old system is left.
func returnedState(err error) string {
	var (
		fell *FallbackError
		sent *RolledBackError
	)

	if errors.As(err, &fell) && err.Error() != fell.Error() || errors.As(err, &sent) && sent.Unserved != nil {
		return "The node runs its old system again, but did not come back into service."
	}

	return "The node is back in service with its old system."
}

// state says in which state the node is left.
func (n Node) state() string {
	switch {
	case n.Open && n.Entry.Phase == cluster.PhaseRollingBack:
		return "The node was to start its old system again and is recorded in the journal; its cordon stays until it is back in service."
	case n.InService:
		return "The node runs the new system and is in service; only its entry in the journal is still open."
	case n.Open && !n.Runs.IsZero() && n.Runs.Equal(n.Entry.Target) && !n.Runs.Equal(n.Entry.Previous):
		return "The node runs the new system and is not back in service yet; it is recorded in the journal, and its cordon stays until it is."
	case n.Open && !n.Cordoned && n.Rebooted && n.Runs.Equal(n.Entry.Previous):
		return "The node runs its old system and is in service; only its entry in the journal is still open."
	case n.Open && n.Entry.Phase == cluster.PhaseRebooting:
		return "The journal says that the node was about to reboot into the new system; it stays cordoned until it is back."
	case n.MayHaveInstalled:
		return "A new system may be installed beside the running one; the node still serves its old system, stays cordoned, and its next boot may start the new one."
	case n.Open:
		return "The node runs its old system, nothing was installed, and the journal records what was about to be; its cordon stays."
	case n.Cordoned:
		return "The node runs its old system and is still cordoned."
	default:
		return "The node runs as before and is not cordoned by this run."
	}
}

func (n Node) lookRemedy() string {
	return fmt.Sprintf("Look at it (talosctl -n %s dmesg, kubectl describe node %s). When it is healthy, or its reason is gone, run terraform apply again: it continues with this node.",
		n.Step.Address, n.Step.Node)
}

func (n Node) retryRemedy() string {
	if n.Entry.Asked != "" {
		return fmt.Sprintf("Choose another talos_version or installer_image. To have the same image installed again, set node_overrides = { %q = { retry_boot_id = %q } }, or invoke the action talosupgrade_retry_node (Terraform 1.14).",
			n.Step.Node, n.Entry.BootID)
	}

	return fmt.Sprintf("Find out why: the log of the failed boot is on the node's console, and wherever machine.logging sends it. This image is not tried again on this node until talos_version or installer_image changes, until you set node_overrides = { %q = { retry_boot_id = %q } }, or until you invoke the action talosupgrade_retry_node (Terraform 1.14).",
		n.Step.Node, n.Entry.BootID)
}

// interrupted puts into words the failure of an upgrade that was cut off by the end of its context.
func (n Node) interrupted(failed *Failure) {
	failed.Seen = Interrupted(n.Ended, n.activity(failed.Err), failed.Err)

	if n.Open || n.Cordoned {
		failed.Remedy = continueRemedy
	}
}

// activity returns what was being done to the node: it completes "while".
func (n Node) activity(err error) string {
	if unpulled := (*PullError)(nil); errors.As(err, &unpulled) {
		return n.Step.Node + " was pulling " + unpulled.Image
	}

	if n.Waits != "" {
		return "waiting until " + n.Waits
	}

	switch n.At {
	case cluster.StepGates:
		return "waiting for the gates of " + n.Step.Node
	case cluster.StepCordon:
		return n.Step.Node + " was being cordoned"
	case cluster.StepDrain:
		return n.Step.Node + " was being drained"
	case cluster.StepInstall, cluster.StepLegacy:
		return fmt.Sprintf("Talos %s was being installed on %s", n.Step.To, n.Step.Node)
	case cluster.StepInstaller:
		return "waiting for the installer on " + n.Step.Node + " to end"
	case cluster.StepReboot, cluster.StepReturn:
		return n.Step.Node + " was rebooting"
	case cluster.StepRollback:
		return n.Step.Node + " was being sent back to its old system"
	case cluster.StepEtcd:
		return "waiting for etcd to be healthy with " + n.Step.Node
	case cluster.StepReady:
		return "waiting for " + n.Step.Node + " to be Ready in Kubernetes"
	case cluster.StepUncordon:
		return n.Step.Node + " was being uncordoned"
	case cluster.StepInstallImage:
		return "the machine configuration of " + n.Step.Node + " was being made to name the image that it runs"
	default:
		return "waiting for " + n.Step.Node + " to say what it runs"
	}
}

// RollbackFailure puts the error of a rollback that a person asked for into words.
func (n Node) RollbackFailure(err error) *Failure {
	failed := &Failure{
		Summary: fmt.Sprintf("Unable to roll back node %s to Talos %s", n.Step.Node, n.Entry.Previous), Node: n.Step.Node,
		Seen: Sentence(err.Error()), State: n.state(),
		Remedy: "Run the rollback again, or terraform apply: each goes on where the node is.", Err: err,
	}

	if !n.Open {
		failed.State = "The node runs as before and is not cordoned by this run."
		failed.Remedy = "When it is safe, run the rollback again."

		if n.Cordoned {
			failed.State = "The node runs as before and is still cordoned; the next terraform apply takes the cordon away."
		}
	}

	switch {
	case failed.explained(n.Ended, err):
	case n.Ended != nil:
		failed.Summary = fmt.Sprintf("The rollback of node %s was cancelled", n.Step.Node)
		failed.Seen = Interrupted(n.Ended, n.activity(err), err)
	case errors.Is(err, ErrStartedAgain):
		failed.Remedy = fmt.Sprintf("Look at its console for what became of the other system (talosctl -n %s dmesg). What is in its other boot slot is not certain any more, so that it is not sent back again.", n.Step.Address)
	case errors.Is(err, ErrNeverReturned):
		failed.Remedy = "Look at its console. When it is back, run the rollback again, or terraform apply: each goes on with this node."
	case errors.Is(err, ErrUncordoned):
		failed.Remedy = "Find out who uncordons it (a person, an autoscaler, a controller that looks after cordons) and have the node left alone meanwhile, then run the rollback again."
	case errors.Is(err, ErrDrain):
		failed.Remedy = drainRemedy(err)
	case errors.Is(err, cluster.ErrRefused):
		failed.Remedy = "Leave the node as it is, or upgrade it to a version that it should run instead: it has no other system that it could start."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials (a rollback needs the role os:admin), then run the rollback again."
	}

	return failed
}

// storedImage says what the node has under the tag of an image that failed. A node does not download a tag again
// that it has had since it started, whatever was pushed there since; below Talos 1.13, it is downloaded again
// with each upgrade.
func (n Node) storedImage() string {
	repository, tag, malformed := image.Split(n.Entry.Image)

	switch {
	case n.Stored == nil || malformed != nil || tag == "":
		return ""
	case n.Stored.Digest == "":
		// The node has been restarted since.
		return " Its next try downloads " + n.Entry.Image + " anew, as it is under that tag by then."
	default:
		return fmt.Sprintf(" The node has %s as %s. Where another image is pushed under that tag, nodes that have pulled this one since they were started do not download it: "+
			"name it by its digest (installer_image = %q), or remove this one from each of them (talosctl -n %s image remove --namespace inmem %s).",
			n.Entry.Image, n.Stored.Digest, repository.String()+"@sha256:<digest>", n.Step.Address, n.Entry.Image)
	}
}
