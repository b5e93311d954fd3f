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

// What make e2e says. TALOSCONFIG itself is left alone: a developer's own settings
// must not choose the cluster.
const (
	variableTalosconfig = "TALOSUPGRADE_E2E_TALOSCONFIG"
	variableContext     = "TALOSUPGRADE_E2E_CONTEXT"
	variableTalos       = "TALOSUPGRADE_E2E_TALOS_TO"
	variableKubernetes  = "TALOSUPGRADE_E2E_KUBERNETES_TO"
	variableOut         = "TALOSUPGRADE_E2E_OUT"
)

// settings are what a run is asked for.
type settings struct {
	// talosconfig is the path of the file, context empty for its current one.
	talosconfig, context string
	// talos and kubernetes are the versions to go to; zero for neither.
	talos, kubernetes version.Version
	// out receives what the command line said.
	out string
}

func (s settings) upgrades() bool { return !s.talos.IsZero() || !s.kubernetes.IsZero() }

// readSettings skips the test where nobody asked for a run.
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

// fromRoot reads a path as make does, which runs in the root of the module.
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
