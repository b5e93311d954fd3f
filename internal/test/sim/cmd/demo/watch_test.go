// SPDX-License-Identifier: MPL-2.0

//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWatchCommandIsForAnyPath runs the command with a kubectl that prints its arguments.
func TestWatchCommandIsForAnyPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", dir)

	said, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", watchCommand("/it's here/kubeconfig")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}

	want := []string{"--kubeconfig", "/it's here/kubeconfig", "get", "nodes", "--watch"}
	if got := strings.TrimSpace(string(said)); got != strings.Join(want, "\n") {
		t.Errorf("kubectl was called with\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestNoWatchCommandWithoutKubectl(t *testing.T) {
	t.Setenv("PATH", t.TempDir())

	if line := watchCommand("/demo/kubeconfig"); line != "" {
		t.Errorf("the line is %s", line)
	}
}
