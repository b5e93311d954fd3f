// SPDX-License-Identifier: MPL-2.0

//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWatchCommandEndsWithTheDemo runs the line with a kubectl that shows how it
// was called and then takes the kubeconfig away, as the end of the demo does.
func TestWatchCommandEndsWithTheDemo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	script := "#!/bin/sh\nprintf '%s\\n' \"$@\"\nrm \"$2\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	said, err := exec.CommandContext(ctx, "/bin/sh", "-c", watchCommand(kubeconfig, "false")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}

	want := []string{
		"--kubeconfig", kubeconfig, "-n", "kube-system", "get", "configmaps", "--field-selector", "metadata.name=talosupgrade", "-w",
		"-o", `jsonpath={.metadata.annotations.upgrade\.vitistack\.io/talos-message}{"\n"}`,
	}
	if got := strings.TrimSpace(string(said)); got != strings.Join(want, "\n") {
		t.Errorf("kubectl was called with\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestWatchCommandWithoutKubectl(t *testing.T) {
	t.Setenv("PATH", t.TempDir())

	if line := watchCommand("/demo/kubeconfig", "$(built)"); !strings.Contains(line, "do $(built) --kubeconfig '/demo/kubeconfig' ") {
		t.Errorf("the line is %s", line)
	}
}
