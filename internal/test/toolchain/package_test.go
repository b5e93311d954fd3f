// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnpackedPackagesHaveAMergedUsr(t *testing.T) {
	var archive bytes.Buffer

	writer := tar.NewWriter(&archive)

	for _, header := range []*tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./bin/mount", Typeflag: tar.TypeReg, Mode: 0o755, Size: 1},
		{Name: "./sbin/modprobe", Typeflag: tar.TypeSymlink, Linkname: "/bin/kmod"},
		{Name: "./usr/sbin/runc", Typeflag: tar.TypeReg, Mode: 0o755, Size: 1},
		{Name: "./usr/bin/again", Typeflag: tar.TypeLink, Linkname: "./usr/sbin/runc"},
		{Name: "./lib/x86_64-linux-gnu/libc.so.6", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1},
		{Name: "./lib64/ld-linux-x86-64.so.2", Typeflag: tar.TypeSymlink, Linkname: "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"},
		{Name: "./usr/share/doc/runc/copyright", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1},
		{Name: "./etc/../../outside", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1},
	} {
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}

		if header.Size > 0 {
			if _, err := writer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if err := unpack(tar.NewReader(&archive), dir, keepPrograms[:]); err != nil {
		t.Fatal(err)
	}

	found := map[string]string{}

	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}

		if entry.Type() == fs.ModeSymlink {
			found[name], err = os.Readlink(path)

			return err
		}

		info, err := entry.Info()
		found[name] = info.Mode().String()

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"usr/bin/mount": "-rwxr-xr-x", "usr/bin/modprobe": "/bin/kmod", "usr/bin/runc": "-rwxr-xr-x", "usr/bin/again": "-rwxr-xr-x",
		"usr/lib/x86_64-linux-gnu/libc.so.6": "-rw-r--r--", "usr/lib64/ld-linux-x86-64.so.2": "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
}
