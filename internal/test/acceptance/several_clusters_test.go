// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// together returns one talosconfig with the contexts of several clusters.
func together(t *testing.T, clusters ...*simulated) string {
	t.Helper()

	merged := map[string]any{}

	for _, s := range clusters {
		content, err := os.ReadFile(s.Talosconfig())
		if err != nil {
			t.Fatal(err)
		}

		var parsed struct {
			Contexts map[string]any `yaml:"contexts"`
		}
		if err := yaml.Unmarshal(content, &parsed); err != nil {
			t.Fatal(err)
		}

		maps.Copy(merged, parsed.Contexts)
	}

	content, err := yaml.Marshal(map[string]any{"contexts": merged})
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}

	return file
}

// TestAccSeveralClusters upgrades the clusters of one talosconfig with one resource block. The plan has to show the
// roll of each, although the command line folds warnings with the same summary.
func TestAccSeveralClusters(t *testing.T) {
	full(t)

	north := start(t, sim.Options{ClusterName: "north", ControlPlanes: 1, Workers: 1, Talos: talosModern})
	south := start(t, sim.Options{ClusterName: "south", ControlPlanes: 1, Workers: 1, Talos: talosModern, Seed: 2})

	w := newWorkspace(t)
	w.raw(fmt.Sprintf(`
provider "talosupgrade" {
  talosconfig_path = %q
}

resource "talosupgrade_cluster" "this" {
  for_each      = toset(["north", "south"])
  context       = each.key
  talos_version = "1.13.4"
}
`, together(t, north, south)))

	shown := w.run("plan", "-no-color", "-input=false")
	if got := strings.Count(shown.output, "  step  node"); got != 2 {
		t.Errorf("%d tables in the plan, want 2:\n%s", got, shown.output)
	}

	w.apply().mustSucceed(0)
	north.wantUpgraded(talosTarget, once(1, 1))
	south.wantUpgraded(talosTarget, once(1, 1))
	w.plan().mustSucceed(0)
}

// needsOpenTofu skips a test of a feature that Terraform does not have.
func needsOpenTofu(t *testing.T, oldest version.Minor) {
	t.Helper()

	if found := command(t); found.Name != toolchain.NameOpenTofu || found.Version.Minor().Compare(oldest) < 0 {
		t.Skipf("this is an extra of OpenTofu %s and newer; the command line is %s %s", oldest, found.Name, found.Version)
	}
}

// TestAccProviderForEachCluster upgrades clusters that have nothing in common, each
// with credentials of its own, with one provider block and one resource block.
func TestAccProviderForEachCluster(t *testing.T) {
	full(t)
	needsOpenTofu(t, version.Minor{Major: 1, Minor: 9})

	north := start(t, sim.Options{ClusterName: "north", ControlPlanes: 1, Workers: 1, Talos: talosModern})
	south := start(t, sim.Options{ClusterName: "south", ControlPlanes: 1, Workers: 1, Talos: talosModern, Seed: 2})

	const configuration = `
variable "talosconfigs" {
  type = map(string)
}

variable "absent" {
  type    = set(string)
  default = []
}

provider "talosupgrade" {
  alias            = "of"
  for_each         = var.talosconfigs
  talosconfig_path = each.value
}

resource "talosupgrade_cluster" "this" {
  for_each      = setsubtract(keys(var.talosconfigs), var.absent)
  provider      = talosupgrade.of[each.key]
  talos_version = "1.13.4"
}
`

	w := newWorkspace(t, fmt.Sprintf("TF_VAR_talosconfigs={north=%q,south=%q}", north.Talosconfig(), south.Talosconfig()))
	w.raw(configuration)

	w.apply().mustSucceed(0)
	north.wantUpgraded(talosTarget, once(1, 1))
	south.wantUpgraded(talosTarget, once(1, 1))
	w.plan().mustSucceed(0)

	// One cluster is removed: its own credentials have to be available for its destroy.
	w.apply("-var", `absent=["south"]`).mustSucceed(0)
	south.wantUpgraded(talosTarget, once(1, 1))

	listed := w.run("state", "list").output
	if !strings.Contains(listed, `talosupgrade_cluster.this["north"]`) || strings.Contains(listed, "south") {
		t.Errorf("the state holds %s, want north alone", listed)
	}
}
