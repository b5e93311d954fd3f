// SPDX-License-Identifier: MPL-2.0

package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The variables that make e2e sets. TALOSCONFIG itself is not read: a developer's own settings must not select the
// cluster.
const (
	variableTalosconfig = "TALOSUPGRADE_E2E_TALOSCONFIG"
	variableContext     = "TALOSUPGRADE_E2E_CONTEXT"
	variableTalos       = "TALOSUPGRADE_E2E_TALOS_TO"
	variableKubernetes  = "TALOSUPGRADE_E2E_KUBERNETES_TO"
	variableOut         = "TALOSUPGRADE_E2E_OUT"
)

// settings are the parameters of a run.
type settings struct {
	// talosconfig is the path of the file. context is a context in it; empty for the current one.
	talosconfig, context string
	// talos and kubernetes are the target versions; zero if that half is not upgraded.
	talos, kubernetes version.Version
	// out is the directory for the output of the command line.
	out string
}

func (s settings) upgrades() bool { return !s.talos.IsZero() || !s.kubernetes.IsZero() }

// readSettings returns the parameters of the run. If no run was requested, it skips the test.
func readSettings(t *testing.T) settings {
	t.Helper()

	if os.Getenv(variableTalosconfig) == "" {
		t.Skip("no cluster was named: run make e2e TALOSCONFIG=file")
	}

	return settings{
		talosconfig: fromRoot(t, os.Getenv(variableTalosconfig)), context: os.Getenv(variableContext),
		talos: readVersion(t, "TALOS_TO", variableTalos), kubernetes: readVersion(t, "KUBERNETES_TO", variableKubernetes),
		out: fromRoot(t, cmp.Or(os.Getenv(variableOut), filepath.Join(".cache", "e2e"))),
	}
}

// fromRoot resolves a path as make does, which runs in the root of the module.
func fromRoot(t *testing.T, path string) string {
	t.Helper()

	if filepath.IsAbs(path) {
		return path
	}

	root, err := toolchain.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}

	return filepath.Join(root, path)
}

func readVersion(t *testing.T, name, variable string) version.Version {
	t.Helper()

	text := os.Getenv(variable)
	if text == "" {
		return version.Version{}
	}

	read, err := version.Parse(text)
	if err != nil {
		t.Fatalf("%s=%s: %v", name, text, err)
	}

	return read
}
