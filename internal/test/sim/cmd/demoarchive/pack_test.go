// SPDX-License-Identifier: MPL-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// TestPackSaysNothingOfWhereItWasPacked: the same files in other places, with other owners or times, give the same
// bytes.
func TestPackSaysNothingOfWhereItWasPacked(t *testing.T) {
	commit := time.Unix(1_700_000_000, 0)

	pack := func() []byte {
		dir := t.TempDir()
		files := make(map[string]string)

		for name, mode := range map[string]os.FileMode{"demo": 0o700, "provider/it": 0o755, "LICENSE": 0o600, "zeta": 0o644} {
			files[name] = filepath.Join(dir, filepath.Base(name))
			if err := os.WriteFile(files[name], []byte(name), mode); err != nil {
				t.Fatal(err)
			}
		}

		var out bytes.Buffer
		if err := pack(&out, "top", files, commit); err != nil {
			t.Fatal(err)
		}

		return out.Bytes()
	}

	first := pack()
	if !bytes.Equal(first, pack()) {
		t.Error("the same files gave other bytes")
	}

	type entry struct {
		Name, Owner string
		Mode        int64
		Time        int64
	}

	compressed, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}

	var entries []entry

	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		entries = append(entries, entry{header.Name, header.Uname + header.Gname, header.Mode, header.ModTime.Unix()})
	}

	want := []entry{
		{"top/README.md", "", 0o644, commit.Unix()},
		{"top/LICENSE", "", 0o644, commit.Unix()},
		{"top/demo", "", 0o755, commit.Unix()},
		{"top/provider/it", "", 0o755, commit.Unix()},
		{"top/zeta", "", 0o644, commit.Unix()},
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// TestWriteLeavesNoHalfArchive if a file is missing.
func TestWriteLeavesNoHalfArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.tar.gz")

	if err := write(path, "top", map[string]string{"demo": filepath.Join(t.TempDir(), "gone")}, time.Unix(0, 0)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that a file is missing", err)
	}

	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an archive was left (%v)", err)
	}
}

// TestChosenPlatformsAreThoseWithADemo: a snapshot may be for others as well.
func TestChosenPlatformsAreThoseWithADemo(t *testing.T) {
	for list, want := range map[string][]toolchain.Platform{
		"":                                       platforms[:],
		"linux_arm64":                            {{OS: "linux", Arch: "arm64"}},
		"windows_amd64,darwin_arm64,linux_amd64": {{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}},
		"freebsd_386":                            {},
	} {
		if diff := cmp.Diff(want, chosen(list)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", list, diff)
		}
	}
}
