// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeModule returns the directory of a module with one program.
func fakeModule(t *testing.T, program string) string {
	t.Helper()

	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.test/fake\n\ngo 1.24\n")
	writeFile(t, filepath.Join(dir, "main.go"), program)

	return dir
}

func TestBuildGivesARunnableBinary(t *testing.T) {
	// The environment of the user must not reach the compiler.
	t.Setenv("GOFLAGS", "-mod=nonsense")
	t.Setenv("GOOS", "plan9")

	output := filepath.Join(t.TempDir(), executable("fake"))
	dir := fakeModule(t, "package main\n\nfunc main() { print(\"hello\") }\n")

	if err := (build{dir: dir, output: output, packages: []string{"."}, what: "a fake"}).run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}

	said, err := exec.CommandContext(t.Context(), output).CombinedOutput()
	if err != nil || string(said) != "hello" {
		t.Errorf("the binary says %q (%v)", said, err)
	}
}

func TestFailedBuildShowsWhatTheCompilerSaid(t *testing.T) {
	dir := fakeModule(t, "package main\n\nfunc main() { undefinedThing() }\n")
	output := filepath.Join(t.TempDir(), "fake")

	err := build{dir: dir, output: output, packages: []string{"."}, what: "a fake"}.run(t.Context(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "undefinedThing") {
		t.Errorf("error %v, want the compiler's message", err)
	}

	if _, err := os.Stat(output); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a binary was left behind (%v)", err)
	}
}

func TestCancelledBuildSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	dir := fakeModule(t, "package main\n\nfunc main() {}\n")

	err := build{dir: dir, output: filepath.Join(t.TempDir(), "fake"), packages: []string{"."}, what: "a fake"}.run(ctx, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestProgressTellsPackagesFromComplaints(t *testing.T) {
	log := &buildLog{started: time.Now()}
	log.read(strings.NewReader("internal/abi\ngithub.com/a/b/v2\n# example.test/fake\n./main.go:3:15: undefined: x\nnet/http\n"))

	status := log.status("things")
	if !strings.Contains(status, "3 packages") || !strings.Contains(status, "now net/http") {
		t.Errorf("the status is %q", status)
	}

	if want := "# example.test/fake\n./main.go:3:15: undefined: x"; log.tail() != want {
		t.Errorf("the tail is %q, want %q", log.tail(), want)
	}
}

func TestModuleKeyFollowsTheModule(t *testing.T) {
	dir := fakeModule(t, "package main\n")
	writeFile(t, filepath.Join(dir, "go.sum"), "")

	before, err := moduleKey(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}

	same, err := moduleKey(t.Context(), dir)
	if err != nil || same != before {
		t.Errorf("the key of an unchanged module is %q (%v), was %q", same, err, before)
	}

	writeFile(t, filepath.Join(dir, "go.sum"), "example.test/other v1.0.0 h1:x=\n")

	after, err := moduleKey(t.Context(), dir)
	if err != nil || after == before {
		t.Errorf("the key of a changed module is %q (%v), was %q", after, err, before)
	}

	stub := filepath.Join(dir, "stub", "other")
	if err := os.MkdirAll(stub, 0o755); err != nil {
		t.Fatal(err)
	}

	writeFile(t, filepath.Join(stub, "other.go"), "package other\n")

	stubbed, err := moduleKey(t.Context(), dir)
	if err != nil || stubbed == after {
		t.Errorf("the key of a module with another stub is %q (%v), was %q", stubbed, err, after)
	}
}
