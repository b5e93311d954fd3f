// SPDX-License-Identifier: MPL-2.0

package project

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mainModules returns modules that have to be in the list of a binary's contents.
func mainModules() []string {
	return []string{
		"github.com/vitistack/terraform-provider-talosupgrade",
		"github.com/hashicorp/terraform-plugin-framework",
		"github.com/siderolabs/talos/pkg/machinery",
		"k8s.io/client-go",
		"google.golang.org/grpc",
		"stdlib",
	}
}

// sums returns the sum of each file by its name, from the file of checksums.
func (d dist) sums(t *testing.T) map[string]string {
	t.Helper()

	sums := make(map[string]string)

	for line := range strings.Lines(string(read(t, d.path("SHA256SUMS")))) {
		sum, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !found || len(sum) != 2*sha256.Size {
			t.Fatalf("no line of a file of checksums: %q", line)
		}

		sums[name] = sum
	}

	return sums
}

// TestReleaseSumsAreThoseOfTheZipsAndTheManifest compares each file with its sum. A zip without a sum is not signed,
// and a registry rejects a release with sums of files that it does not know.
func TestReleaseSumsAreThoseOfTheZipsAndTheManifest(t *testing.T) {
	d := openDist(t)
	sums := d.sums(t)

	wanted := []string{d.name("manifest.json")}
	for _, p := range platforms() {
		wanted = append(wanted, d.name(p.String()+".zip"))
	}

	for _, name := range wanted {
		digest := sha256.Sum256(read(t, filepath.Join(d.dir, name)))
		if listed := sums[name]; listed != hex.EncodeToString(digest[:]) {
			t.Errorf("%s: listed as %q, is %x", name, listed, digest)
		}

		delete(sums, name)
	}

	for name := range sums {
		t.Errorf("%s is listed, and neither a zip nor the manifest", name)
	}
}

// TestReleaseSignatureIsGPGsAndOfTheSums verifies the signature as a person would, with only the public key.
func TestReleaseSignatureIsGPGsAndOfTheSums(t *testing.T) {
	d := openDist(t)

	home, err := os.MkdirTemp("", "gpg") //nolint:usetesting // the directory of a test has too long a path for gpg's socket
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_, _ = gpg(context.WithoutCancel(t.Context()), "gpgconf", home, "--kill", "all")
		_ = os.RemoveAll(home)
	})

	if output, err := gpg(t.Context(), "gpg", home, "--batch", "--import", filepath.Join(d.dir, "signing-key.asc")); err != nil {
		t.Fatalf("%v: %s", err, output)
	}

	requireStrongKey(t, home)

	signature := d.path("SHA256SUMS.sig")
	if bytes.HasPrefix(read(t, signature), []byte("-----BEGIN")) {
		t.Error("the signature is armored, the registries read a binary one")
	}

	if output, err := gpg(t.Context(), "gpg", home, "--batch", "--verify", signature, d.path("SHA256SUMS")); err != nil {
		t.Errorf("%v: %s", err, output)
	}

	// The signature must not verify anything else.
	forged := filepath.Join(t.TempDir(), "SHA256SUMS")
	if err := os.WriteFile(forged, append(read(t, d.path("SHA256SUMS")), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}

	if output, err := gpg(t.Context(), "gpg", home, "--batch", "--verify", signature, forged); err == nil {
		t.Errorf("a changed file verifies: %s", output)
	}
}

// requireStrongKey wants the only key to be RSA, which is algorithm 1, with 4096 bits.
func requireStrongKey(t *testing.T, home string) {
	t.Helper()

	output, err := gpg(t.Context(), "gpg", home, "--batch", "--with-colons", "--list-keys")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}

	for line := range strings.Lines(string(output)) {
		fields := strings.Split(line, ":")
		if fields[0] != "pub" {
			continue
		}

		if bits, err := strconv.Atoi(fields[2]); err != nil || bits < 4096 || fields[3] != "1" {
			t.Errorf("the key has %s bits and algorithm %s, the registries want RSA of 4096", fields[2], fields[3])
		}

		return
	}

	t.Errorf("no key in %s", output)
}

func gpg(ctx context.Context, program, home string, args ...string) ([]byte, error) {
	return exec.CommandContext(ctx, program, append([]string{"--homedir", home}, args...)...).CombinedOutput()
}

// TestReleaseContentsAreListed reads the SPDX document beside each zip.
func TestReleaseContentsAreListed(t *testing.T) {
	d := openDist(t)

	for _, p := range platforms() {
		var document struct {
			Version  string `json:"spdxVersion"`
			Packages []struct {
				Name    string `json:"name"`
				Version string `json:"versionInfo"`
			} `json:"packages"`
		}

		if err := json.Unmarshal(read(t, d.archive(p)+".spdx.json"), &document); err != nil {
			t.Fatal(err)
		}

		if !strings.HasPrefix(document.Version, "SPDX-2.") {
			t.Errorf("%s: %q is no version of SPDX that is expected here", p, document.Version)
		}

		var names []string

		for _, listed := range document.Packages {
			names = append(names, listed.Name)

			if slices.Contains(mainModules(), listed.Name) && listed.Version == "" {
				t.Errorf("%s: %s has no version", p, listed.Name)
			}
		}

		for _, module := range mainModules() {
			if !slices.Contains(names, module) {
				t.Errorf("%s: %s is not among the %d packages that are listed", p, module, len(names))
			}
		}
	}
}
