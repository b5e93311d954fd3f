// SPDX-License-Identifier: MPL-2.0

package report

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// Outcome is how a run ended.
type Outcome string

const (
	// Completed: every managed node is at the target.
	Completed Outcome = "completed"
	// Refused: checks, or somebody else, kept the run from beginning.
	Refused Outcome = "refused"
	// Failed: the run stopped at something that was not as it should be.
	Failed Outcome = "failed"
	// Stopped: somebody or something asked the run to stop, such as a cancel, or the
	// end of its time.
	Stopped Outcome = "stopped"
	// Lost: another run took the lease.
	Lost Outcome = "lost"
)

// Ending is what is known when a run is over.
type Ending struct {
	Outcome Outcome
	// Failure is nil when the run completed.
	Failure *Failure
	// Nodes are those of the last observation; none where there was no such thing.
	Nodes []cluster.Node
}

// Failure is why a run did not complete.
type Failure struct {
	// Summary is one line.
	Summary string
	// Nodes are those at which something failed.
	Nodes []string
	// Seen is what was observed.
	Seen string
	// Findings are all reasons where checks refused.
	Findings []cluster.Finding
	Excerpts []Excerpt
	// State is where nodes and cluster are left, Remedy what to do now.
	State, Remedy string
}

// Excerpt is the end of a log.
type Excerpt struct {
	// Source is whose log it is, such as "machined on worker-1".
	Source string
	// Lines are the oldest first.
	Lines []string
}
