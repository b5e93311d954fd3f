// SPDX-License-Identifier: MPL-2.0

package project

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestReleaseIsTheSameWhenBuiltAgain builds the binary for this machine from a clone of the commit, in another
// directory and without a build cache. Anyone who doubts a release can do the same.
func TestReleaseIsTheSameWhenBuiltAgain(t *testing.T) {
	d := openDist(t)

	scratch := t.TempDir()
	published := d.binary(t, platform{runtime.GOOS, runtime.GOARCH})
	if bytes.Contains(published, []byte("vcs.modified=true")) {
		t.Skip("the release was built from a tree with changes: there is no commit to build it from again")
	}

	clone, rebuilt := filepath.Join(scratch, "clone"), filepath.Join(scratch, "provider")

	run(t, root, nil, "git", "clone", "--quiet", "--no-checkout", ".", clone)
	run(t, clone, nil, "git", "checkout", "--quiet", d.commit)
	run(t, clone, []string{"GOCACHE=" + filepath.Join(scratch, "cache")}, "go", append(buildArguments(t, d.version), "-o", rebuilt, ".")...)

	if again := read(t, rebuilt); !bytes.Equal(published, again) {
		t.Errorf("the published binary has %d bytes and another content than the one that was built again, which has %d", len(published), len(again))
	}
}

// buildArguments returns the arguments of go build in .goreleaser.yml.
func buildArguments(t *testing.T, version string) []string {
	t.Helper()

	var config struct {
		Builds []struct {
			Flags   []string `yaml:"flags"`
			Ldflags []string `yaml:"ldflags"`
		} `yaml:"builds"`
	}

	if err := yaml.Unmarshal(read(t, filepath.Join(root, ".goreleaser.yml")), &config); err != nil {
		t.Fatal(err)
	}

	ldflags := strings.ReplaceAll(strings.Join(config.Builds[0].Ldflags, " "), "{{ .Version }}", version)

	return append(append([]string{"build"}, config.Builds[0].Flags...), "-ldflags="+ldflags)
}

// run runs a command. If the command fails, it fails the test with the output.
func run(t *testing.T, dir string, env []string, name string, args ...string) []byte {
	t.Helper()

	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	command.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)

	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output)
	}

	return output
}
