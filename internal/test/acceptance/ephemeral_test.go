// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestAccEphemeralCredentials upgrades a cluster with ephemeral credentials, which must not be in the plan file or in
// the state.
func TestAccEphemeralCredentials(t *testing.T) {
	full(t)

	oldest := version.Minor{Major: 1, Minor: 10}
	if found := command(t); found.Name == toolchain.NameOpenTofu {
		oldest.Minor = 11
	}

	if found := command(t); found.Version.Minor().Compare(oldest) < 0 {
		t.Skipf("ephemeral values are there from %s %s on; the command line is %s", found.Name, oldest, found.Version)
	}

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})

	talosconfig, err := os.ReadFile(s.Talosconfig())
	if err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t, "TF_VAR_talosconfig="+string(talosconfig))
	w.raw("variable \"talosconfig\" {\n  type      = string\n  ephemeral = true\n}\n\n" +
		"provider \"talosupgrade\" {\n  talosconfig = var.talosconfig\n}\n\nresource \"talosupgrade_cluster\" \"this\" {\n  talos_version = \"1.13.4\"\n}\n")

	file := filepath.Join(w.dir, "roll.tfplan")
	w.run("plan", "-json", "-input=false", "-out="+file).mustSucceed(0).mustWarn("Rolling upgrade of 2 of 2 nodes")
	w.apply(file).mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
	w.mustPlan()

	_, key, _ := strings.Cut(string(talosconfig), "key: ")
	key, _, _ = strings.Cut(key, "\n")

	if len(key) < 20 {
		t.Fatalf("the talosconfig has the key %q", key)
	}

	for _, output := range []string{w.run("show", "-json", file).output, w.run("show", "-json").output, w.run("state", "pull").output} {
		if strings.Contains(output, key) {
			t.Error("the key was stored")
		}
	}
}
