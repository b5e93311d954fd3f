// SPDX-License-Identifier: MPL-2.0

//go:build unix

package workspace_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// shell returns a workspace whose command line is a shell.
func shell(t *testing.T) *workspace.Workspace {
	t.Helper()

	space, err := workspace.New(t.TempDir(), toolchain.CLI{Path: "/bin/sh", Name: "sh"}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	return space
}

func TestWorkspace_EnvironmentReachesNoOtherClusterOrProvider(t *testing.T) {
	got := workspace.Environment([]string{
		"PATH=/bin", "TALOSCONFIG=a", "KUBECONFIG=b", "TF_CLI_CONFIG_FILE=c", "TF_VAR_talos_version=1", "TF_CLI_ARGS=-lock=false",
		"TF_LOG=debug", "TF_LOG_PATH=log", "HOME=/home/me",
	})

	if diff := cmp.Diff([]string{"PATH=/bin", "TF_LOG=debug", "TF_LOG_PATH=log", "HOME=/home/me"}, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestWorkspace_CommandUsesTheProvidersDirectory(t *testing.T) {
	t.Setenv("TF_CLI_CONFIG_FILE", "/somebody/elses.tfrc")

	space := shell(t)
	command := space.Command(t.Context(), "-c", `cat "$TF_CLI_CONFIG_FILE" > seen`)

	if err := space.Run(command); err != nil {
		t.Fatal(err)
	}

	seen, err := os.ReadFile(filepath.Join(space.Dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(seen), "dev_overrides") {
		t.Errorf("the command read this configuration:\n%s", seen)
	}
}

func TestWorkspace_CancelledCommandLeavesNoProcessBehind(t *testing.T) {
	space := shell(t)
	ctx, cancel := context.WithCancel(t.Context())

	defer cancel()

	// The interrupt ends the shell; the process that it started ignores it.
	command := space.Command(ctx, "-c", `sh -c 'trap "" INT; echo $$ > pid.new; mv pid.new pid; sleep 600' & wait`)
	done := make(chan error, 1)

	go func() { done <- space.Run(command) }()

	left := readPID(t, filepath.Join(space.Dir, "pid"))

	cancel()

	if err := <-done; err == nil {
		t.Error("a cancelled command ended without an error")
	}

	eventually(t, "the process to be gone", func() bool { return errors.Is(syscall.Kill(left, 0), syscall.ESRCH) })
}

func readPID(t *testing.T, path string) int {
	t.Helper()

	var text []byte

	eventually(t, "the command to start", func() bool {
		var err error

		text, err = os.ReadFile(path)

		return err == nil
	})

	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}

	return pid
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()

	deadline := time.After(10 * time.Second)
	ticker := time.NewTicker(10 * time.Millisecond)

	defer ticker.Stop()

	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-ticker.C:
		}
	}
}

func TestWorkspace_CopyTakesTheConfigurationOnly(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"main.tf", "README.md"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	space := shell(t)
	if err := space.CopyConfiguration(from); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(space.Dir, "main.tf")); err != nil {
		t.Error(err)
	}

	if _, err := os.Stat(filepath.Join(space.Dir, "README.md")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("README.md was copied: %v", err)
	}
}

func TestWorkspace_CopyRefusesADirectoryWithoutConfiguration(t *testing.T) {
	if err := shell(t).CopyConfiguration(t.TempDir()); err == nil {
		t.Error("an empty directory was accepted")
	}
}
