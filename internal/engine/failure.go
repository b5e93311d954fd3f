// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// Failure is why a run stopped, in the words a person needs at night.
type Failure struct {
	// Summary is one line: "Unable to upgrade node worker-2 to Talos 1.13.4".
	Summary string
	// Node is the node it happened on, empty for the cluster.
	Node string
	// Component is the part of Kubernetes that it is about, empty for Talos.
	Component cluster.Component
	// Findings are all reasons, when checks refused.
	Findings []cluster.Finding
	// Seen is what was observed.
	Seen string
	// Excerpts are what the installer and the logs of the node said last.
	Excerpts []Excerpt
	// State is where the node and the cluster are left.
	State string
	// Remedy is what to do now.
	Remedy string
	// Err is the cause, nil when there is nothing behind it.
	Err error
}

// Error is the failure in one paragraph.
func (f *Failure) Error() string {
	return f.Summary + ": " + f.Detail()
}

// Detail is everything but the summary.
func (f *Failure) Detail() string {
	var parts []string

	said := []string{f.Seen, f.findings()}
	for _, excerpt := range f.Excerpts {
		said = append(said, excerpt.String())
	}

	for _, part := range append(said, f.State, f.Remedy) {
		if part != "" {
			parts = append(parts, part)
		}
	}

	return strings.Join(parts, "\n\n")
}

func (f *Failure) findings() string {
	lines := make([]string, 0, len(f.Findings))
	for _, finding := range f.Findings {
		lines = append(lines, "- "+finding.String())
	}

	return strings.Join(lines, "\n")
}

// checkTurn is the check of findings about upgrades that failed beside the one
// that a failure is about.
const checkNodeUpgrade = "node-upgrade"

// Nodes are the names of all nodes whose upgrades failed, the first one first.
func (f *Failure) Nodes() []string {
	var nodes []string

	if f.Node != "" && !f.elsewhere() {
		nodes = append(nodes, f.Node)
	}

	for _, finding := range f.Findings {
		if finding.Check == checkNodeUpgrade && finding.Node != "" {
			nodes = append(nodes, finding.Node)
		}
	}

	return nodes
}

// elsewhere tells that nothing failed on the node itself: it waited for its gate,
// or the run had to stop while it was on its way.
func (f *Failure) elsewhere() bool {
	for _, cause := range []error{ErrInstaller, ErrFallback, ErrRolledBack, ErrUnhealthy, ErrPlatform, ErrExtensions} {
		if errors.Is(f.Err, cause) {
			return false
		}
	}

	for _, cause := range []error{ErrGate, ErrSuspended, ErrLeaseLost, ErrWindow, ErrDeadline, context.Canceled} {
		if errors.Is(f.Err, cause) {
			return true
		}
	}

	return false
}

// Unwrap is the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Reasons that tests and the provider tell apart with errors.Is.
var (
	// ErrBlocked: checks refused before anything was touched.
	ErrBlocked = errors.New("blocked by checks")
	// ErrWrongCluster: the connected cluster is not the one asked for.
	ErrWrongCluster = errors.New("another cluster")
	// ErrLocked: somebody else is upgrading the cluster.
	ErrLocked = errors.New("locked by another upgrade")
	// ErrLeaseLost: somebody else took the lease in the middle of the run.
	ErrLeaseLost = errors.New("the lease was taken over")
	// ErrGuard: a condition for going on did not come to hold in time.
	ErrGuard = errors.New("not safe to go on")
	// ErrFallback: a node returned to its old system by itself.
	ErrFallback = errors.New("node fell back to its old system")
	// ErrUnhealthy: a node runs its new system and did not become healthy with it
	// in time.
	ErrUnhealthy = errors.New("node did not become healthy")
	// ErrRolledBack: a node did not become healthy with its new system and was
	// sent back to its old one.
	ErrRolledBack = errors.New("node was rolled back to its old system")
	// ErrPlatform: a node came back on another platform than it ran on.
	ErrPlatform = errors.New("node lost its platform")
	// ErrExtensions: a node came back without system extensions that it ran, or without the
	// schematic that its image is named after.
	ErrExtensions = errors.New("node lost extensions")
	// ErrInstaller: the installer ran and failed.
	ErrInstaller = errors.New("installer failed")
	// ErrNeverReturned: a node did not come back in time.
	ErrNeverReturned = errors.New("node did not come back")
	// ErrDeparted: somebody deleted a node before its new system was seen.
	ErrDeparted = errors.New("node was deleted")
	// ErrUnconfigured: a node came back without its configuration.
	ErrUnconfigured = errors.New("node has no configuration")
	// ErrRenamed: a node came back under another name.
	ErrRenamed = errors.New("node has another name")
	// ErrDrain: pods did not leave a node in time.
	ErrDrain = errors.New("node could not be drained")
	// ErrUncordoned: somebody else put a node back into service while it was being
	// drained.
	ErrUncordoned = errors.New("somebody uncordoned the node")
	// ErrUnsettled: a node that was moved did not stay healthy for as long as
	// it has to before the next one is disturbed.
	ErrUnsettled = errors.New("node did not stay healthy")
	// ErrForeignWriter: somebody else writes machine configurations meanwhile.
	ErrForeignWriter = errors.New("the machine configuration is written by somebody else")
	// ErrManifests: the bootstrap manifests could not be synced.
	ErrManifests = errors.New("bootstrap manifests not synced")
	// ErrNotBegun: the run stopped before it disturbed anything.
	ErrNotBegun = errors.New("nothing was begun")
	// ErrGate: a gate of the user did not come to hold.
	ErrGate = errors.New("a gate does not hold")
	// ErrSuspended: somebody has suspended the upgrades of the cluster.
	ErrSuspended = errors.New("upgrades are suspended")
	// ErrWindow: the maintenance window is closed.
	ErrWindow = errors.New("the maintenance window is closed")
	// ErrSnapshot: no snapshot of etcd could be taken.
	ErrSnapshot = errors.New("no snapshot of etcd")
	// ErrOperator: the operator of the cluster is in the way, or did not do what it
	// was asked for.
	ErrOperator = errors.New("the operator of the cluster")
	// ErrDeadline: the time for the whole run is used up.
	ErrDeadline = errors.New("the time for the run is used up")
)

// blockedRemedy is what to do about checks; each of them says how.
const blockedRemedy = "Follow the advice above, then run terraform apply again: all checks are repeated."

// blocked is the failure of checks before a run.
func blocked(target cluster.Target, findings []cluster.Finding) *Failure {
	var wanted []string

	if !target.Talos.IsZero() {
		wanted = append(wanted, "Talos "+target.Talos.String())
	}

	if !target.Kubernetes.IsZero() {
		wanted = append(wanted, "Kubernetes "+target.Kubernetes.String())
	}

	summary := "Unable to upgrade the cluster to " + strings.Join(wanted, " and ")

	return &Failure{
		Summary:  summary,
		Findings: findings,
		State:    "Nothing was touched.",
		Remedy:   blockedRemedy,
		Err:      errors.Join(append([]error{ErrBlocked}, causes(findings)...)...),
	}
}

// undisturbed marks the failure of a run that has not disturbed anything.
func undisturbed(failure *Failure) *Failure {
	failure.Err = errors.Join(ErrNotBegun, failure.Err)

	return failure
}

func causes(findings []cluster.Finding) []error {
	var all []error

	for _, finding := range findings {
		if finding.Err != nil {
			all = append(all, finding.Err)
		}
	}

	return all
}

// failure puts an upgrade's error into words: what was seen, how the node and the
// cluster are left, and what to do.
func (u *nodeUpgrade) failure(ctx context.Context, err error) *Failure {
	failed := &Failure{
		Summary: fmt.Sprintf("Unable to upgrade node %s to Talos %s", u.step.Node, u.step.To),
		Node:    u.step.Node, Seen: err.Error(), Excerpts: u.excerpts(ctx, err), State: u.stateText(), Remedy: resumeRemedy, Err: err,
	}

	if u.result.rollbackSkipReason != "" {
		failed.State += " It was not rolled back: " + withFullStop(u.result.rollbackSkipReason)
	}

	switch {
	case failed.explained(ctx, err):
	case ctx.Err() != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled while upgrading node %s", u.step.Node)
		u.interrupted(ctx, failed)
	case errors.Is(err, ErrRolledBack), errors.Is(err, ErrFallback):
		failed.State = returnedState(err)
		failed.Remedy = u.lookRemedy()

		if !u.recorded() {
			failed.Remedy = u.retryRemedy()
		}
	case errors.Is(err, ErrUnhealthy):
		failed.Remedy = u.lookRemedy()
	case errors.Is(err, ErrPlatform):
		failed.Remedy = fmt.Sprintf("Start its old system again (talosctl -n %s rollback), which has its platform. Then choose an installer_image that is built for %s, and run terraform apply again.",
			u.step.Address, u.entry.Platform)
	case errors.Is(err, ErrExtensions):
		failed.Remedy = u.extensionsRemedy(err)
	case errors.Is(err, ErrInstaller):
		failed.Remedy = "Fix what the installer reports, or choose another talos_version or installer_image, then run terraform apply again"
		if u.mayHaveInstalled() {
			failed.Remedy += ": it drains and reboots this node first, which shows what was installed"
		}

		failed.Remedy += "."
	case errors.Is(err, ErrNeverReturned):
		waited := strings.TrimPrefix(err.Error(), ErrNeverReturned.Error()+": ")
		failed.Seen = fmt.Sprintf("Node %s did not come back online: %s", u.step.Node, withFullStop(waited))
		failed.Remedy = "Look at its console. When it is back, run terraform apply again: it continues with this node."
	case errors.Is(err, ErrDeparted):
		failed.Seen, failed.State, failed.Remedy = u.withoutNode(err)
	case errors.Is(err, ErrUnconfigured):
		failed.Seen, failed.Remedy = u.withoutConfiguration(err)
	case errors.Is(err, ErrRenamed):
		failed.Remedy = u.renamedRemedy(err)
	case errors.Is(err, ErrUncordoned):
		failed.Remedy = "Find out who uncordons it (a person, an autoscaler, a controller that looks after cordons) and have the node left alone while it is upgraded, then run terraform apply again."
	case errors.Is(err, ErrDrain):
		failed.Remedy = drainRemedy(err)
	case errors.Is(err, ErrGate):
		failed.Remedy = gateRemedy(err)
	case errors.Is(err, cluster.ErrNoInstaller):
		failed.Remedy = "The image is no installer of Talos. Choose another installer_image, then run terraform apply again."
	case errors.Is(err, cluster.ErrBusy):
		failed.Remedy = "Somebody else is installing on this node; find out who, then run terraform apply again."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials, then run terraform apply again."
	}

	if u.step.Canary && ctx.Err() == nil {
		failed.State += " " + canaryState
	}

	failed.Remedy += u.storedImage(ctx, err)

	return failed
}

// withoutNode is what is said of a node that was deleted before its new system was seen.
func (u *nodeUpgrade) withoutNode(err error) (seen, state, advice string) {
	seen = fmt.Sprintf("Node %s %s. Nobody has seen whether its new system boots, so no other node is started.", u.step.Node, strings.TrimPrefix(err.Error(), ErrDeparted.Error()+": "))
	advice = fmt.Sprintf("Find out who deleted it, such as an autoscaler or a health check, and have nodes left alone while they are upgraded. When you know that %s boots, run terraform apply again: it goes on without this node. "+
		"If its machine (%s) comes back, an apply continues with it.",
		u.entry.Image, u.step.Key)

	return seen, "The journal keeps the node, as departed.", advice
}

// withoutConfiguration is what is said of a node that came back in maintenance mode.
func (u *nodeUpgrade) withoutConfiguration(err error) (seen, advice string) {
	seen = fmt.Sprintf("Node %s did not come back with its configuration: %s", u.step.Node, withFullStop(strings.TrimPrefix(err.Error(), ErrUnconfigured.Error()+": ")))
	advice = fmt.Sprintf("Talos starts without a configuration where it does not find the partition STATE: a disk is missing, or another one was found first. Look at its console and at its disks (talosctl get disks --insecure --nodes %s), and start it anew. "+
		"Give it no configuration before you know why (talosctl apply-config --insecure): Talos would be installed again, on the disk that it names. When it is back, run terraform apply again: it continues with this node.",
		u.step.Address)

	return seen, advice
}

// renamedRemedy is what to do about a node that came back under another name.
func (u *nodeUpgrade) renamedRemedy(err error) string {
	var other *renamedError
	if !errors.As(err, &other) {
		return resumeRemedy
	}

	return fmt.Sprintf("Find out what names it: its machine configuration (a HostnameConfig, machine.network.hostname), the metadata of its cloud, or DHCP. If it should be %s, give it that name again and restart it; "+
		"if it should be %s, delete the Node object of before (kubectl delete node %s). Then run terraform apply again: it continues with this machine.",
		other.before, other.now, other.before)
}

// extensionsRemedy is what to do about a node that lost extensions, or came back with another
// schematic.
func (u *nodeUpgrade) extensionsRemedy(err error) string {
	remedy := fmt.Sprintf("Start its old system again (talosctl -n %s rollback).", u.step.Address)

	if other := (*schematicError)(nil); errors.As(err, &other) {
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
	failed := errors.Is(err, ErrInstaller) || errors.Is(err, ErrFallback) || errors.Is(err, ErrRolledBack) || errors.Is(err, ErrExtensions) || errors.Is(err, cluster.ErrNoInstaller)
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

// drainRemedy is what to do about pods that did not leave a node in time.
func drainRemedy(err error) string {
	if stuck := (*volumesError)(nil); errors.As(err, &stuck) {
		return stuck.remedy()
	}

	var ended *drainError

	switch found := errors.As(err, &ended); {
	case found && ended.ending():
		return "They were told to stop and have not stopped yet: find out what keeps them (a long terminationGracePeriodSeconds, a volume, a finalizer), " +
			"or set a longer drain.timeout, and keep node_timeout longer than that, then run terraform apply again."
	case found && ended.ofNode:
		return "Make room in the PodDisruptionBudgets, or give the node longer: node_timeout covers its whole upgrade and has to be longer than drain.timeout. Then run terraform apply again."
	}

	return "Make room in the PodDisruptionBudgets, or set a longer drain.timeout, then run terraform apply again. drain.on_timeout = \"delete\" deletes such pods without asking their budgets."
}

// explained says what is said in the same way whatever failed: which guards did
// not hold, and whose the lease is. It tells whether there is nothing to add.
func (f *Failure) explained(ctx context.Context, err error) bool {
	var guarded *guardError
	if errors.As(err, &guarded) {
		f.Seen = fmt.Sprintf("It was not safe to %s the node: %v", guarded.before, guarded.err)
		f.Findings = guarded.findings
	}

	var unpulled *pullError
	if errors.As(err, &unpulled) && ctx.Err() == nil && !errors.Is(err, ErrLeaseLost) {
		f.Remedy = pullRemedy(unpulled.err)

		return true
	}

	cause := cluster.Ended(ctx)
	if !errors.Is(err, ErrLeaseLost) && !errors.Is(cause, ErrLeaseLost) {
		return false
	}

	f.Remedy = lostRemedy(errors.Join(cause, err))
	if cause != nil && !strings.Contains(f.Seen, cause.Error()) {
		f.Seen, f.Err = cause.Error()+"; "+f.Seen, errors.Join(cause, err)
	}

	return true
}

// canaryState says what the failure of a canary means for all others.
const canaryState = "It is a canary, so none of the nodes that wait for it was started."

// lostRemedy is what to do where another run has the lease, or nobody has.
func lostRemedy(err error) string {
	if errors.Is(err, errLeaseFreed) {
		return "Find out who took the lease away, then run terraform apply again: it continues where the cluster is."
	}

	return "Another upgrade has taken over; let it finish, then run terraform apply again."
}

// returnedState says how a node is left that returned to its old system.
func returnedState(err error) string {
	var (
		fell *fallbackError
		sent *rolledBackError
	)

	if errors.As(err, &fell) && err.Error() != fell.Error() || errors.As(err, &sent) && sent.unserved != nil {
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

// summaryText is the failure in a few words, for those who watch annotations.
func summaryText(err error) string {
	var failure *Failure
	if !errors.As(err, &failure) {
		return err.Error()
	}

	var sent *rolledBackError

	switch {
	case errors.As(err, &sent) && sent.asked != "":
		return fmt.Sprintf("node %s was rolled back to its old system, as somebody asked", failure.Node)
	case errors.Is(err, ErrRolledBack):
		return fmt.Sprintf("node %s did not become healthy and was rolled back to its old system", failure.Node)
	case errors.Is(err, ErrUnhealthy):
		return fmt.Sprintf("node %s did not become healthy with its new system", failure.Node)
	case errors.Is(err, ErrNeverReturned):
		return fmt.Sprintf("node %s did not come back online", failure.Node)
	case errors.Is(err, ErrDeparted):
		return fmt.Sprintf("node %s was deleted before its new system was seen", failure.Node)
	case errors.Is(err, ErrUnconfigured):
		return fmt.Sprintf("node %s came back without its configuration", failure.Node)
	case errors.Is(err, ErrRenamed):
		return fmt.Sprintf("node %s came back under another name", failure.Node)
	case errors.Is(err, ErrPlatform):
		return fmt.Sprintf("node %s lost its platform", failure.Node)
	case errors.Is(err, ErrExtensions):
		return fmt.Sprintf("node %s lost extensions", failure.Node)
	case errors.Is(err, ErrFallback):
		return fmt.Sprintf("node %s fell back to its old system by itself", failure.Node)
	case errors.Is(err, ErrUncordoned):
		return fmt.Sprintf("somebody uncordoned node %s while it was being drained", failure.Node)
	case errors.Is(err, ErrDrain):
		return fmt.Sprintf("node %s could not be drained", failure.Node)
	case errors.Is(err, ErrInstaller):
		return fmt.Sprintf("the installer failed on node %s", failure.Node)
	case errors.Is(err, ErrGate):
		return "a gate does not hold"
	case errors.Is(err, ErrSuspended):
		return "somebody has suspended the upgrades"
	case errors.Is(err, ErrWindow):
		return "the maintenance window closed"
	case errors.Is(err, ErrSnapshot):
		return "no snapshot of etcd could be taken"
	case errors.Is(err, ErrUnsettled):
		return fmt.Sprintf("node %s did not stay healthy", failure.Node)
	case errors.Is(err, context.Canceled):
		return "the run was cancelled"
	default:
		return failure.Summary
	}
}

// acquireFailure is the failure of a run that never got the lease.
func acquireFailure(ctx context.Context, err error) error {
	var failure *Failure
	if errors.As(err, &failure) {
		return err
	}

	summary, seen := "Unable to take the lease kube-system/talosupgrade", err.Error()
	if ctx.Err() != nil {
		summary = "The upgrade was cancelled before it began"
	}

	if errors.Is(err, context.Canceled) {
		seen = "It was interrupted before it had the lease kube-system/talosupgrade."
	}

	return &Failure{Summary: summary, Seen: seen, State: "Nothing was touched.", Remedy: resumeRemedy, Err: err}
}

// failure puts the error of a component's upgrade into words.
func (c *componentUpgrade) failure(ctx context.Context, err error) *Failure {
	failed := &Failure{
		Summary: fmt.Sprintf("Unable to bring %s on node %s to Kubernetes %s", c.step.Component, c.step.Node, c.step.To),
		Node:    c.step.Node, Component: c.step.Component, Seen: err.Error(), Excerpts: c.excerpts(ctx), State: c.stateText(), Remedy: resumeRemedy, Err: err,
	}

	switch {
	case failed.explained(ctx, err):
	case ctx.Err() != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled while %s on node %s was being replaced", c.step.Component, c.step.Node)
		c.interrupted(ctx, failed)
	case errors.Is(err, ErrGate):
		failed.Remedy = gateRemedy(err)
	case errors.Is(err, cluster.ErrConflict), errors.Is(err, errOverwritten):
		failed.Remedy = "Find out who else writes machine configurations (another pipeline, talos_machine_configuration_apply) and have it name the images that run, " +
			"as data.talosupgrade_current_versions tells. Then run terraform apply again."
		failed.Err = errors.Join(ErrForeignWriter, err)
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
		failed.State += " " + canaryState
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

// Excerpt is what something said last.
type Excerpt struct {
	// Source is who said it: "machined on worker-1".
	Source string
	// Lines are the oldest first.
	Lines []string
}

func (e Excerpt) String() string {
	return "The last lines of " + e.Source + ":\n  " + strings.Join(e.Lines, "\n  ")
}

// tailLog are the last lines of the log of a service on a node; none where it
// cannot be read, which is no reason to say less about the rest.
func (e *Engine) tailLog(ctx context.Context, address, service string) []string {
	lines, _ := e.talos.Logs(ctx, address, service, maxExcerptLines)

	return lines
}

// excerpts are what the installer and the node have to say about an upgrade that
// failed. What they say of one that was cut off explains nothing.
func (u *nodeUpgrade) excerpts(ctx context.Context, err error) []Excerpt {
	var found []Excerpt

	var installer *installerError
	if errors.As(err, &installer) && len(installer.output) > 0 {
		found = append(found, Excerpt{Source: "the installer on " + u.step.Node, Lines: installer.output})
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
		found = append(found, Excerpt{Source: "the log of machined on " + u.step.Node, Lines: words})
	}

	return found
}

// speaks tells whether the node itself is why its upgrade failed.
func (u *nodeUpgrade) speaks(err error) bool {
	// The log of a boot that failed is gone with it.
	if errors.Is(err, ErrFallback) || errors.Is(err, ErrRolledBack) {
		return len(u.result.logTail) > 0
	}

	for _, own := range []error{ErrInstaller, ErrUnhealthy, ErrNeverReturned} {
		if errors.Is(err, own) {
			return true
		}
	}

	// It runs the new system and did not get into service with it.
	return u.recorded() && u.rebooted() && !u.result.runs.IsZero() && u.result.runs.Equal(u.entry.Target) && !errors.Is(err, ErrLeaseLost)
}

// excerpts are what the kubelet says where it was to run something new, and a component that
// does not run.
func (c *componentUpgrade) excerpts(ctx context.Context) []Excerpt {
	if ctx.Err() != nil || !c.arrived {
		return nil
	}

	bounded, cancel := c.run.engine.cleanupContext(ctx)
	defer cancel()

	// What was always shown must not wait for what the node may not tell.
	lines := c.run.engine.tailLog(bounded, c.step.Address, serviceKubelet)

	found := c.run.engine.tailPods(bounded, c.step)
	if len(lines) > 0 {
		found = append(found, Excerpt{Source: "the log of the kubelet on " + c.step.Node, Lines: lines})
	}

	return found
}

// tailPods are what the containers of those static pods of a control plane said last that are not
// Ready. Without an answer of the Kubernetes API it is its own that matters.
func (e *Engine) tailPods(ctx context.Context, step plan.Step) []Excerpt {
	if step.Role != cluster.ControlPlane {
		return nil
	}

	pods, err := e.kubernetes.StaticPods(ctx)
	if err != nil {
		pods = []cluster.ComponentPod{{Node: step.Node, Component: cluster.APIServer}}
	}

	var found []Excerpt

	for _, pod := range pods {
		if pod.Node != step.Node || pod.Ready || !pod.Component.Static() {
			continue
		}

		lines, err := e.talos.Logs(ctx, step.Address, cluster.ContainerLog(pod.Component, pod.Node), maxExcerptLines)
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			break
		}

		if len(lines) > 0 {
			found = append(found, Excerpt{Source: fmt.Sprintf("the log of %s on %s", pod.Component, pod.Node), Lines: lines})
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

// sentence is the text with a capital at its beginning and a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}

	if first := text[0]; first >= 'a' && first <= 'z' && len(text) > 1 {
		text = string(first-'a'+'A') + text[1:]
	}

	return withFullStop(text)
}

// withFullStop is the text with a full stop, unless it has an end already: what a guard
// says may be whole sentences.
func withFullStop(text string) string {
	if strings.HasSuffix(text, "?") || strings.HasSuffix(text, ".") {
		return text
	}

	return text + "."
}

// lastSeen is what a wait saw last before it ended, if it saw anything.
func lastSeen(err error) string {
	var ended *waitError
	if !errors.As(err, &ended) || ended.seen == "" {
		return ""
	}

	return "; last seen: " + ended.seen
}

// gateRemedy is what to do about a gate.
func gateRemedy(err error) string {
	var missed *gateError
	if errors.As(err, &missed) && !missed.late {
		return "Waiting does not help: correct the gate, or create what it refers to, then run terraform apply again."
	}

	return "When it holds, run terraform apply again, or give the gate a longer timeout."
}

// unreachedRemedy is what to do about a cluster that says nothing.
func unreachedRemedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrCredentials):
		return "Waiting does not help. Check that the credentials belong to this cluster, and renew them if they expired, then run terraform apply again."
	case errors.Is(err, cluster.ErrDenied):
		return "Use credentials that are allowed to do this, then run terraform apply again."
	default:
		return "Check that at least one endpoint of the talosconfig is a control plane that is up and reachable from here, and the server of the kubeconfig as well, then run terraform apply again."
	}
}

const resumeRemedy = "Run terraform apply again to continue where the cluster is."

// writableRemedy is what to do where the lease or the journal is out of reach.
const writableRemedy = "Look at why the Kubernetes API does not take it (kubectl get --raw=/readyz?verbose), then run terraform apply again to continue where the cluster is."

// drainError is a node that could not be emptied in time.
type drainError struct {
	timeout string
	left    map[string]string
	// ofNode tells that it was the time for the whole upgrade of the node.
	ofNode bool
}

func (d *drainError) Error() string {
	lines := make([]string, 0, len(d.left))
	for pod, why := range d.left {
		lines = append(lines, pod+": "+why)
	}

	slices.Sort(lines)

	if d.ofNode {
		return fmt.Sprintf("node_timeout (%s) was over while these pods were still there: %s", d.timeout, strings.Join(lines, "; "))
	}

	return fmt.Sprintf("after %s these pods were still there: %s", d.timeout, strings.Join(lines, "; "))
}

func (d *drainError) Unwrap() error { return ErrDrain }

// ending tells that all pods that are left were told to stop: no budget keeps them.
func (d *drainError) ending() bool {
	for _, why := range d.left {
		if why != shuttingDown {
			return false
		}
	}

	return len(d.left) > 0
}

// volumesError is a node to which volumes are attached that no pod on it uses any more.
type volumesError struct {
	after time.Duration
	left  []cluster.Volume
	// err is what ended the wait.
	err error
}

func (v *volumesError) Error() string {
	if len(v.left) == 0 {
		return fmt.Sprintf("whether volumes are still attached to the node could not be found out: %v", v.err)
	}

	return fmt.Sprintf("after %s volumes were still attached to the node that no pod on it uses: %s", v.after, volumeNames(v.left))
}

func (v *volumesError) Unwrap() []error { return []error{ErrDrain, v.err} }

func (v *volumesError) remedy() string {
	if len(v.left) == 0 {
		return "Allow the credentials to list volumeattachments, or set drain.wait_for_volumes = true, which goes on with a warning, then run terraform apply again."
	}

	return "Look at what keeps them (kubectl get volumeattachments, and the log of the driver's controller), then run terraform apply again. drain.wait_for_volumes = true goes on with a warning."
}

// fallbackError is a node that returned to its old system by itself.
type fallbackError struct {
	image, previous, bootID string
}

func (f *fallbackError) Error() string {
	return fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself (boot ID %s)", f.image, f.previous, f.bootID)
}

func (f *fallbackError) Unwrap() error { return ErrFallback }

// rolledBackError is a node that was sent back to its old system.
type rolledBackError struct {
	// failed is why, nil where an earlier run knew.
	failed                  error
	image, previous, bootID string
	// asked is who asked for it, a clause; empty where the node did not become healthy.
	asked string
	// unserved is why it is not in service with its old system.
	unserved error
}

func (r *rolledBackError) Error() string {
	text := fmt.Sprintf("the node booted %s, did not become healthy with it and was rolled back to Talos %s (boot ID %s)", r.image, r.previous, r.bootID)

	switch {
	case r.asked != "":
		text = fmt.Sprintf("the node was rolled back to Talos %s, %s (boot ID %s)", r.previous, r.asked, r.bootID)
	case r.failed != nil:
		text = fmt.Sprintf("%v\nIt was rolled back to Talos %s (boot ID %s)", r.failed, r.previous, r.bootID)
	}

	if r.unserved != nil {
		text += ", and is not back in service: " + r.unserved.Error()
	}

	return text
}

func (r *rolledBackError) Unwrap() []error {
	causes := []error{ErrRolledBack}

	for _, because := range []error{r.failed, r.unserved} {
		if because != nil {
			causes = append(causes, because)
		}
	}

	return causes
}
