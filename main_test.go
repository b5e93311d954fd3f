// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serveVariable makes the test binary behave like the provider.
const serveVariable = "TALOSUPGRADE_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		os.Args = os.Args[:1]

		main()

		return
	}

	os.Exit(m.Run())
}

// TestManifestNamesTheProtocolThatIsServed compares what the registry tells
// Terraform with the handshake that Terraform gets.
func TestManifestNamesTheProtocolThatIsServed(t *testing.T) {
	content, err := os.ReadFile("terraform-registry-manifest.json")
	if err != nil {
		t.Fatal(err)
	}

	var manifest struct {
		Version  int `json:"version"`
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(content, &manifest); err != nil {
		t.Fatal(err)
	}

	if manifest.Version != 1 {
		t.Errorf("manifest version %d, the registries read 1", manifest.Version)
	}

	if diff := cmp.Diff(manifest.Metadata.ProtocolVersions, []string{servedProtocol(t) + ".0"}); diff != "" {
		t.Errorf("protocol versions (-manifest +served):\n%s", diff)
	}
}

// servedProtocol starts the provider as Terraform does and reads the protocol's
// major version from its first line: "1|6|unix|...".
func servedProtocol(t *testing.T) string {
	t.Helper()

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()

	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), serveVariable+"=1",
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
	// It was killed; how it ended says nothing.
	_ = command.Wait()

	fields := strings.Split(line, "|")
	if err != nil || len(fields) < 2 {
		t.Fatalf("the provider introduced itself as %q: %v", line, err)
	}

	return fields[1]
}
