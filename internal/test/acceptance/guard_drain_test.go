// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"
)

// TestAccBudgetThatNeverGivesIsNamedBeforeTheFirstCordon: worker-1 goes second,
// and still nothing happens to worker-0.
func TestAccBudgetThatNeverGivesIsNamedBeforeTheFirstCordon(t *testing.T) {
	fullOverReal(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`)
	s.settle()

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	// Not every plan looks at the workloads.
	w.plan().mustSucceed(2).mustNotWarn("blocks-drain-of-worker-1")

	w.apply().mustFail("drain", "worker-1", "workload/blocks-drain-of-worker-1")
	s.untouched("cp-0", "worker-0", "worker-1")

	if cordons := s.cordons(); cordons != 0 {
		t.Errorf("%d nodes were cordoned", cordons)
	}
}
