// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"debug/buildinfo"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestArchiveIsWhereTheAPIServerIsBesideTheProgram whatever it was started through.
func TestArchiveIsWhereTheAPIServerIsBesideTheProgram(t *testing.T) {
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

	server := filepath.Join(dir, "kubernetes", "kube-apiserver")
	if err := os.MkdirAll(server, 0o755); err != nil {
		t.Fatal(err)
	}

	if found := archiveOf(program); found != "" {
		t.Errorf("a directory is taken for the API server of the archive %s", found)
	}

	if err := os.Remove(server); err != nil {
		t.Fatal(err)
	}

	writeFile(t, server, "")

	for _, started := range []string{program, link} {
		if found := archiveOf(started); found != archive(dir) {
			t.Errorf("%s is taken for a program from %q, want %s", started, found, dir)
		}
	}
}

// TestDemoPlacesOfTheSourceTree are those that the README names.
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
		Kubectl:       "$(go run ./internal/test/sim/cmd/setup kubectl)",
	}
	if places != want {
		t.Errorf("the places are %+v, want %+v", places, want)
	}
}

// TestKeyOfAModuleFollowsThePlatform, so that the programs of several stand beside each
// other in the cache.
func TestKeyOfAModuleFollowsThePlatform(t *testing.T) {
	dir := fakeModule(t, "package main\n")
	writeFile(t, filepath.Join(dir, "go.sum"), "")

	seen := make(map[string]Platform)

	for _, target := range []Platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}} {
		key, err := moduleKey(t.Context(), dir, target)
		if err != nil {
			t.Fatal(err)
		}

		if other, found := seen[key]; found {
			t.Errorf("%s and %s have the same key", target, other)
		}

		seen[key] = target
	}
}

// TestBuildForAnotherPlatform reads what it is for from the program.
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
