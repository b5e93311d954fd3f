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

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim"
)

// together is one talosconfig with the contexts of several clusters.
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

// TestAccSeveralClusters upgrades the clusters of one talosconfig with one
// resource block. A person sees the roll of each: the command line folds
// warnings that are called the same.
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
