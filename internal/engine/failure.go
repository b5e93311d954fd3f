// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
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
const checkTurn = "node-upgrade"

// Nodes are the names of all nodes whose upgrades failed, the first one first.
func (f *Failure) Nodes() []string {
	var nodes []string

	if f.Node != "" && !f.elsewhere() {
		nodes = append(nodes, f.Node)
	}

	for _, finding := range f.Findings {
		if finding.Check == checkTurn && finding.Node != "" {
			nodes = append(nodes, finding.Node)
		}
	}

	return nodes
}

// elsewhere tells that nothing failed on the node itself: it waited for its gate,
// or the run had to stop while it was on its way.
func (f *Failure) elsewhere() bool {
	for _, cause := range []error{ErrInstaller, ErrFallback, ErrRolledBack, ErrUnhealthy, ErrPlatform} {
		if errors.Is(f.Err, cause) {
			return false
		}
	}

	for _, cause := range []error{ErrGate, ErrLeaseLost, ErrWindow, ErrDeadline, context.Canceled} {
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
	// ErrInstaller: the installer ran and failed.
	ErrInstaller = errors.New("installer failed")
	// ErrNeverReturned: a node did not come back in time.
	ErrNeverReturned = errors.New("node did not come back")
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
const blockedRemedy = "Do what is said there, then run terraform apply again: it makes all checks anew."

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

// refused is the failure of checks before a run, with what an earlier run left.
func refused(snapshot cluster.Snapshot, target cluster.Target, findings []cluster.Finding) *Failure {
	failure := blocked(target, findings)

	if snapshot.Journal == nil {
		return failure
	}

	nodes := unfinishedIn(*snapshot.Journal, "", &snapshot)
	if len(nodes) > 0 {
		failure.State += " " + unfinishedText(nodes)
	}

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
