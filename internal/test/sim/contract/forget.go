// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// forget forgets a cluster and compares what is kept: one reason each, with these
// words in it.
func forget(t *testing.T, f Fixture, id string, kept ...string) {
	t.Helper()

	reasons, err := f.API().Forget(t.Context(), id)
	if err != nil || len(reasons) != len(kept) {
		t.Errorf("kept %q, %v, want %q", reasons, err, kept)
	}

	for i := range min(len(kept), len(reasons)) {
		if !strings.Contains(reasons[i], kept[i]) {
			t.Errorf("kept %q, want %q", reasons[i], kept[i])
		}
	}
}

// expectRecords looks whether there is a lease and a journal.
func expectRecords(t *testing.T, f Fixture, lease, journal bool) {
	t.Helper()

	if found := readLease(t, f).ResourceVersion != ""; found != lease {
		t.Errorf("there is a lease: %t, want %t", found, lease)
	}

	if found := readJournal(t, f).ResourceVersion != ""; found != journal {
		t.Errorf("there is a journal: %t, want %t", found, journal)
	}
}

func forgetNothing(t *testing.T, f Fixture) {
	forget(t, f, f.ClusterID())
	expectRecords(t, f, false, false)
}

func forgetFinished(t *testing.T, f Fixture) {
	// Its holder has died: nobody renews it.
	writeLease(t, f, wholeLease())
	writeJournal(t, f, cluster.Journal{Holder: "run-1"}.With("uuid-1", wholeEntry(cluster.PhaseFallback)).
		With("uuid-2", wholeEntry(cluster.PhaseRolledBack)).WithSnapshot(wholeSnapshot()))

	forget(t, f, f.ClusterID())
	expectRecords(t, f, false, false)
}

func forgetUnfinished(t *testing.T, f Fixture) {
	for _, phase := range []cluster.Phase{cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseRollingBack} {
		writeLease(t, f, cluster.Lease{})

		journal := cluster.Journal{}.With("uuid-1", wholeEntry(phase))
		writeJournal(t, f, journal)

		forget(t, f, f.ClusterID(), "the upgrade of node worker-0")
		expectRecords(t, f, false, true)
		expectJournal(t, f, journal)

		f.DropJournal(t)
	}
}

func forgetManifests(t *testing.T, f Fixture) {
	writeJournal(t, f, cluster.Journal{}.WithManifests(&cluster.ManifestsDue{Run: "run-7", Written: moment(0)}))

	forget(t, f, f.ClusterID(), "the bootstrap manifests have not been synced since the roll of run run-7")
	expectRecords(t, f, false, true)
}

func forgetForeign(t *testing.T, f Fixture) {
	writeLease(t, f, cluster.Lease{})
	writeJournal(t, f, cluster.Journal{})

	kept, err := f.API().Forget(t.Context(), "another-cluster")
	if err != nil || len(kept) == 0 || !strings.Contains(kept[0], "belongs to cluster "+f.ClusterID()) {
		t.Errorf("kept %q, %v, want what belongs to cluster %s", kept, err, f.ClusterID())
	}

	expectRecords(t, f, true, true)
}
