// SPDX-License-Identifier: MPL-2.0

package snapshot_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
)

// leave writes a file as a process would have left it that was killed that long ago.
func leave(t *testing.T, directory, name string, age time.Duration) {
	t.Helper()

	path := filepath.Join(directory, name)
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Chtimes(path, time.Time{}, at().Add(-age)); err != nil {
		t.Fatal(err)
	}
}

func TestLeftover_OfAKilledSaveIsRemoved(t *testing.T) {
	t.Parallel()

	const old, recent = 121 * time.Minute, 119 * time.Minute

	for name, test := range map[string]struct {
		cluster string
		file    string
		age     time.Duration
		removed bool
	}{
		"an old one":                     {"prod", ".prod-20261120T020405Z.db.partial", old, true},
		"of the same second":             {"prod", ".prod-20261121T020405Z.db.partial", old, true},
		"with a number":                  {"prod", ".prod-20261120T020405Z-17.db.partial", old, true},
		"a checksum":                     {"prod", ".prod-20261120T020405Z.db.sha256.partial", old, true},
		"of a name that was replaced":    {"p.r/o d", ".p.r-o-d-20261120T020405Z.db.partial", old, true},
		"of no name":                     {"", ".cluster-20261120T020405Z.db.partial", old, true},
		"one that may be under way":      {"prod", ".prod-20261120T020405Z.db.partial", recent, false},
		"of another cluster":             {"prod", ".prod-eu-20261120T020405Z.db.partial", old, false},
		"of a name that looks like it":   {"p.d", ".pod-20261120T020405Z.db.partial", old, false},
		"a snapshot":                     {"prod", "prod-20261120T020405Z.db", old, false},
		"its checksum":                   {"prod", "prod-20261120T020405Z.db.sha256", old, false},
		"a file in sight":                {"prod", "prod-20261120T020405Z.db.partial", old, false},
		"something else of the same end": {"prod", ".prod-notes.db.partial", old, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			directory := t.TempDir()
			leave(t, directory, test.file, test.age)

			if _, err := snapshot.New(directory).Save(t.Context(), test.cluster, at(), gives(whole(1), 512)); err != nil {
				t.Fatal(err)
			}

			names := listing(t, directory)
			if slices.Contains(names, test.file) == test.removed {
				t.Errorf("%v; want %s removed: %t", names, test.file, test.removed)
			}
		})
	}
}

func TestLeftover_DirectoryInItsPlaceStays(t *testing.T) {
	t.Parallel()

	directory := t.TempDir()
	inner := filepath.Join(directory, ".prod-20261120T020405Z.db.partial")

	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.Chtimes(inner, time.Time{}, at().Add(-24*time.Hour)); err != nil {
		t.Fatal(err)
	}

	if _, err := snapshot.New(directory).Save(t.Context(), "prod", at(), gives(whole(1), 512)); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(inner); err != nil {
		t.Error(err)
	}
}

// The secrets of a Save that was killed are removed even by a Save that fails.
func TestLeftover_IsAlsoRemovedByASaveThatFails(t *testing.T) {
	t.Parallel()

	directory := t.TempDir()
	leave(t, directory, ".prod-20261120T020405Z.db.partial", 3*time.Hour)

	if _, err := snapshot.New(directory).Save(t.Context(), "prod", at(), gives(whole(1)[:100], 512)); err == nil {
		t.Fatal("a part of a snapshot was saved")
	}

	if names := listing(t, directory); len(names) != 0 {
		t.Errorf("%v stay behind", names)
	}
}
