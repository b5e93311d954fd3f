// SPDX-License-Identifier: MPL-2.0

package project

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	// distVariable names the directory with the files of a release; make
	// snapshot and make package set it.
	distVariable = "TALOSUPGRADE_DIST"
	// targetsVariable names the platforms of a snapshot that does not have all of them.
	targetsVariable = "TALOSUPGRADE_TARGETS"

	projectName = "terraform-provider-talosupgrade"
	// root is the root of the repository, from here.
	root = "../../.."
)

// platform is an operating system and an architecture, as the registries name them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// platforms returns what every release is built for, or what a snapshot was requested for.
func platforms() []platform {
	if targets := os.Getenv(targetsVariable); targets != "" {
		var asked []platform

		for target := range strings.SplitSeq(targets, ",") {
			system, architecture, _ := strings.Cut(target, "_")
			asked = append(asked, platform{system, architecture})
		}

		return asked
	}

	return []platform{
		{"darwin", "amd64"},
		{"darwin", "arm64"},
		{"freebsd", "386"},
		{"freebsd", "amd64"},
		{"freebsd", "arm"},
		{"freebsd", "arm64"},
		{"linux", "386"},
		{"linux", "amd64"},
		{"linux", "arm"},
		{"linux", "arm64"},
		{"windows", "386"},
		{"windows", "amd64"},
		{"windows", "arm64"},
	}
}

// dist is a directory with what a release publishes.
type dist struct {
	dir     string
	version string
	commit  string
}

// openDist returns the release that make has just built from the checked out commit.
func openDist(t *testing.T) dist {
	t.Helper()

	dir := os.Getenv(distVariable)
	if dir == "" {
		t.Skipf("%s is not set: make snapshot builds a release and sets it", distVariable)
	}

	var metadata struct {
		Version string `json:"version"`
	}

	if err := json.Unmarshal(read(t, filepath.Join(dir, "metadata.json")), &metadata); err != nil {
		t.Fatal(err)
	}

	// Without a remote, goreleaser does not know the commit.
	commit := strings.TrimSpace(string(run(t, root, nil, "git", "rev-parse", "HEAD")))

	return dist{dir: dir, version: metadata.Version, commit: commit}
}

// name returns the name of a published file, from what follows the version.
func (d dist) name(rest string) string { return projectName + "_" + d.version + "_" + rest }

func (d dist) path(rest string) string { return filepath.Join(d.dir, d.name(rest)) }

func (d dist) archive(p platform) string { return d.path(p.String() + ".zip") }

// binaryName returns the name of the file that the zip for a platform has to have.
func (d dist) binaryName(p platform) string {
	if p.os == "windows" {
		return projectName + "_v" + d.version + ".exe"
	}

	return projectName + "_v" + d.version
}

// binary returns the content of the only file of a zip.
func (d dist) binary(t *testing.T, p platform) []byte {
	t.Helper()

	archive, err := zip.OpenReader(d.archive(p))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()

	file, err := archive.Open(d.binaryName(p))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	content, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}

	return content
}

// unpack returns the path of the binary for the machine that runs the test.
func (d dist) unpack(t *testing.T) string {
	t.Helper()

	here := platform{runtime.GOOS, runtime.GOARCH}
	path := filepath.Join(t.TempDir(), d.binaryName(here))

	if err := os.WriteFile(path, d.binary(t, here), 0o700); err != nil {
		t.Fatal(err)
	}

	return path
}

// TestReleaseHasAZipForEveryPlatformAndNoOther also wants each zip to have only the binary, under the name that
// Terraform looks for.
func TestReleaseHasAZipForEveryPlatformAndNoOther(t *testing.T) {
	d := openDist(t)

	found, err := filepath.Glob(filepath.Join(d.dir, "*.zip"))
	if err != nil {
		t.Fatal(err)
	}

	var wanted []string
	for _, p := range platforms() {
		wanted = append(wanted, d.archive(p))
	}

	slices.Sort(wanted)

	if !slices.Equal(found, wanted) {
		t.Fatalf("zips:\n%s\nwanted:\n%s", strings.Join(found, "\n"), strings.Join(wanted, "\n"))
	}

	for _, p := range platforms() {
		d.requireBinaryAlone(t, p)
	}
}

// requireBinaryAlone fails the test unless the zip has only the binary. It logs the size, which people who mirror
// releases ask for.
func (d dist) requireBinaryAlone(t *testing.T, p platform) {
	t.Helper()

	archive, err := zip.OpenReader(d.archive(p))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()

	if len(archive.File) != 1 {
		t.Errorf("%s holds %d files, wanted the binary alone", p, len(archive.File))
	}

	for _, file := range archive.File {
		if file.Name != d.binaryName(p) {
			t.Errorf("%s holds %q, wanted %q", p, file.Name, d.binaryName(p))
		}

		if mode := file.Mode(); mode != fs.FileMode(0o755) {
			t.Errorf("%s: mode %s, wanted -rwxr-xr-x", p, mode)
		}
	}

	info, err := os.Stat(d.archive(p))
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("%-14s %5.1f MiB", p, float64(info.Size())/(1<<20))
}

// TestReleaseHasTheVersionOfTheChangelog wants a release to have the version that the changelog describes.
func TestReleaseHasTheVersionOfTheChangelog(t *testing.T) {
	d := openDist(t)

	heading := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) \((.+)\)$`).FindSubmatch(read(t, filepath.Join(root, "CHANGELOG.md")))
	if heading == nil {
		t.Fatal("CHANGELOG.md has no heading such as ## 1.2.3 (Unreleased)")
	}

	described, snapshot := string(heading[1]), strings.HasSuffix(d.version, "-dev")

	if strings.TrimSuffix(d.version, "-dev") != described {
		t.Errorf("the release is %s, the changelog describes %s", d.version, described)
	}

	if !snapshot && string(heading[2]) == "Unreleased" {
		t.Errorf("the release is %s, and the changelog calls it unreleased", d.version)
	}
}

// TestReleaseManifestIsTheOneOfTheRepository compares the published manifest with the file that main_test.go compares
// with the protocol.
func TestReleaseManifestIsTheOneOfTheRepository(t *testing.T) {
	d := openDist(t)

	if !bytes.Equal(read(t, d.path("manifest.json")), read(t, filepath.Join(root, "terraform-registry-manifest.json"))) {
		t.Error("the published manifest is not terraform-registry-manifest.json")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return content
}
