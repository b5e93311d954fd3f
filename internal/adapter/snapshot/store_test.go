// SPDX-License-Identifier: MPL-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var _ cluster.SnapshotStore = (*snapshot.Store)(nil)

// whole returns a snapshot as a node streams it: pages and their checksum.
func whole(pages int) []byte {
	database := bytes.Repeat([]byte("0123456789abcdef"), pages*512/16)
	sum := sha256.Sum256(database)

	return append(database, sum[:]...)
}

// gives streams the data in pieces of the given length.
func gives(data []byte, piece int) func(context.Context, io.Writer) error {
	return func(_ context.Context, to io.Writer) error {
		for chunk := range slices.Chunk(data, piece) {
			if _, err := to.Write(chunk); err != nil {
				return err
			}
		}

		return nil
	}
}

func at() time.Time { return time.Date(2026, 11, 21, 3, 4, 5, 600, time.FixedZone("", 3600)) }

// listing returns the names below a directory.
func listing(t *testing.T, directory string) []string {
	t.Helper()

	var names []string

	err := filepath.WalkDir(directory, func(path string, _ os.DirEntry, err error) error {
		if path != directory {
			names = append(names, strings.TrimPrefix(path, directory+string(filepath.Separator)))
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return names
}

func TestSave_KeepsAWholeSnapshotAndItsChecksum(t *testing.T) {
	t.Parallel()

	data := whole(40)

	for _, piece := range []int{1, 7, 31, 32, 33, 512, 4096, len(data)} {
		directory := filepath.Join(t.TempDir(), "not", "yet")

		saved, err := snapshot.New(directory).Save(t.Context(), "prod", at(), gives(data, piece))
		if err != nil {
			t.Errorf("pieces of %d: %v", piece, err)

			continue
		}

		path := filepath.Join(directory, "prod-20261121T020405Z.db")
		sum := fmt.Sprintf("%x", sha256.Sum256(data))

		if want := (cluster.EtcdSnapshot{Path: path, Size: int64(len(data)), SHA256: sum, Taken: at()}); saved != want {
			t.Errorf("pieces of %d: saved %+v, want %+v", piece, saved, want)
		}

		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
			t.Errorf("pieces of %d: %d bytes, %v; want the %d of the stream", piece, len(got), err, len(data))
		}

		if got, err := os.ReadFile(path + ".sha256"); err != nil || string(got) != sum+"  prod-20261121T020405Z.db\n" {
			t.Errorf("pieces of %d: checksum %q, %v", piece, got, err)
		}

		if got := listing(t, directory); len(got) != 2 {
			t.Errorf("pieces of %d: the directory holds %q", piece, got)
		}
	}
}

func TestSave_ChecksumIsReadBySha256sum(t *testing.T) {
	t.Parallel()

	tool, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip(err)
	}

	saved, err := snapshot.New(t.TempDir()).Save(t.Context(), "prod", at(), gives(whole(2), 512))
	if err != nil {
		t.Fatal(err)
	}

	check := exec.CommandContext(t.Context(), tool, "--check", "--strict", filepath.Base(saved.Path)+".sha256")
	check.Dir = filepath.Dir(saved.Path)

	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSave_LetsNobodyElseRead(t *testing.T) {
	t.Parallel()

	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}

	directory := filepath.Join(t.TempDir(), "made")

	saved, err := snapshot.New(directory).Save(t.Context(), "prod", at(), gives(whole(1), 100))
	if err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]os.FileMode{directory: 0o700, saved.Path: 0o600, saved.Path + ".sha256": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

func TestSave_OverwritesNothing(t *testing.T) {
	t.Parallel()

	directory := t.TempDir()
	store := snapshot.New(directory)

	// A checksum alone, a file that is being written and a snapshot without its
	// checksum take a name, too.
	others := []string{"prod-20261121T020405Z-2.db.sha256", ".prod-20261121T020405Z-3.db.partial", "prod-20261121T020405Z-4.db"}

	for _, taken := range others {
		if err := os.WriteFile(filepath.Join(directory, taken), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for i, want := range []string{"prod-20261121T020405Z.db", "prod-20261121T020405Z-5.db", "prod-20261121T020405Z-6.db"} {
		saved, err := store.Save(t.Context(), "prod", at(), gives(whole(i+1), 512))
		if err != nil {
			t.Fatal(err)
		}

		if got := filepath.Base(saved.Path); got != want {
			t.Errorf("snapshot %d is %s, want %s", i, got, want)
		}

		if line, err := os.ReadFile(saved.Path + ".sha256"); err != nil || !strings.HasSuffix(string(line), "  "+want+"\n") {
			t.Errorf("checksum %q, %v", line, err)
		}
	}

	for _, taken := range others {
		if got, err := os.ReadFile(filepath.Join(directory, taken)); err != nil || string(got) != "mine" {
			t.Errorf("%s became %q, %v", taken, got, err)
		}
	}
}

func TestSave_ConcurrentSnapshotsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()

	const count = 8

	directory := filepath.Join(t.TempDir(), "made")

	var (
		group sync.WaitGroup
		saved [count]cluster.EtcdSnapshot
	)

	for i := range count {
		group.Go(func() {
			var err error

			// Every other Save fails.
			data := whole(i + 1)
			if i%2 == 1 {
				data = data[:len(data)-1]
			}

			saved[i], err = snapshot.New(directory).Save(t.Context(), "prod", at(), gives(data, 100))
			if (err != nil) != (i%2 == 1) {
				t.Errorf("snapshot %d: %v", i, err)
			}
		})
	}

	group.Wait()

	if got := listing(t, directory); len(got) != count {
		t.Errorf("the directory holds %q, want %d snapshots and their checksums", got, count/2)
	}

	for i := 0; i < count; i += 2 {
		if got, err := os.ReadFile(saved[i].Path); err != nil || !bytes.Equal(got, whole(i+1)) {
			t.Errorf("%s: %d bytes, %v", saved[i].Path, len(got), err)
		}
	}
}

func TestSave_FileNamesKeepOnlySafeCharacters(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		"prod":                   "prod",
		"Prod_1.eu-north":        "Prod_1.eu-north",
		"":                       "cluster",
		"...":                    "cluster",
		"../../etc/passwd":       "etc-passwd",
		"admin@prod":             "admin-prod",
		"--rm":                   "rm",
		".hidden":                "hidden",
		"a b\n\tc\x00d":          "a-b-c-d",
		"København":              "K-benhavn",
		"集群":                     "cluster",
		`c:\windows`:             "c-windows",
		strings.Repeat("x", 300): strings.Repeat("x", 100),
	} {
		saved, err := snapshot.New(t.TempDir()).Save(t.Context(), name, at(), gives(whole(1), 512))
		if err != nil {
			t.Errorf("%q: %v", name, err)

			continue
		}

		if got := filepath.Base(saved.Path); got != want+"-20261121T020405Z.db" {
			t.Errorf("%q became %s, want %s and the time", name, got, want)
		}
	}
}

func TestSave_LeavesNothingBehindWhenItFails(t *testing.T) {
	t.Parallel()

	data := whole(3)
	flipped := bytes.Clone(data)
	flipped[700] ^= 0xff

	for name, test := range map[string]struct {
		data []byte
		says string
	}{
		"nothing":               {nil, "it is empty"},
		"no database":           {data[:32], "it has 32 bytes"},
		"the end is missing":    {data[:1000], "it has 1000 bytes"},
		"one byte too few":      {data[:len(data)-1], "it has 1567 bytes"},
		"one byte too many":     {append(bytes.Clone(data), 0), "it has 1569 bytes"},
		"a block is missing":    {slices.Concat(data[:512], data[1024:]), "checksum"},
		"cut after some blocks": {data[:1024+32], "checksum"},
		"flipped bytes":         {flipped, "checksum"},
	} {
		parent := t.TempDir()

		_, err := snapshot.New(filepath.Join(parent, "a", "b")).Save(t.Context(), "prod", at(), gives(test.data, 100))
		if !errors.Is(err, cluster.ErrIncomplete) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want it incomplete, saying %q", name, err, test.says)
		}

		if left := listing(t, parent); len(left) > 0 {
			t.Errorf("%s: %q stayed behind", name, left)
		}
	}
}

func TestSave_LeavesNothingBehindWhenTheStreamBreaksOff(t *testing.T) {
	t.Parallel()

	broken := errors.New("connection broken")
	stopped := errors.New("stopped by hand")

	for name, test := range map[string]struct {
		stream func(context.Context, io.Writer, context.CancelCauseFunc) error
		want   error
	}{
		"before anything came": {func(context.Context, io.Writer, context.CancelCauseFunc) error { return broken }, broken},
		"after everything came": {func(ctx context.Context, to io.Writer, _ context.CancelCauseFunc) error {
			return errors.Join(gives(whole(3), 100)(ctx, to), broken)
		}, broken},
		"cancelled in the middle": {func(ctx context.Context, to io.Writer, cancel context.CancelCauseFunc) error {
			err := gives(whole(3)[:100], 10)(ctx, to)
			cancel(stopped)

			return errors.Join(err, gives(whole(3)[100:], 10)(ctx, to))
		}, stopped},
		// It looks complete, but whether more was to come is not known.
		"cancelled, with a clean end": {func(ctx context.Context, to io.Writer, cancel context.CancelCauseFunc) error {
			defer cancel(stopped)

			return gives(whole(3), 100)(ctx, to)
		}, stopped},
		"cancelled, and nobody says so": {func(ctx context.Context, to io.Writer, cancel context.CancelCauseFunc) error {
			cancel(stopped)
			_ = gives(whole(3), 100)(ctx, to)

			return nil
		}, stopped},
	} {
		parent := t.TempDir()
		ctx, cancel := context.WithCancelCause(t.Context())

		_, err := snapshot.New(filepath.Join(parent, "a", "b")).Save(ctx, "prod", at(), func(ctx context.Context, to io.Writer) error {
			return test.stream(ctx, to, cancel)
		})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}

		if left := listing(t, parent); len(left) > 0 {
			t.Errorf("%s: %q stayed behind", name, left)
		}

		cancel(nil)
	}
}

func TestSave_FailureLeavesEarlierFiles(t *testing.T) {
	t.Parallel()

	directory := t.TempDir()
	kept := filepath.Join(directory, "kept")

	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, at := range []string{directory, filepath.Join(directory, "made")} {
		if _, err := snapshot.New(at).Save(t.Context(), "prod", time.Time{}, gives(nil, 1)); err == nil {
			t.Error("nothing was saved as a snapshot")
		}

		if got := listing(t, directory); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("the directory holds %q, want the file that was there", got)
		}
	}
}
