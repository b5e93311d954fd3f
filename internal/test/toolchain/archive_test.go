// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"debug/buildinfo"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestArchiveIsWhereTheProviderIsBesideTheProgram wants the archive to be found, even if the program is started
// through a link.
func TestArchiveIsWhereTheProviderIsBesideTheProgram(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	program, link := filepath.Join(dir, "demo"), filepath.Join(t.TempDir(), "demo")
	writeFile(t, program, "")

	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}

	if found := archiveOf(program); found != "" {
		t.Errorf("a program alone is taken for one from the archive %s", found)
	}

	provider := filepath.Join(dir, "provider", "terraform-provider-talosupgrade")
	if err := os.MkdirAll(provider, 0o755); err != nil {
		t.Fatal(err)
	}

	if found := archiveOf(program); found != "" {
		t.Errorf("a directory is taken for the provider of the archive %s", found)
	}

	if err := os.Remove(provider); err != nil {
		t.Fatal(err)
	}

	writeFile(t, provider, "")

	for _, started := range []string{program, link} {
		if found := archiveOf(started); found != archive(dir) {
			t.Errorf("%s is taken for a program from %q, want %s", started, found, dir)
		}
	}
}

// TestDemoPlacesOfTheSourceTree wants the paths that the README names.
func TestDemoPlacesOfTheSourceTree(t *testing.T) {
	places, err := DemoPlaces()
	if err != nil {
		t.Fatal(err)
	}

	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}

	want := Demo{
		Configuration: filepath.Join(root, "examples", "demo"),
		Report:        filepath.Join(root, "bin", "demo", "upgrade.html"),
	}
	if places != want {
		t.Errorf("the places are %+v, want %+v", places, want)
	}
}

// TestBuildForAnotherPlatform reads from the program which platform it was built for.
func TestBuildForAnotherPlatform(t *testing.T) {
	output := filepath.Join(t.TempDir(), "fake")
	dir := fakeModule(t, "package main\n\nfunc main() {}\n")

	made := build{dir: dir, output: output, packages: []string{"."}, target: Platform{"darwin", "arm64"}, what: "a fake"}
	if err := made.run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}

	info, err := buildinfo.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}

	for _, setting := range info.Settings {
		if setting.Key == "GOOS" && setting.Value != "darwin" || setting.Key == "GOARCH" && setting.Value != "arm64" {
			t.Errorf("%s is %s", setting.Key, setting.Value)
		}
	}
}
