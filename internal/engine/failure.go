// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// failure puts an upgrade's error into words: what was seen, how the node and the
// cluster are left, and what to do.
func (u *nodeUpgrade) failure(ctx context.Context, err error) *say.Failure {
	failed := &say.Failure{
		Summary: fmt.Sprintf("Unable to upgrade node %s to Talos %s", u.step.Node, u.step.To),
		Node:    u.step.Node, Seen: err.Error(), Excerpts: u.excerpts(ctx, err), State: u.stateText(), Remedy: say.ResumeRemedy, Err: err,
	}

	if u.result.rollbackSkipReason != "" {
		failed.State += " It was not rolled back: " + say.WithFullStop(u.result.rollbackSkipReason)
	}

	switch {
	case failed.Explained(ctx, err):
	case ctx.Err() != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled while upgrading node %s", u.step.Node)
		u.interrupted(ctx, failed)
	case errors.Is(err, say.ErrRolledBack), errors.Is(err, say.ErrFallback):
		failed.State = returnedState(err)
		failed.Remedy = u.lookRemedy()

		if !u.recorded() {
			failed.Remedy = u.retryRemedy()
		}
	case errors.Is(err, say.ErrUnhealthy):
		failed.Remedy = u.lookRemedy()
	case errors.Is(err, say.ErrPlatform):
		failed.Remedy = fmt.Sprintf("Start its old system again (talosctl -n %s rollback), which has its platform. Then choose an installer_image that is built for %s, and run terraform apply again.",
			u.step.Address, u.entry.Platform)
	case errors.Is(err, say.ErrExtensions):
		failed.Remedy = u.extensionsRemedy(err)
	case errors.Is(err, say.ErrInstaller):
		failed.Remedy = "Fix what the installer reports, or choose another talos_version or installer_image, then run terraform apply again"
		if u.mayHaveInstalled() {
			failed.Remedy += ": it drains and reboots this node first, which shows what was installed"
		}

		failed.Remedy += "."
	case errors.Is(err, say.ErrNeverReturned):
		waited := strings.TrimPrefix(err.Error(), say.ErrNeverReturned.Error()+": ")
		failed.Seen = fmt.Sprintf("Node %s did not come back online: %s", u.step.Node, say.WithFullStop(waited))
		failed.Remedy = "Look at its console. When it is back, run terraform apply again: it continues with this node."
	case errors.Is(err, say.ErrDeparted):
		failed.Seen, failed.State, failed.Remedy = u.withoutNode(err)
	case errors.Is(err, say.ErrUnconfigured):
		failed.Seen, failed.Remedy = u.withoutConfiguration(err)
	case errors.Is(err, say.ErrRenamed):
		failed.Remedy = u.renamedRemedy(err)
	case errors.Is(err, say.ErrUncordoned):
		failed.Remedy = "Find out who uncordons it (a person, an autoscaler, a controller that looks after cordons) and have the node left alone while it is upgraded, then run terraform apply again."
	case errors.Is(err, say.ErrDrain):
		failed.Remedy = say.DrainRemedy(err)
	case errors.Is(err, say.ErrGate):
		failed.Remedy = say.GateRemedy(err)
	case errors.Is(err, cluster.ErrNoInstaller):
		failed.Remedy = "The image is no installer of Talos. Choose another installer_image, then run terraform apply again."
	case errors.Is(err, cluster.ErrBusy):
		failed.Remedy = "Somebody else is installing on this node; find out who, then run terraform apply again."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials, then run terraform apply again."
	}

	if u.step.Canary && ctx.Err() == nil {
		failed.State += " " + say.CanaryState
	}

	failed.Remedy += u.storedImage(ctx, err)

	return failed
}

// withoutNode is what is said of a node that was deleted before its new system was seen.
func (u *nodeUpgrade) withoutNode(err error) (seen, state, advice string) {
	seen = fmt.Sprintf("Node %s %s. Nobody has seen whether its new system boots, so no other node is started.", u.step.Node, strings.TrimPrefix(err.Error(), say.ErrDeparted.Error()+": "))
	advice = fmt.Sprintf("Find out who deleted it, such as an autoscaler or a health check, and have nodes left alone while they are upgraded. When you know that %s boots, run terraform apply again: it goes on without this node. "+
		"If its machine (%s) comes back, an apply continues with it.",
		u.entry.Image, u.step.Key)

	return seen, "The journal keeps the node, as departed.", advice
}

// withoutConfiguration is what is said of a node that came back in maintenance mode.
func (u *nodeUpgrade) withoutConfiguration(err error) (seen, advice string) {
	seen = fmt.Sprintf("Node %s did not come back with its configuration: %s", u.step.Node, say.WithFullStop(strings.TrimPrefix(err.Error(), say.ErrUnconfigured.Error()+": ")))
	advice = fmt.Sprintf("Talos starts without a configuration where it does not find the partition STATE: a disk is missing, or another one was found first. Look at its console and at its disks (talosctl get disks --insecure --nodes %s), and start it anew. "+
		"Give it no configuration before you know why (talosctl apply-config --insecure): Talos would be installed again, on the disk that it names. When it is back, run terraform apply again: it continues with this node.",
		u.step.Address)

	return seen, advice
}

// renamedRemedy is what to do about a node that came back under another name.
func (u *nodeUpgrade) renamedRemedy(err error) string {
	var other *say.RenamedError
	if !errors.As(err, &other) {
		return say.ResumeRemedy
	}

	return fmt.Sprintf("Find out what names it: its machine configuration (a HostnameConfig, machine.network.hostname), the metadata of its cloud, or DHCP. If it should be %s, give it that name again and restart it; "+
		"if it should be %s, delete the Node object of before (kubectl delete node %s). Then run terraform apply again: it continues with this machine.",
		other.Before, other.Now, other.Before)
}

// extensionsRemedy is what to do about a node that lost extensions, or came back with another
// schematic.
func (u *nodeUpgrade) extensionsRemedy(err error) string {
	remedy := fmt.Sprintf("Start its old system again (talosctl -n %s rollback).", u.step.Address)

	if other := (*say.SchematicError)(nil); errors.As(err, &other) {
		return remedy + fmt.Sprintf(" Then see to it that what the registry has under that name is what it says, or choose another installer_image, and run terraform apply again. "+
			"If somebody gave the node this system on purpose, accept it with preflight = { skip = [%q] }.", cluster.CheckSchematic)
	}

	return remedy + fmt.Sprintf(" Then choose an installer_image that has what is missing, and run terraform apply again. If the node does not need it, accept that with preflight = { skip = [%q] }.",
		cluster.CheckSchematic)
}

// storedImage says what the node has under the tag of an image that was to no avail. A
// node does not download a tag that it has had since it started, whatever was pushed there
// since; one below Talos 1.13 downloads it anew with each upgrade.
func (u *nodeUpgrade) storedImage(ctx context.Context, err error) string {
	failed := errors.Is(err, say.ErrInstaller) || errors.Is(err, say.ErrFallback) || errors.Is(err, say.ErrRolledBack) || errors.Is(err, say.ErrExtensions) || errors.Is(err, cluster.ErrNoInstaller)
	if ctx.Err() != nil || !failed {
		return ""
	}

	repository, tag, malformed := image.Split(u.entry.Image)
	if malformed != nil || tag == "" {
		return ""
	}

	bounded, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	digest, unknown := u.run.engine.talos.ImageDigest(bounded, u.step.Address, u.entry.Image)

	switch {
	case errors.Is(unknown, cluster.ErrNotFound):
		// It was started anew since.
		return " Its next try downloads " + u.entry.Image + " anew, as it is under that tag by then."
	case unknown != nil:
		return ""
	}

	return fmt.Sprintf(" The node has %s as %s. Where another image is pushed under that tag, nodes that have pulled this one since they were started do not download it: "+
		"name it by its digest (installer_image = %q), or remove this one from each of them (talosctl -n %s image remove --namespace inmem %s).",
		u.entry.Image, digest, repository.String()+"@sha256:<digest>", u.step.Address, u.entry.Image)
}

// returnedState says how a node is left that returned to its old system.
func returnedState(err error) string {
	var (
		fell *say.FallbackError
		sent *say.RolledBackError
	)

	if errors.As(err, &fell) && err.Error() != fell.Error() || errors.As(err, &sent) && sent.Unserved != nil {
		return "The node runs its old system again, but did not come back into service."
	}

	return "The node is back in service with its old system."
}

// stateText says how the node is left.
func (u *nodeUpgrade) stateText() string {
	switch {
	case u.recorded() && u.entry.Phase == cluster.PhaseRollingBack:
		return "The node was to start its old system again and is recorded in the journal; its cordon stays until it is back in service."
	case u.phase == inService:
		return "The node runs the new system and is in service; only its entry in the journal is still open."
	case u.recorded() && !u.result.runs.IsZero() && u.result.runs.Equal(u.entry.Target) && !u.result.runs.Equal(u.entry.Previous):
		return "The node runs the new system and is not back in service yet; it is recorded in the journal, and its cordon stays until it is."
	case u.recorded() && !u.cordoned && u.rebooted() && u.result.runs.Equal(u.entry.Previous):
		return "The node runs its old system and is in service; only its entry in the journal is still open."
	case u.recorded() && u.entry.Phase == cluster.PhaseRebooting:
		return "The journal says that the node was about to reboot into the new system; it stays cordoned until it is back."
	case u.mayHaveInstalled():
		return "A new system may be installed beside the running one; the node still serves its old system, stays cordoned, and its next boot may start the new one."
	case u.recorded():
		return "The node runs its old system, nothing was installed, and the journal records what was about to be; its cordon stays."
	case u.cordoned:
		return "The node runs its old system and is still cordoned."
	default:
		return "The node runs as before and is not cordoned by this run."
	}
}

func (u *nodeUpgrade) lookRemedy() string {
	return fmt.Sprintf("Look at it (talosctl -n %s dmesg, kubectl describe node %s). When it is healthy, or its reason is gone, run terraform apply again: it continues with this node.",
		u.step.Address, u.step.Node)
}

func (u *nodeUpgrade) retryRemedy() string {
	if u.entry.Asked != "" {
		return fmt.Sprintf("Choose another talos_version or installer_image. To have the same image installed again, set node_overrides = { %q = { retry_boot_id = %q } }, or invoke the action talosupgrade_retry_node (Terraform 1.14).",
			u.step.Node, u.entry.BootID)
	}

	return fmt.Sprintf("Find out why: the log of the failed boot is on the node's console, and wherever machine.logging sends it. This image is not tried again on this node until talos_version or installer_image changes, until you set node_overrides = { %q = { retry_boot_id = %q } }, or until you invoke the action talosupgrade_retry_node (Terraform 1.14).",
		u.step.Node, u.entry.BootID)
}

// failure puts the error of a component's upgrade into words.
func (c *componentUpgrade) failure(ctx context.Context, err error) *say.Failure {
	failed := &say.Failure{
		Summary: fmt.Sprintf("Unable to bring %s on node %s to Kubernetes %s", c.step.Component, c.step.Node, c.step.To),
		Node:    c.step.Node, Component: c.step.Component, Seen: err.Error(), Excerpts: c.excerpts(ctx), State: c.stateText(), Remedy: say.ResumeRemedy, Err: err,
	}

	switch {
	case failed.Explained(ctx, err):
	case ctx.Err() != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled while %s on node %s was being replaced", c.step.Component, c.step.Node)
		c.interrupted(ctx, failed)
	case errors.Is(err, say.ErrGate):
		failed.Remedy = say.GateRemedy(err)
	case errors.Is(err, cluster.ErrConflict), errors.Is(err, say.ErrOverwritten):
		failed.Remedy = "Find out who else writes machine configurations (another pipeline, talos_machine_configuration_apply) and have it name the images that run, " +
			"as data.talosupgrade_current_versions tells. Then run terraform apply again."
		failed.Err = errors.Join(say.ErrForeignWriter, err)
	case errors.Is(err, cluster.ErrRefused) && c.configured:
		failed.Remedy = "The node did not accept its machine configuration with the new image, and kept the old one. Correct what it names, then run terraform apply again."
	case errors.Is(err, cluster.ErrBusy):
		failed.Remedy = "Somebody else keeps applying machine configurations to this node; find out who, then run terraform apply again."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials, then run terraform apply again."
	case c.arrived:
		failed.Remedy = c.lookRemedy()
	}

	if c.step.Canary && ctx.Err() == nil {
		failed.State += " " + say.CanaryState
	}

	return failed
}

// stateText says how the node is left.
func (c *componentUpgrade) stateText() string {
	switch {
	case c.arrived && c.step.Component.Static() && c.onlyControlPlane:
		return fmt.Sprintf("The node is configured for the new %s and is the only control plane: the component is down until it starts there.", c.step.Component)
	case c.arrived && c.step.Component.Static():
		return fmt.Sprintf("The node is configured for the new %s; the other control planes were not touched meanwhile and go on serving.", c.step.Component)
	case c.arrived:
		return fmt.Sprintf("The node is configured for the new %s; its pods run on.", c.step.Component)
	case c.configured:
		return fmt.Sprintf("The machine configuration of the node may name the new image of %s already; nothing was rebooted.", c.step.Component)
	default:
		return "The node runs as before."
	}
}

// lookRemedy is where to look for the reason why a component does not run.
func (c *componentUpgrade) lookRemedy() string {
	if c.step.Component == cluster.Kubelet {
		return fmt.Sprintf("Look at it (talosctl -n %s logs kubelet, kubectl describe node %s). When it runs, or its reason is gone, run terraform apply again: it continues with this node.",
			c.step.Address, c.step.Node)
	}

	return fmt.Sprintf("Look at it (kubectl -n kube-system describe pod %s-%s, talosctl -n %s logs -k %s). When it runs, or its reason is gone, run terraform apply again: it continues with this node.",
		c.step.Component, c.step.Node, c.step.Address, cluster.ContainerLog(c.step.Component, c.step.Node))
}

// The services whose logs say why a node, or a component on it, is not well.
const (
	serviceMachined = "machined"
	serviceKubelet  = "kubelet"
)

// maxExcerptLines is how many lines of a log are worth the room in a message.
const maxExcerptLines = 12

// tailLog are the last lines of the log of a service on a node; none where it
// cannot be read, which is no reason to say less about the rest.
func (e *Engine) tailLog(ctx context.Context, address, service string) []string {
	lines, _ := e.talos.Logs(ctx, address, service, maxExcerptLines)

	return lines
}

// excerpts are what the installer and the node have to say about an upgrade that
// failed. What they say of one that was cut off explains nothing.
func (u *nodeUpgrade) excerpts(ctx context.Context, err error) []say.Excerpt {
	var found []say.Excerpt

	var installer *say.InstallerError
	if errors.As(err, &installer) && len(installer.Output) > 0 {
		found = append(found, say.Excerpt{Source: "the installer on " + u.step.Node, Lines: installer.Output})
	}

	if ctx.Err() != nil || !u.speaks(err) {
		return found
	}

	bounded, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	words := u.result.logTail
	if len(words) == 0 {
		words = u.run.engine.tailLog(bounded, u.step.Address, serviceMachined)
		found = append(found, u.run.engine.tailPods(bounded, u.step)...)
	}

	if len(words) > 0 {
		found = append(found, say.Excerpt{Source: "the log of machined on " + u.step.Node, Lines: words})
	}

	return found
}

// speaks tells whether the node itself is why its upgrade failed.
func (u *nodeUpgrade) speaks(err error) bool {
	// The log of a boot that failed is gone with it.
	if errors.Is(err, say.ErrFallback) || errors.Is(err, say.ErrRolledBack) {
		return len(u.result.logTail) > 0
	}

	for _, own := range []error{say.ErrInstaller, say.ErrUnhealthy, say.ErrNeverReturned} {
		if errors.Is(err, own) {
			return true
		}
	}

	// It runs the new system and did not get into service with it.
	return u.recorded() && u.rebooted() && !u.result.runs.IsZero() && u.result.runs.Equal(u.entry.Target) && !errors.Is(err, say.ErrLeaseLost)
}

// excerpts are what the kubelet says where it was to run something new, and a component that
// does not run.
func (c *componentUpgrade) excerpts(ctx context.Context) []say.Excerpt {
	if ctx.Err() != nil || !c.arrived {
		return nil
	}

	bounded, cancel := c.run.engine.cleanupContext(ctx)
	defer cancel()

	// What was always shown must not wait for what the node may not tell.
	lines := c.run.engine.tailLog(bounded, c.step.Address, serviceKubelet)

	found := c.run.engine.tailPods(bounded, c.step)
	if len(lines) > 0 {
		found = append(found, say.Excerpt{Source: "the log of the kubelet on " + c.step.Node, Lines: lines})
	}

	return found
}

// tailPods are what the containers of those static pods of a control plane said last that are not
// Ready. Without an answer of the Kubernetes API it is its own that matters.
func (e *Engine) tailPods(ctx context.Context, step plan.Step) []say.Excerpt {
	if step.Role != cluster.ControlPlane {
		return nil
	}

	pods, err := e.kubernetes.StaticPods(ctx)
	if err != nil {
		pods = []cluster.ComponentPod{{Node: step.Node, Component: cluster.APIServer}}
	}

	var found []say.Excerpt

	for _, pod := range pods {
		if pod.Node != step.Node || pod.Ready || !pod.Component.Static() {
			continue
		}

		lines, err := e.talos.Logs(ctx, step.Address, cluster.ContainerLog(pod.Component, pod.Node), maxExcerptLines)
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			break
		}

		if len(lines) > 0 {
			found = append(found, say.Excerpt{Source: fmt.Sprintf("the log of %s on %s", pod.Component, pod.Node), Lines: lines})
		}
	}

	return found
}

// fatal is the error among the findings that waiting does not cure, if any.
func fatal(findings []cluster.Finding) error {
	for _, finding := range findings {
		if finding.Err != nil && !cluster.Heals(finding.Err) {
			return fmt.Errorf("%s: %w", finding.Found, finding.Err)
		}
	}

	return nil
}

// newFinding makes the finding of a guard.
func newFinding(check, node, found, remedy string, err error) []cluster.Finding {
	return []cluster.Finding{{Check: check, Severity: cluster.Observed, Node: node, Found: found, Remedy: remedy, Err: err}}
}

func hasPermanent(findings []cluster.Finding) bool {
	return slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Severity == cluster.Permanent })
}
