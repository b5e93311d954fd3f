// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"time"
)

// windowClosed is why nothing may be started now: the maintenance window has closed.
func (r *run) windowClosed() error {
	if r.request.Window == nil {
		return nil
	}

	open, until := r.request.Window.Open(r.engine.clock.Now())
	if open {
		return nil
	}

	return fmt.Errorf("%w (%s); %s", ErrWindow, r.request.Window, opening(until))
}

// outside is the failure of a run that the end of the window stops, in words that
// begin with what it stopped at.
func (r *run) outside(err error, at string) *Failure {
	return &Failure{
		Summary: "Unable to finish the upgrade in the maintenance window", Seen: at + " " + sentence(err.Error()),
		State: "Nothing was started after it closed.", Remedy: "Run terraform apply again while it is open: it continues where the cluster is.", Err: err,
	}
}

// opening says when a closed window opens.
func opening(until time.Time) string {
	if until.IsZero() {
		return "it does not open again"
	}

	return "it opens at " + until.UTC().Format(time.RFC3339)
}
