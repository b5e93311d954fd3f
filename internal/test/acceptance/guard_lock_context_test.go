// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// twice returns a talosconfig that has the cluster under the given contexts.
func twice(t *testing.T, s *simulated, contexts ...string) string {
	t.Helper()

	content, err := os.ReadFile(s.Talosconfig())
	if err != nil {
		t.Fatal(err)
	}

	var parsed struct {
		Context  string         `yaml:"context"`
		Contexts map[string]any `yaml:"contexts"`
	}
	if err := yaml.Unmarshal(content, &parsed); err != nil {
		t.Fatal(err)
	}

	same := map[string]any{}
	for _, name := range contexts {
		same[name] = parsed.Contexts[parsed.Context]
	}

	content, err = yaml.Marshal(map[string]any{"context": contexts[0], "contexts": same})
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}

	return file
}

// TestAccOneClusterThroughTwoContexts makes the mistake of a for_each over contexts of which two are the same
// cluster. One resource has to upgrade it, and the other one has to say what is wrong, already in the plan. If the
// two ask for two versions, the plan has to refuse that.
func TestAccOneClusterThroughTwoContexts(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	configuration := func(contexts string) {
		w.raw(fmt.Sprintf("provider \"talosupgrade\" {\n talosconfig_path = %q\n}\n\n"+
			"resource \"talosupgrade_cluster\" \"this\" {\n for_each = toset([%s])\n context = each.key\n talos_version = \"1.13.4\"\n}\n",
			twice(t, s, "blue", "green"), contexts))
	}

	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\n" +
		"resource \"talosupgrade_cluster\" \"one\" {\n  talos_version = \"1.13.4\"\n}\n\n" +
		"resource \"talosupgrade_cluster\" \"two\" {\n  talos_version = \"1.13.3\"\n}\n")
	w.plan().mustFail("another talosupgrade_cluster resource of the same provider block", "Keep one resource per cluster")
	w.apply().mustFail("Keep one resource per cluster")
	s.unchanged()

	configuration(`"blue", "green"`)
	w.plan().mustSucceed(2).mustWarn("another talosupgrade_cluster resource is for this cluster")

	w.apply().mustFail("another talosupgrade_cluster resource")
	s.wantUpgraded(talosTarget, once(1, 1))

	configuration(`"blue"`)
	w.apply().mustSucceed(0)
	w.plan().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	// The first has nothing to do, and so would not be there when the other one is applied.
	configuration(`"blue", "green"`)
	w.plan().mustFail("talosupgrade_cluster resource is for this cluster, which it reaches through", "Keep one resource per cluster")
}

// TestAccTestRunsPlanOneResourceAgain: the runs of a test share one configured provider, and each has a version of its
// own. Every credential is a variable, which is unknown while Terraform validates.
func TestAccTestRunsPlanOneResourceAgain(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	w.raw("variable \"talos_version\" {\n  type = string\n}\n\n" +
		"variable \"talosconfig\" {\n  default = null\n}\n\nvariable \"talosconfig_path\" {\n  default = null\n}\n\n" +
		"resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = var.talos_version\n}\n")

	runs := fmt.Sprintf(`variables {
  talosconfig      = null
  talosconfig_path = %q
}

provider "talosupgrade" {
  talosconfig      = var.talosconfig
  talosconfig_path = var.talosconfig_path
}

run "as_it_is" {
  variables {
    talos_version = %q
  }
}

run "upgraded" {
  variables {
    talos_version = %q
  }

  assert {
    condition     = talosupgrade_cluster.this.nodes["worker-0"].talos_version == var.talos_version
    error_message = "worker-0 was not upgraded"
  }
}
`, s.Talosconfig(), talosModern, talosTarget)

	if err := os.WriteFile(filepath.Join(w.dir, "upgrade.tftest.hcl"), []byte(runs), 0o600); err != nil {
		t.Fatal(err)
	}

	w.run("test", "-json").mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}

// TestAccTestFilesProviderBlockIsValidated: Terraform does not validate it. An empty context would be the current one of
// the talosconfig.
func TestAccTestFilesProviderBlockIsValidated(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	w.raw("variable \"context\" {\n  type = string\n}\n\nresource \"talosupgrade_cluster\" \"this\" {\n  talos_version = " + quote(talosTarget) + "\n}\n")

	runs := fmt.Sprintf(`variables {
  context = ""
}

provider "talosupgrade" {
  talosconfig_path = %q
  context          = var.context
}

run "upgraded" {}
`, s.Talosconfig())

	if err := os.WriteFile(filepath.Join(w.dir, "upgrade.tftest.hcl"), []byte(runs), 0o600); err != nil {
		t.Fatal(err)
	}

	w.run("test", "-json").mustFail("context is empty")

	if changed := s.changes(); len(changed) > 0 {
		t.Errorf("something was changed: %v", changed)
	}
}
