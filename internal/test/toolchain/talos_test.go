// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refusal is the code with which machined gives up on a process whose OOM score it may not lower.
const refusal = `		if err := sys.AdjustOOMScore(pid, p.opts.OOMScoreAdj); err != nil {
			pathError, ok := err.(*fs.PathError)
			if !ok || pathError.Err != syscall.ENOENT {
				return fmt.Errorf("failed to change OOMScoreAdj of process %s to %d: %w", p, p.opts.OOMScoreAdj, err)
			}
		}
`

func TestTolerantTalosDiffersInOneCondition(t *testing.T) {
	source := t.TempDir()
	path := filepath.Join(source, filepath.FromSlash(processRunner))

	for name, content := range map[string]string{path: refusal, filepath.Join(source, "other.go"): "package other\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}

		// The files are read-only, as in the module cache.
		if err := os.WriteFile(name, []byte(content), 0o444); err != nil {
			t.Fatal(err)
		}
	}

	module := fakeModule(t, "package main\n")
	if err := os.WriteFile(filepath.Join(module, "go.sum"), []byte("sums\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	changed := filepath.Join(t.TempDir(), "source")

	modfile, err := changeTalos(module, source, changed)
	if err != nil {
		t.Fatal(err)
	}

	content := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		return string(text)
	}

	want := strings.Replace(refusal, "!= syscall.ENOENT {", "!= syscall.ENOENT && pathError.Err != syscall.EACCES {", 1)
	if got := content(filepath.Join(changed, filepath.FromSlash(processRunner))); got != want {
		t.Errorf("the changed source is\n%s\nwant\n%s", got, want)
	}

	if got := content(filepath.Join(changed, "other.go")); got != "package other\n" {
		t.Errorf("another file became %q", got)
	}

	if got := content(modfile); !strings.Contains(got, "replace github.com/siderolabs/talos => \""+changed+"\"") {
		t.Errorf("the module does not build the copy:\n%s", got)
	}

	if got := content(strings.TrimSuffix(modfile, ".mod") + ".sum"); got != "sums\n" {
		t.Errorf("the sums are %q", got)
	}
}

func TestTalosThatLowersTheScoreInAnotherWayIsRefused(t *testing.T) {
	for name, content := range map[string]string{"not at all": "package process\n", "twice": refusal + refusal} {
		t.Run(name, func(t *testing.T) {
			if _, err := tolerate([]byte(content)); err == nil || !strings.Contains(err.Error(), "internal/test/toolchain/talos.go") {
				t.Errorf("got %v, want an error that names the place", err)
			}
		})
	}
}
