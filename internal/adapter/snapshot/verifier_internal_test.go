// SPDX-License-Identifier: MPL-2.0

package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// full is a disk with room for some bytes.
type full struct{ room int }

func (f *full) Write(data []byte) (int, error) {
	if len(data) > f.room {
		taken := f.room
		f.room = 0

		return taken, &os.PathError{Op: "write", Path: "/backup/x", Err: syscall.ENOSPC}
	}

	f.room -= len(data)

	return len(data), nil
}

func TestVerifier_FullDiskEndsASnapshotForGood(t *testing.T) {
	t.Parallel()

	verifier := newVerifier(t.Context(), &full{room: 1000})

	for i, want := range []bool{false, true, true} {
		_, err := verifier.Write(make([]byte, 600))
		if (err != nil) != want {
			t.Errorf("write %d: %v", i, err)
		}

		if want && (!errors.Is(err, cluster.ErrRefused) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left")) {
			t.Errorf("write %d: %v, want it to say why", i, err)
		}
	}

	if verifier.size != 1000 {
		t.Errorf("%d bytes were counted, want the 1000 that were written", verifier.size)
	}
}

// The rename fails because a directory has the name.
func TestVerifier_FailedRenameLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	for _, blocked := range []string{"x.db", "x.db.sha256"} {
		directory := t.TempDir()
		blocker := filepath.Join(directory, blocked, "something")

		if err := os.MkdirAll(blocker, 0o700); err != nil {
			t.Fatal(err)
		}

		saved := cluster.EtcdSnapshot{Path: filepath.Join(directory, "x.db"), SHA256: "0", Taken: time.Time{}}
		partial := partialOf(saved.Path)

		if err := os.WriteFile(partial, nil, fileMode); err != nil {
			t.Fatal(err)
		}

		if err := publish(partial, saved); !errors.Is(err, cluster.ErrRefused) {
			t.Errorf("%s is taken: %v, want it refused", blocked, err)
		}

		left, err := os.ReadDir(directory)
		if err != nil || len(left) != 1 || left[0].Name() != blocked {
			t.Errorf("%s is taken: the directory holds %v, %v", blocked, left, err)
		}
	}
}
