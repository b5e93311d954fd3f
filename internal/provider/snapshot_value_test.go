// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func savedSnapshot(path string) *cluster.EtcdSnapshot {
	return &cluster.EtcdSnapshot{
		Path: path, Size: 4096 + 32, SHA256: "0f343b0931126a20f133d67c2b018a3b", Run: "run",
		Taken:  time.Date(2026, time.March, 14, 2, 59, 26, 0, time.FixedZone("CET", 3600)),
		Target: cluster.Target{Talos: version.MustParse("1.13.4")},
	}
}

func TestSnapshotIsWhatTheJournalRemembers(t *testing.T) {
	first, second := &cluster.Journal{Snapshot: savedSnapshot("/a.db")}, &cluster.Journal{Snapshot: savedSnapshot("/b.db")}
	none, unknown := types.ObjectNull(snapshotTypes()), types.ObjectUnknown(snapshotTypes())
	earlier := snapshotValue(first, none)

	want := map[string]string{
		"path": `"/a.db"`, "size": "4128", "sha256": `"0f343b0931126a20f133d67c2b018a3b"`, "taken": `"2026-03-14T01:59:26Z"`,
		"talos_version": `"1.13.4"`, "kubernetes_version": "<null>",
	}
	for name, value := range earlier.Attributes() {
		if value.String() != want[name] {
			t.Errorf("%s is %s, want %s", name, value, want[name])
		}
	}

	if len(earlier.Attributes()) != len(want) {
		t.Errorf("got %s", earlier)
	}

	for name, test := range map[string]struct {
		journal       *cluster.Journal
		earlier, want types.Object
	}{
		"a new one replaces the earlier":         {second, earlier, snapshotValue(second, none)},
		"an unreadable journal keeps it":         {nil, earlier, earlier},
		"a journal without one keeps it":         {&cluster.Journal{}, earlier, earlier},
		"there never was one":                    {&cluster.Journal{}, none, none},
		"what was planned as unknown gets known": {&cluster.Journal{}, unknown, none},
		"so does it without a journal":           {nil, unknown, none},
	} {
		if got := snapshotValue(test.journal, test.earlier); !got.Equal(test.want) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestSnapshotReachesTheState: after a create, after an update whether it failed
// or not, and with a refresh.
func TestSnapshotReachesTheState(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	prior := stored(t, fake, "1.13.4", "")

	if !prior.Snapshot.IsNull() {
		t.Fatalf("there is a snapshot: %s", prior.Snapshot)
	}

	fake.journal.Snapshot = savedSnapshot("/a.db")
	fake.journal.Snapshot.Closed = true
	want := snapshotValue(&fake.journal, prior.Snapshot)

	created, diagnostics := create(t, fake.clusters(t), desired("1.13.4", ""))
	check(t, diagnostics)

	updated, diagnostics := apply(t, fake.clusters(t), prior, desired("1.13.4", ""))
	check(t, diagnostics)

	refreshed, diagnostics := read(t.Context(), t, fake.clusters(t), prior)
	check(t, diagnostics)

	for name, got := range map[string]*clusterModel{"create": created, "update": updated, "refresh": refreshed} {
		if !got.Snapshot.Equal(want) {
			t.Errorf("after the %s it is %s", name, got.Snapshot)
		}
	}

	fake.nodes[1].talos, fake.roles = "1.13.0", []string{"os:reader"}

	failed, diagnostics := apply(t, fake.clusters(t), prior, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "os:reader"})

	if !failed.Snapshot.Equal(want) {
		t.Errorf("after a failed update it is %s", failed.Snapshot)
	}

	fake.kubernetesDown = cluster.ErrUnreachable

	away, _ := read(t.Context(), t, fake.clusters(t), refreshed)
	if !away.Snapshot.Equal(want) {
		t.Errorf("without a journal it is %s", away.Snapshot)
	}

	fake.kubernetesDown, fake.journal.Snapshot = nil, nil

	gone, _ := read(t.Context(), t, fake.clusters(t), refreshed)
	if !gone.Snapshot.Equal(want) {
		t.Errorf("with a journal that lost it, it is %s", gone.Snapshot)
	}
}

// TestSnapshotIsPlannedWithTheRest: an upgrade may take one, and a plan that
// changes nothing must leave the one in state alone.
func TestSnapshotIsPlannedWithTheRest(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.journal.Snapshot = savedSnapshot("/a.db")
	fake.journal.Snapshot.Closed = true
	state := stored(t, fake, "1.13.4", "")

	plan := desired("1.13.4", "")
	plan.ID = state.ID

	got, diagnostics := planned(t, fake.clusters(t), state, plan)
	check(t, diagnostics)

	if !got.Snapshot.Equal(state.Snapshot) {
		t.Errorf("a plan of nothing plans %s", got.Snapshot)
	}

	fake.nodes[1].talos = "1.13.0"

	got, _ = planned(t, fake.clusters(t), state, state)
	if !got.Snapshot.IsUnknown() {
		t.Errorf("a roll plans %s", got.Snapshot)
	}
}
