// SPDX-License-Identifier: MPL-2.0

package project

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// demoTimeout bounds the whole demo, which takes a minute or two.
	demoTimeout = 10 * time.Minute
	// demoLines is how many lines of output it may have, so that a person can read all of them.
	demoLines = 60
)

// demoPlatforms returns the platforms of the release that have an archive of the demo.
func demoPlatforms() []platform {
	return slices.DeleteFunc(platforms(), func(p platform) bool {
		return p.os != "linux" && p.os != "darwin" || p.arch != "amd64" && p.arch != "arm64"
	})
}

// demoName returns the name of the archive, without its extension, and of the only directory in it.
func (d dist) demoName(p platform) string { return "talosupgrade-demo_" + d.version + "_" + p.String() }

func (d dist) demo(p platform) string { return filepath.Join(d.dir, d.demoName(p)+".tar.gz") }

// eachDemoFile calls visit for each file in an archive of the demo.
func (d dist) eachDemoFile(t *testing.T, p platform, visit func(header *tar.Header, content io.Reader)) {
	t.Helper()

	file, err := os.Open(d.demo(p))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}

	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}

		if err != nil {
			t.Fatal(err)
		}

		visit(header, archive)
	}
}

// TestReleaseHasADemoForEachCommonPlatform wants each archive to have programs for its platform, the same provider as
// the zip for it, the time of the commit, and nothing about its builder.
func TestReleaseHasADemoForEachCommonPlatform(t *testing.T) {
	d := openDist(t)

	found, err := filepath.Glob(filepath.Join(d.dir, "*.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}

	var wanted []string
	for _, p := range demoPlatforms() {
		wanted = append(wanted, d.demo(p))
	}

	slices.Sort(wanted)

	if !slices.Equal(found, wanted) {
		t.Fatalf("demos:\n%s\nwanted:\n%s", strings.Join(found, "\n"), strings.Join(wanted, "\n"))
	}

	for _, p := range demoPlatforms() {
		t.Run(p.String(), func(t *testing.T) { d.requireDemo(t, p) })
	}
}

func (d dist) requireDemo(t *testing.T, p platform) {
	t.Helper()

	commit, err := strconv.ParseInt(strings.TrimSpace(string(run(t, root, nil, "git", "log", "-1", "--format=%ct"))), 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	secrets := builderPaths(t)
	modes := make(map[string]int64)

	d.eachDemoFile(t, p, func(header *tar.Header, file io.Reader) {
		name, below := strings.CutPrefix(header.Name, d.demoName(p)+"/")
		if !below || !filepath.IsLocal(name) {
			t.Errorf("%q is not below %s", header.Name, d.demoName(p))
		}

		if header.Uid != 0 || header.Gid != 0 || header.Uname+header.Gname != "" {
			t.Errorf("%s belongs to %d:%d %s:%s", name, header.Uid, header.Gid, header.Uname, header.Gname)
		}

		if header.ModTime.Unix() != commit {
			t.Errorf("%s is of %s, the commit of %s", name, header.ModTime, time.Unix(commit, 0))
		}

		content, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}

		modes[name] = header.Mode
		if header.Mode != 0o755 {
			return
		}

		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		for _, setting := range info.Settings {
			if wanted, told := map[string]string{"GOOS": p.os, "GOARCH": p.arch, "CGO_ENABLED": "0"}[setting.Key]; told && setting.Value != wanted {
				t.Errorf("%s: %s is %q, wanted %q", name, setting.Key, setting.Value, wanted)
			}
		}

		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s contains the path %s", name, secret)
			}
		}

		if path.Dir(name) == "provider" && !bytes.Equal(content, d.binary(t, p)) {
			t.Errorf("the provider is another one than in %s", filepath.Base(d.archive(p)))
		}
	})

	if diff := cmp.Diff(map[string]int64{
		"README.md": 0o644, "LICENSE": 0o644, "demo": 0o755, "talossim": 0o755, "examples/demo/main.tf": 0o644,
		"provider/" + projectName: 0o755,
	}, modes); diff != "" {
		t.Errorf("files and modes (-want +got):\n%s", diff)
	}

	info, err := os.Stat(d.demo(p))
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("%-14s %5.1f MiB", p, float64(info.Size())/(1<<20))
}

// TestReleaseDemoPassesWithNothingButTheCommandLine unpacks the archive for this machine and runs each of its stories
// from another directory: without Go, without the source tree, and without a network.
func TestReleaseDemoPassesWithNothingButTheCommandLine(t *testing.T) {
	d := openDist(t)

	here := platform{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(demoPlatforms(), here) {
		t.Skipf("there is no archive of the demo for %s", here)
	}

	cli, err := toolchain.Terraform(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	unpacked, bin := t.TempDir(), t.TempDir()
	d.unpackDemo(t, here, unpacked)

	if err := os.Symlink(cli.Path, filepath.Join(bin, cli.Name)); err != nil {
		t.Fatal(err)
	}

	for story, pages := range map[string][]string{"roll": {"upgrade.html"}, "fallback": {"fallback.html", "upgrade.html"}} {
		t.Run(story, func(t *testing.T) {
			playDemo(t, filepath.Join(unpacked, d.demoName(here), "demo"), bin, story, pages)
		})
	}
}

// playDemo runs a story, which may leave only the pages.
func playDemo(t *testing.T, program, bin, story string, pages []string) {
	t.Helper()

	elsewhere := t.TempDir()

	ctx, cancel := context.WithTimeout(t.Context(), demoTimeout)
	defer cancel()

	command := exec.CommandContext(ctx, program, "-story", story)
	command.Dir = elsewhere
	command.Env = []string{
		"PATH=" + bin, "HOME=" + elsewhere, "TMPDIR=" + os.TempDir(),
		"HTTP_PROXY=http://127.0.0.1:9", "HTTPS_PROXY=http://127.0.0.1:9",
	}
	// On an interrupt it stops what it started.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute

	began := time.Now()

	output, err := command.CombinedOutput()
	if err != nil || !bytes.Contains(output, []byte("\nThe demo passed.\n")) {
		t.Fatalf("%v\n%s", err, output)
	}

	t.Logf("passed in %s", time.Since(began).Round(time.Second))

	if lines := bytes.Count(output, []byte("\n")); lines > demoLines || bytes.ContainsAny(output, "\r\x1b") {
		t.Errorf("%d lines, want %d at the most, and no control characters:\n%s", lines, demoLines, output)
	}

	var left []string

	entries, err := os.ReadDir(elsewhere)
	if err != nil {
		t.Fatal(err)
	}

	for _, entry := range entries {
		left = append(left, entry.Name())

		if page := read(t, filepath.Join(elsewhere, entry.Name())); !bytes.Contains(page, []byte("worker-0")) {
			t.Errorf("%s names no worker-0:\n%s", entry.Name(), page)
		}
	}

	if diff := cmp.Diff(pages, left); diff != "" {
		t.Errorf("what is left in the directory that it ran in (-want +got):\n%s", diff)
	}
}

func (d dist) unpackDemo(t *testing.T, p platform, dir string) {
	t.Helper()

	d.eachDemoFile(t, p, func(header *tar.Header, content io.Reader) {
		name := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}

		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(header.Mode)&os.ModePerm)
		if err != nil {
			t.Fatal(err)
		}

		_, err = io.Copy(file, content)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReleaseWorkflowPublishesTheDemo wants the build job to upload the demo: what it does not upload is neither
// attested nor published.
func TestReleaseWorkflowPublishesTheDemo(t *testing.T) {
	var workflow struct {
		Jobs struct {
			Build struct {
				Steps []struct {
					With struct {
						Path string `yaml:"path"`
					} `yaml:"with"`
				} `yaml:"steps"`
			} `yaml:"build"`
		} `yaml:"jobs"`
	}

	if err := yaml.Unmarshal(read(t, filepath.Join(workflows, "release.yml")), &workflow); err != nil {
		t.Fatal(err)
	}

	name := path.Join("dist", filepath.Base(dist{version: "1.2.3"}.demo(platform{"linux", "arm64"})))

	for _, step := range workflow.Jobs.Build.Steps {
		for pattern := range strings.FieldsSeq(step.With.Path) {
			if matched, err := path.Match(pattern, name); err == nil && matched {
				return
			}
		}
	}

	t.Errorf("release.yml uploads no %s", name)
}
