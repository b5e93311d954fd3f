// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// TestSweepNoticesWhatIsWrong is about the sweep itself: what does not happen is
// missed, in a case without a crash and in one with one.
func TestSweepNoticesWhatIsWrong(t *testing.T) {
	t.Parallel()

	before := func(method, node string) strike {
		return strike{at: point{method: method, node: node, nth: 1, mutates: true}, crash: harness.DieBefore}
	}

	for _, given := range []struct {
		forgets string
		blow    strike
		says    string
	}{
		{"Uncordon", strike{}, "the first run failed"},
		{"Uncordon", before("Annotate", ""), "the last run failed"},
		{"Annotate", strike{}, "annotation talos-status"},
		{"WriteLease", strike{}, "the lease was taken over"},
		{"WriteJournal", before("Reboot", "worker-1"), "Invariant:S4"},
	} {
		u := unit{scenario: talosOnly(harness.Seed()), forgets: given.forgets}
		done := live(t, u, given.blow)

		if found := strings.Join(done.wrong, "\n"); !strings.Contains(found, given.says) {
			t.Errorf("%s is forgotten, %s: found %.900q, want %q in it", given.forgets, given.blow, found, given.says)
		}
	}
}

// TestSameCallsEachTime is what the names of crash points lean on.
func TestSameCallsEachTime(t *testing.T) {
	t.Parallel()

	const repetitions = 3

	counts := func() map[point]int {
		counted := map[point]int{}
		for _, at := range live(t, unit{scenario: talosOnly(harness.Seed())}, strike{}).points {
			counted[at]++
		}

		return counted
	}

	first := counts()

	for at, count := range first {
		if count != 1 {
			t.Errorf("%s came %d times, and is no name", at, count)
		}
	}

	for range repetitions {
		again := counts()
		for at := range first {
			if again[at] != 1 {
				t.Errorf("%s did not come again", at)
			}
		}

		if len(again) != len(first) {
			t.Errorf("%d calls, and %d before", len(again), len(first))
		}
	}
}
