// SPDX-License-Identifier: MPL-2.0

package snapshot_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// place returns a directory with what a test needs in it.
func place(t *testing.T) string {
	t.Helper()

	root := t.TempDir()

	for _, failure := range []error{
		os.Mkdir(filepath.Join(root, "there"), 0o755),
		os.WriteFile(filepath.Join(root, "file"), nil, 0o600),
		os.Symlink(filepath.Join(root, "there"), filepath.Join(root, "link")),
		os.Symlink(filepath.Join(root, "gone"), filepath.Join(root, "dangling")),
	} {
		if failure != nil {
			t.Fatal(failure)
		}
	}

	return root
}

func TestDirectory_CheckAndSaveAgree(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ path, refusal string }{
		"that exist":                    {path: "there"},
		"to be made":                    {path: "new"},
		"to be made below others":       {path: "new/a/b"},
		"below one that exists":         {path: "there/new"},
		"behind a link":                 {path: "link"},
		"below a link":                  {path: "link/new"},
		"that are files":                {path: "file", refusal: "is no directory"},
		"below a file":                  {path: "file/new", refusal: "file"},
		"behind a link to nothing":      {path: "dangling", refusal: "dangling is a symbolic link"},
		"below a link to nothing":       {path: "dangling/new", refusal: "dangling is a symbolic link"},
		"whose name no system can take": {path: strings.Repeat("x", 300), refusal: "xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			root := place(t)
			before := listing(t, root)
			store := snapshot.New(filepath.Join(root, filepath.FromSlash(test.path)))

			_, checked := store.Check(t.Context())
			if after := listing(t, root); len(after) != len(before) {
				t.Errorf("the check left %q behind, before it there was %q", after, before)
			}

			_, saved := store.Save(t.Context(), "prod", at(), gives(whole(1), 512))

			for what, err := range map[string]error{"checking": checked, "saving": saved} {
				switch {
				case test.refusal == "" && err != nil:
					t.Errorf("%s: %v", what, err)
				case test.refusal != "" && (!errors.Is(err, cluster.ErrRefused) || cluster.Heals(err) || !strings.Contains(err.Error(), test.refusal)):
					t.Errorf("%s: %v, want it refused, saying %q", what, err, test.refusal)
				}
			}
		})
	}
}

func TestDirectory_WithoutPermissionIsRefused(t *testing.T) {
	t.Parallel()

	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("modes do not bind this user")
	}

	root := place(t)
	if err := os.Chmod(filepath.Join(root, "there"), 0o500); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{"there", "there/new"} {
		_, err := snapshot.New(filepath.Join(root, path)).Check(t.Context())
		if !errors.Is(err, cluster.ErrRefused) || !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v, want it refused", path, err)
		}
	}
}

// A read-only file system binds the superuser as well.
func TestDirectory_OnAReadOnlyFileSystemIsRefused(t *testing.T) {
	t.Parallel()

	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}

	for _, path := range []string{"/proc/self", "/proc/self/talosupgrade"} {
		store := snapshot.New(path)

		if _, err := store.Check(t.Context()); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want it refused", path, err)
		}

		if _, err := store.Save(t.Context(), "prod", at(), gives(whole(1), 512)); !errors.Is(err, cluster.ErrRefused) || !errors.Is(err, cluster.ErrUnsaved) {
			t.Errorf("%s: saving: %v, want it refused", path, err)
		}
	}
}

// TestDirectory_ThatOthersMayReadIsNamed: a snapshot holds every secret of its
// cluster.
func TestDirectory_ThatOthersMayReadIsNamed(t *testing.T) {
	t.Parallel()

	if runtime.GOOS == "windows" {
		t.Skip("modes do not tell")
	}

	root := place(t)
	there := filepath.Join(root, "there")

	for mode, want := range map[os.FileMode]string{
		0o755: "the directory " + there + " is open to others than its owner (mode 0755)",
		0o750: "the directory " + there + " is open to others than its owner (mode 0750)",
		0o701: "the directory " + there + " is open to others than its owner (mode 0701)",
		0o700: "",
	} {
		if err := os.Chmod(there, mode); err != nil {
			t.Fatal(err)
		}

		if exposed, err := snapshot.New(there).Check(t.Context()); err != nil || exposed != want {
			t.Errorf("%o: %q, %v; want %q", mode, exposed, err, want)
		}
	}

	if exposed, err := snapshot.New(filepath.Join(root, "new")).Check(t.Context()); err != nil || exposed != "" {
		t.Errorf("one that is to be made: %q, %v", exposed, err)
	}
}

func TestDirectory_EmptyIsRefused(t *testing.T) {
	t.Parallel()

	_, err := snapshot.New("").Check(t.Context())
	if _, saved := snapshot.New("").Save(t.Context(), "prod", at(), gives(whole(1), 512)); !errors.Is(err, cluster.ErrRefused) || !errors.Is(saved, cluster.ErrRefused) {
		t.Errorf("checking: %v, saving: %v; want both refused", err, saved)
	}
}

func TestDirectory_CancelledCheckTouchesNothing(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := snapshot.New(t.TempDir()).Check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want it cancelled", err)
	}
}

func TestDirectory_PathsAreAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())

	saved, err := snapshot.New("backups").Save(t.Context(), "prod", at(), gives(whole(1), 512))
	if err != nil {
		t.Fatal(err)
	}

	if !filepath.IsAbs(saved.Path) || filepath.Base(filepath.Dir(saved.Path)) != "backups" {
		t.Errorf("the snapshot is at %s", saved.Path)
	}
}
