// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// moment returns an instant that survives being stored, in microseconds.
func moment(after time.Duration) time.Time {
	return time.Date(2026, 3, 1, 12, 30, 15, 123456000, time.UTC).Add(after)
}

func wholeLease() cluster.Lease {
	return cluster.Lease{
		Holder: "run-1", Acquired: moment(0), Renewed: moment(time.Second), Duration: 30 * time.Second, Transitions: 3,
	}
}

// sameLease reports whether two leases are equal except for their resource versions.
func sameLease(a, b cluster.Lease) bool {
	return a.Holder == b.Holder && a.Acquired.Equal(b.Acquired) && a.Renewed.Equal(b.Renewed) && a.Duration == b.Duration &&
		a.Transitions == b.Transitions
}

// writeLease writes the lease, which has to succeed.
func writeLease(t *testing.T, f Fixture, lease cluster.Lease) cluster.Lease {
	t.Helper()

	written, err := f.API().WriteLease(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}

	if written.ResourceVersion == "" || written.ResourceVersion == lease.ResourceVersion {
		t.Errorf("wrote the lease with the resource version %q and got %q", lease.ResourceVersion, written.ResourceVersion)
	}

	return written
}

func readLease(t *testing.T, f Fixture) cluster.Lease {
	t.Helper()

	lease, err := f.API().Lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return lease
}

// refuseLease checks that a lease cannot be written.
func refuseLease(t *testing.T, f Fixture, what string, lease cluster.Lease) {
	t.Helper()

	if _, err := f.API().WriteLease(t.Context(), lease); !errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrOutcomeUnknown) {
		t.Errorf("%s: %v, want a conflict", what, err)
	}
}

func leaseIsCreatedOnce(t *testing.T, f Fixture) {
	if none := readLease(t, f); none != (cluster.Lease{}) {
		t.Fatalf("there is a lease: %+v", none)
	}

	written := writeLease(t, f, wholeLease())
	if !sameLease(written, wholeLease()) {
		t.Errorf("wrote %+v, want %+v", written, wholeLease())
	}

	refuseLease(t, f, "a second creation", wholeLease())

	if read := readLease(t, f); !sameLease(read, wholeLease()) || read.ResourceVersion != written.ResourceVersion {
		t.Errorf("read %+v, want %+v", read, written)
	}
}

func leaseIsUpdatedAsRead(t *testing.T, f Fixture) {
	first := writeLease(t, f, wholeLease())

	renewed := first
	renewed.Renewed = moment(10 * time.Second)
	second := writeLease(t, f, renewed)

	refuseLease(t, f, "an update with an old version", renewed)

	if read := readLease(t, f); !sameLease(read, renewed) {
		t.Errorf("read %+v, want %+v", read, renewed)
	}

	// Fields that are not written any more are gone.
	released := cluster.Lease{Transitions: 4, ResourceVersion: second.ResourceVersion}
	writeLease(t, f, released)

	if read := readLease(t, f); !sameLease(read, released) {
		t.Errorf("read %+v, want %+v", read, released)
	}
}

// suspend writes a suspension, or removes it, which has to succeed.
func suspend(t *testing.T, f Fixture, lease cluster.Lease, reason *string) cluster.Lease {
	t.Helper()

	written, err := f.API().WriteSuspension(t.Context(), lease, reason)
	if err != nil {
		t.Fatal(err)
	}

	if written.ResourceVersion == "" || written.ResourceVersion == lease.ResourceVersion {
		t.Errorf("wrote to the lease with the resource version %q and got %q", lease.ResourceVersion, written.ResourceVersion)
	}

	read := readLease(t, f)
	if (read.Suspended != nil) != (reason != nil) || read.Suspended != nil && (read.Suspended.Reason != *reason || read.Suspended.By == "" || read.Suspended.Since.IsZero()) {
		t.Errorf("suspended for %v, read back: %+v", reason, read.Suspended)
	}

	return read
}

func leaseIsSuspended(t *testing.T, f Fixture) {
	reason := "ola: not before Monday"

	// There is no lease yet.
	made := suspend(t, f, cluster.Lease{}, &reason)
	if !sameLease(made, cluster.Lease{}) {
		t.Errorf("the lease that it made says %+v", made)
	}

	if _, err := f.API().WriteSuspension(t.Context(), cluster.Lease{}, &reason); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a second creation: %v, want a conflict", err)
	}

	suspend(t, f, made, nil)

	if _, err := f.API().WriteSuspension(t.Context(), made, &reason); !errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrOutcomeUnknown) {
		t.Errorf("with an old version: %v, want a conflict", err)
	}

	// A run holds the lease, and keeps it.
	held := wholeLease()
	held.ResourceVersion = readLease(t, f).ResourceVersion
	held = writeLease(t, f, held)
	since := suspend(t, f, held, &reason).Suspended.Since

	renewed := readLease(t, f)
	if !sameLease(renewed, wholeLease()) {
		t.Errorf("the suspension left %+v of %+v", renewed, wholeLease())
	}

	refuseLease(t, f, "an update with the version before the suspension", held)

	renewed.Renewed = moment(10 * time.Second)
	writeLease(t, f, renewed)

	standing := readLease(t, f)
	if standing.Suspended == nil || standing.Suspended.Reason != reason || !standing.Suspended.Since.Equal(since) {
		t.Errorf("a renewal made %+v of the suspension", standing.Suspended)
	}

	f.DropLease(t)

	if _, err := f.API().WriteSuspension(t.Context(), standing, nil); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("of a lease that is gone: %v, want a conflict", err)
	}
}

func leaseThatWasDeleted(t *testing.T, f Fixture) {
	first := writeLease(t, f, wholeLease())

	f.DropLease(t)

	if none := readLease(t, f); none != (cluster.Lease{}) {
		t.Errorf("there is a lease: %+v", none)
	}

	refuseLease(t, f, "an update of what is gone", first)

	if none := readLease(t, f); none != (cluster.Lease{}) {
		t.Errorf("the update brought it back: %+v", none)
	}

	writeLease(t, f, wholeLease())
}

// wholeEntry returns an entry with every field.
func wholeEntry(phase cluster.Phase) cluster.Entry {
	return cluster.Entry{
		Node: "worker-0", Phase: phase, Attempt: 2, BootID: "2b8f1a64-0000-4000-8000-000000000001",
		Image:  "factory.talos.dev/metal-installer/abc:v1.13.4",
		Target: version.MustParse("1.13.4"), Previous: version.MustParse("1.13.2"), PreviousSchematic: "abc", Extensions: "iscsi-tools,qemu-guest-agent", PreviousEtcd: "3.6.4",
		Schematic: "def", Platform: "aws", Told: true,
		Asked: "run-0 (talosupgrade_rollback)", Reason: "its storage is slow", Retry: true, ConfirmedBootID: "2b8f1a64-0000-4000-8000-000000000002",
		Run: "run-1", Cordoned: true, Departed: true, Written: moment(0),
	}
}

func wholeSnapshot() *cluster.EtcdSnapshot {
	return &cluster.EtcdSnapshot{
		Path: "/var/backups/prod-20260301T123015Z.db", Size: 4096, SHA256: strings.Repeat("0a", 32), Taken: moment(0), Run: "run-1", Closed: true,
		Target: cluster.Target{
			Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2"), InstallerImage: "factory.talos.dev/metal-installer/abc",
		},
	}
}

// wholeJournal returns a journal with every field and every phase.
func wholeJournal() cluster.Journal {
	journal := cluster.Journal{Holder: "run-1 (talosupgrade_cluster.test)"}.WithSnapshot(wholeSnapshot()).WithManifests(&cluster.ManifestsDue{Run: "run-1", Written: moment(time.Second)})

	for _, phase := range []cluster.Phase{
		cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseFallback, cluster.PhaseRollingBack, cluster.PhaseRolledBack,
	} {
		journal = journal.With("uuid-"+string(phase), wholeEntry(phase))
	}

	return journal.WithConfirmed("uuid-confirmed", wholeEntry(""), nil)
}

// complete checks that an example omits no field.
func complete(t *testing.T, example any) {
	t.Helper()

	value := reflect.ValueOf(example)
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			t.Errorf("the example of %s says nothing about %s", value.Type(), value.Type().Field(i).Name)
		}
	}
}

func writeJournal(t *testing.T, f Fixture, journal cluster.Journal) cluster.Journal {
	t.Helper()

	written, err := f.API().WriteJournal(t.Context(), journal)
	if err != nil {
		t.Fatal(err)
	}

	if written.ResourceVersion == "" || written.ResourceVersion == journal.ResourceVersion {
		t.Errorf("wrote the journal with the resource version %q and got %q", journal.ResourceVersion, written.ResourceVersion)
	}

	return written
}

func readJournal(t *testing.T, f Fixture) cluster.Journal {
	t.Helper()

	journal, err := f.API().Journal(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return journal
}

func refuseJournal(t *testing.T, f Fixture, what string, journal cluster.Journal) {
	t.Helper()

	if _, err := f.API().WriteJournal(t.Context(), journal); !errors.Is(err, cluster.ErrConflict) || errors.Is(err, cluster.ErrOutcomeUnknown) {
		t.Errorf("%s: %v, want a conflict", what, err)
	}
}

// expectJournal compares what can be read with what was written.
func expectJournal(t *testing.T, f Fixture, want cluster.Journal) {
	t.Helper()

	read := readJournal(t, f)
	if read.ResourceVersion == "" {
		t.Error("there is no journal")
	}

	if read.Holder != want.Holder {
		t.Errorf("the journal names %q, want %q", read.Holder, want.Holder)
	}

	if len(read.Entries) != len(want.Entries) {
		t.Errorf("%d entries, want %d", len(read.Entries), len(want.Entries))
	}

	for key, entry := range want.Entries {
		found := read.Entries[key]
		if !found.Written.Equal(entry.Written) {
			t.Errorf("%s was written at %s, want %s", key, found.Written, entry.Written)
		}

		found.Written = entry.Written
		if !reflect.DeepEqual(found, entry) {
			t.Errorf("%s is %+v, want %+v", key, found, entry)
		}
	}

	if len(read.Confirmed) != len(want.Confirmed) {
		t.Errorf("%d confirmed upgrades, want %d", len(read.Confirmed), len(want.Confirmed))
	}

	for key, entry := range want.Confirmed {
		found := read.Confirmed[key]
		found.Written = entry.Written

		if !reflect.DeepEqual(found, entry) {
			t.Errorf("confirmed of %s is %+v, want %+v", key, found, entry)
		}
	}

	switch found, due := read.Manifests, want.Manifests; {
	case (found == nil) != (due == nil):
		t.Errorf("manifests due %+v, want %+v", found, due)
	case due != nil && (found.Run != due.Run || !found.Written.Equal(due.Written)):
		t.Errorf("manifests due %+v, want %+v", *found, *due)
	}

	if (read.Snapshot == nil) != (want.Snapshot == nil) {
		t.Fatalf("snapshot %+v, want %+v", read.Snapshot, want.Snapshot)
	}

	if want.Snapshot != nil {
		found := *read.Snapshot
		if !found.Taken.Equal(want.Snapshot.Taken) {
			t.Errorf("the snapshot was taken at %s, want %s", found.Taken, want.Snapshot.Taken)
		}

		found.Taken = want.Snapshot.Taken
		if !reflect.DeepEqual(found, *want.Snapshot) {
			t.Errorf("snapshot %+v, want %+v", found, *want.Snapshot)
		}
	}
}

func journalIsCreatedOnce(t *testing.T, f Fixture) {
	complete(t, wholeEntry(cluster.PhaseIntent))
	complete(t, *wholeSnapshot())

	if none := readJournal(t, f); none.ResourceVersion != "" || len(none.Entries) > 0 || none.Manifests != nil || none.Snapshot != nil {
		t.Fatalf("there is a journal: %+v", none)
	}

	written := writeJournal(t, f, wholeJournal())
	refuseJournal(t, f, "a second creation", wholeJournal())
	expectJournal(t, f, wholeJournal())

	if read := readJournal(t, f); read.ResourceVersion != written.ResourceVersion {
		t.Errorf("read the resource version %q, want %q", read.ResourceVersion, written.ResourceVersion)
	}
}

func journalIsUpdatedAsRead(t *testing.T, f Fixture) {
	first := writeJournal(t, f, wholeJournal())

	advanced := first.With("uuid-intent", wholeEntry(cluster.PhaseInstalled)).Without("uuid-rebooting").WithManifests(nil)
	second := writeJournal(t, f, advanced)
	expectJournal(t, f, advanced)

	refuseJournal(t, f, "an update with an old version", first.Without("uuid-intent"))
	expectJournal(t, f, advanced)

	empty := cluster.Journal{ResourceVersion: second.ResourceVersion}
	writeJournal(t, f, empty)
	expectJournal(t, f, empty)
}

func journalThatWasDeleted(t *testing.T, f Fixture) {
	first := writeJournal(t, f, wholeJournal())

	f.DropJournal(t)
	refuseJournal(t, f, "an update of what is gone", first)

	if none := readJournal(t, f); none.ResourceVersion != "" || len(none.Entries) > 0 {
		t.Errorf("the update brought it back: %+v", none)
	}

	writeJournal(t, f, cluster.Journal{}.With("uuid-intent", wholeEntry(cluster.PhaseIntent)))
}
