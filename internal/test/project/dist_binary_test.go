// SPDX-License-Identifier: MPL-2.0

package project

import (
	"bufio"
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReleaseBinariesAreStaticAndSayNothingOfWhereTheyWereBuilt checks what the Go linker left in each of them.
func TestReleaseBinariesAreStaticAndSayNothingOfWhereTheyWereBuilt(t *testing.T) {
	d := openDist(t)
	secrets := builderPaths(t)

	for _, p := range platforms() {
		t.Run(p.String(), func(t *testing.T) {
			content := d.binary(t, p)

			info, err := buildinfo.Read(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}

			settings := make(map[string]string)
			for _, setting := range info.Settings {
				settings[setting.Key] = setting.Value
			}

			wanted := map[string]string{
				"GOOS": p.os, "GOARCH": p.arch, "CGO_ENABLED": "0", "-trimpath": "true", "vcs.revision": d.commit,
			}
			for key, value := range wanted {
				if settings[key] != value {
					t.Errorf("%s is %q, wanted %q (go sees no commit in a git worktree: use a clone)", key, settings[key], value)
				}
			}

			for _, path := range secrets {
				if bytes.Contains(content, []byte(path)) {
					t.Errorf("it contains the path %s", path)
				}
			}

			if p.os == "linux" || p.os == "freebsd" {
				requireStatic(t, content)
			}
		})
	}
}

// builderPaths returns directories of the machine that builds, which -trimpath has to keep out.
func builderPaths(t *testing.T) []string {
	t.Helper()

	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}

	command := exec.CommandContext(t.Context(), "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE")

	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}

	return slices.DeleteFunc(append(strings.Fields(string(output)), top, build.Default.GOPATH),
		// Too short to be distinguishable.
		func(path string) bool { return len(path) < len("/usr/x") })
}

// requireStatic fails the test if a binary needs a dynamic loader or libraries, as one that is linked to a C library
// does.
func requireStatic(t *testing.T, content []byte) {
	t.Helper()

	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}

	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("it asks for a dynamic loader")
		}
	}

	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs %v: %v", libraries, err)
	}
}

// TestReleaseBinarySaysItsVersion runs the binary for this machine.
func TestReleaseBinarySaysItsVersion(t *testing.T) {
	d := openDist(t)

	output, err := exec.CommandContext(t.Context(), d.unpack(t), "-version").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}

	if said := strings.TrimSpace(string(output)); said != d.version {
		t.Errorf("it says %q, wanted %q", said, d.version)
	}
}

// TestReleaseManifestNamesTheProtocolThatTheBinaryServes compares the manifest, from which the registry informs
// Terraform, with the handshake that Terraform gets.
func TestReleaseManifestNamesTheProtocolThatTheBinaryServes(t *testing.T) {
	d := openDist(t)

	var manifest struct {
		Version  int `json:"version"`
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		} `json:"metadata"`
	}

	if err := json.Unmarshal(read(t, d.path("manifest.json")), &manifest); err != nil {
		t.Fatal(err)
	}

	if manifest.Version != 1 || !slices.Equal(manifest.Metadata.ProtocolVersions, []string{"6.0"}) {
		t.Errorf("manifest version %d with protocols %v, wanted 1 with 6.0", manifest.Version, manifest.Metadata.ProtocolVersions)
	}

	if served := servedProtocol(t, d.unpack(t)); !slices.Contains(manifest.Metadata.ProtocolVersions, served+".0") {
		t.Errorf("the binary serves protocol %s, the manifest names %v", served, manifest.Metadata.ProtocolVersions)
	}
}

// servedProtocol starts a provider as Terraform does and returns the major version of the protocol from its first
// line: "1|6|unix|...".
func servedProtocol(t *testing.T, binary string) string {
	t.Helper()

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()

	command := exec.CommandContext(ctx, binary)
	command.Env = append(os.Environ(),
		"TF_PLUGIN_MAGIC_COOKIE=d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2",
		"PLUGIN_PROTOCOL_VERSIONS=5,6")

	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(output).ReadString('\n')

	stop()
	// It was killed, so its error means nothing.
	_ = command.Wait()

	fields := strings.Split(line, "|")
	if err != nil || len(fields) < 2 {
		t.Fatalf("the provider introduced itself as %q: %v", line, err)
	}

	return fields[1]
}
