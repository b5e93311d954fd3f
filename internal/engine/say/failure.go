// SPDX-License-Identifier: MPL-2.0

package say

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Failure is why a run stopped, in words for the person who has to fix it.
type Failure struct {
	// Summary is one line: "Unable to upgrade node worker-2 to Talos 1.13.4".
	Summary string
	// Node is the node at which it happened; empty for the cluster.
	Node string
	// Component is the part of Kubernetes that it is about; empty for Talos.
	Component cluster.Component
	// Findings are the checks that refused the run, the guards that did not hold, or the other upgrades that failed
	// or were interrupted.
	Findings []cluster.Finding
	// Seen is what was observed.
	Seen string
	// Excerpts are the last lines of the installer and of the logs of the node.
	Excerpts []Excerpt
	// State is the state in which the node and the cluster are left.
	State string
	// Remedy is what to do now.
	Remedy string
	// Err is the cause; nil if there is none.
	Err error
}

// Error returns the failure as one text.
func (f *Failure) Error() string {
	return f.Summary + ": " + f.Detail()
}

// Detail returns everything but the summary.
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

// CheckNodeUpgrade is the check of findings about upgrades that failed or were interrupted besides the one that a
// failure is about.
const CheckNodeUpgrade = "node-upgrade"

// Nodes returns the names of all nodes whose upgrades failed, the first one first. Upgrades that were interrupted do
// not count.
func (f *Failure) Nodes() []string {
	var nodes []string

	if f.Node != "" && !f.elsewhere() {
		nodes = append(nodes, f.Node)
	}

	for _, finding := range f.Findings {
		var other *Failure

		interrupted := errors.As(finding.Err, &other) && other.elsewhere()
		if finding.Check == CheckNodeUpgrade && finding.Node != "" && !interrupted {
			nodes = append(nodes, finding.Node)
		}
	}

	return nodes
}

// elsewhere reports whether nothing failed on the node itself: it waited for its gate, or the run had to stop
// while it was being upgraded.
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

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Reasons that tests and the provider distinguish with errors.Is.
var (
	// ErrBlocked: checks refused before anything was touched.
	ErrBlocked = errors.New("blocked by checks")
	// ErrWrongCluster: the connected cluster is not the one asked for.
	ErrWrongCluster = errors.New("another cluster")
	// ErrLocked: somebody else is upgrading the cluster.
	ErrLocked = errors.New("locked by another upgrade")
	// ErrLeaseLost: the lease was lost in the middle of the run, because somebody took, freed or deleted it.
	ErrLeaseLost = errors.New("the lease was taken over")
	// ErrGuard: a condition for continuing did not hold in time.
	ErrGuard = errors.New("not safe to go on")
	// ErrFallback: a node returned to its old system by itself.
	ErrFallback = errors.New("node fell back to its old system")
	// ErrUnhealthy: a node runs its new system and did not become healthy in time.
	ErrUnhealthy = errors.New("node did not become healthy")
	// ErrRolledBack: a node was sent back to its old system, because it did not become healthy or because a
	// person asked for it.
	ErrRolledBack = errors.New("node was rolled back to its old system")
	// ErrPlatform: a node came back on another platform than it ran on.
	ErrPlatform = errors.New("node lost its platform")
	// ErrExtensions: a node came back without system extensions that it had, or without the schematic that its
	// image is named after.
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
	// ErrUncordoned: somebody else uncordoned a node while it was being drained.
	ErrUncordoned = errors.New("somebody uncordoned the node")
	// ErrUnsettled: a node that was moved did not stay healthy for as long as is required before the next one is
	// disturbed.
	ErrUnsettled = errors.New("node did not stay healthy")
	// ErrForeignWriter: somebody else writes machine configurations meanwhile.
	ErrForeignWriter = errors.New("the machine configuration is written by somebody else")
	// ErrManifests: the bootstrap manifests could not be synced.
	ErrManifests = errors.New("bootstrap manifests not synced")
	// ErrNotBegun: the run stopped before it disturbed anything.
	ErrNotBegun = errors.New("nothing was begun")
	// ErrGate: a gate of the user did not hold in time.
	ErrGate = errors.New("a gate does not hold")
	// ErrSuspended: somebody has suspended the upgrades of the cluster.
	ErrSuspended = errors.New("upgrades are suspended")
	// ErrWindow: the maintenance window is closed.
	ErrWindow = errors.New("the maintenance window is closed")
	// ErrSnapshot: no snapshot of etcd could be taken.
	ErrSnapshot = errors.New("no snapshot of etcd")
	// ErrOperator: the operator of the cluster is in the way, or did not do what it was asked for.
	ErrOperator = errors.New("the operator of the cluster")
	// ErrDeadline: the time for the whole run is used up.
	ErrDeadline = errors.New("the time for the run is used up")
)

// BlockedRemedy says what to do about checks; each finding has its own remedy.
const BlockedRemedy = "Follow the advice above, then run terraform apply again: all checks are repeated."

// Blocked returns the failure of checks before a run.
func Blocked(target cluster.Target, findings []cluster.Finding) *Failure {
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
		Remedy:   BlockedRemedy,
		Err:      errors.Join(append([]error{ErrBlocked}, Causes(findings)...)...),
	}
}

// Undisturbed marks the failure of a run that has not disturbed anything.
func Undisturbed(failure *Failure) *Failure {
	failure.Err = errors.Join(ErrNotBegun, failure.Err)

	return failure
}

// NeverBegan reports whether the run stopped before anything was disrupted.
func NeverBegan(err error) bool {
	return errors.Is(err, ErrBlocked) || errors.Is(err, ErrLocked) || errors.Is(err, ErrNotBegun)
}

// Causes returns the errors behind the findings.
func Causes(findings []cluster.Finding) []error {
	var all []error

	for _, finding := range findings {
		if finding.Err != nil {
			all = append(all, finding.Err)
		}
	}

	return all
}

// NotAcquired returns the failure of a run that never got the lease. It has disturbed nothing.
func NotAcquired(cancelled bool, err error) error {
	var failure *Failure
	if errors.As(err, &failure) {
		failure.Err = errors.Join(ErrNotBegun, failure.Err)

		return err
	}

	summary, seen := "Unable to take the lease kube-system/talosupgrade", err.Error()
	if cancelled {
		summary = "The upgrade was cancelled before it began"
	}

	if errors.Is(err, context.Canceled) {
		seen = "It was interrupted before it had the lease kube-system/talosupgrade."
	}

	return Undisturbed(&Failure{Summary: summary, Seen: seen, State: "Nothing was touched.", Remedy: ResumeRemedy, Err: err})
}

// Brief returns the failure in a few words, for readers of annotations.
func Brief(err error) string {
	var failure *Failure
	if !errors.As(err, &failure) {
		return err.Error()
	}

	var sent *RolledBackError

	switch {
	case errors.As(err, &sent) && sent.Asked != "":
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

// Excerpt is the end of a log or an output.
type Excerpt struct {
	// Source is where the lines come from: "machined on worker-1".
	Source string
	// Lines are in order, the oldest first.
	Lines []string
}

func (e Excerpt) String() string {
	return "The last lines of " + e.Source + ":\n  " + strings.Join(e.Lines, "\n  ")
}

// explained adds what is said in the same way whatever failed: which guards did not hold, why an image could not
// be pulled, and who has the lease. It reports whether there is nothing to add.
func (f *Failure) explained(ended, err error) bool {
	var guarded *GuardError
	if errors.As(err, &guarded) {
		f.Seen = fmt.Sprintf("It was not safe to %s the node: %v", guarded.Before, guarded.Err)
		f.Findings = guarded.Findings
	}

	var unpulled *PullError
	if errors.As(err, &unpulled) && ended == nil && !errors.Is(err, ErrLeaseLost) {
		f.Remedy = PullRemedy(unpulled.Err)

		return true
	}

	cause := cluster.Worded(ended)
	if !errors.Is(err, ErrLeaseLost) && !errors.Is(cause, ErrLeaseLost) {
		return false
	}

	f.Remedy = LostRemedy(errors.Join(cause, err))
	if cause != nil && !strings.Contains(f.Seen, cause.Error()) {
		f.Seen, f.Err = cause.Error()+"; "+f.Seen, errors.Join(cause, err)
	}

	return true
}
