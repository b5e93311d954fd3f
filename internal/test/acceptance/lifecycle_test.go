// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const this = "talosupgrade_cluster.this"

// inProcess serves the provider from the test itself, with a clock as fast as the simulator's, and makes the test
// library use the CLI.
func inProcess(t *testing.T) map[string]func() (tfprotov6.ProviderServer, error) {
	t.Helper()

	found := command(t)
	t.Setenv("TF_ACC_TERRAFORM_PATH", found.Path)

	if found.Name == toolchain.NameOpenTofu {
		t.Setenv("TF_ACC_PROVIDER_NAMESPACE", "hashicorp")
		t.Setenv("TF_ACC_PROVIDER_HOST", "registry.opentofu.org")
	}

	return map[string]func() (tfprotov6.ProviderServer, error){
		"talosupgrade": providerserver.NewProtocol6WithError(provider.New("test", provider.WithClock(newClock(speed)))()),
	}
}

// configuration returns a configuration with the cluster at the versions, and the data source of what it runs.
func configuration(s *simulated, talos string) string {
	return fmt.Sprintf(`
provider "talosupgrade" {
  talosconfig = file(%q)
}

resource "talosupgrade_cluster" "this" {
  talos_version      = %q
  kubernetes_version = %q
}

data "talosupgrade_current_versions" "now" {
  depends_on = [talosupgrade_cluster.this]
}
`, s.Talosconfig(), talos, kubernetes)
}

func stateIs(path tfjsonpath.Path, want knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(this, path, want)
}

func TestAccLifecycle(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	node := tfjsonpath.New("nodes")
	added := ""

	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: inProcess(t),
		Steps: []resource.TestStep{
			{
				// The target is what already runs: nothing is touched.
				Config: configuration(s, talosModern),
				ConfigStateChecks: []statecheck.StateCheck{
					stateIs(tfjsonpath.New("id"), knownvalue.StringExact(s.World.ClusterID())),
					stateIs(tfjsonpath.New("status").AtMapKey("phase"), knownvalue.StringExact("Ready")),
					stateIs(node, knownvalue.MapSizeExact(3)),
				},
				Check: func(*terraform.State) error { s.untouched("cp-0", "worker-0", "worker-1"); return nil },
			},
			{
				// Another spelling is not a change.
				Config:   configuration(s, "v"+talosModern),
				PlanOnly: true,
			},
			{
				Config: configuration(s, "v"+talosTarget),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(this, plancheck.ResourceActionUpdate),
					plancheck.ExpectUnknownValue(this, tfjsonpath.New("status")),
					plancheck.ExpectUnknownValue(this, node),
				}},
				ConfigStateChecks: []statecheck.StateCheck{
					stateIs(tfjsonpath.New("status").AtMapKey("talos").AtMapKey("status"), knownvalue.StringExact("completed")),
					stateIs(tfjsonpath.New("status").AtMapKey("talos").AtMapKey("lowest"), knownvalue.StringExact(talosTarget)),
					stateIs(node.AtMapKey("worker-1").AtMapKey("talos_version"), knownvalue.StringExact(talosTarget)),
					statecheck.ExpectKnownValue("data.talosupgrade_current_versions.now",
						tfjsonpath.New("nodes").AtMapKey("cp-0").AtMapKey("ready"), knownvalue.Bool(true)),
				},
				Check: func(*terraform.State) error { s.wantUpgraded(talosTarget, once(1, 2)); return nil },
			},
			{
				Config:       configuration(s, talosTarget),
				ResourceName: this, ImportState: true, ImportStateId: "current", ImportStateVerify: true,
				// The state keeps the user's spelling; an import has none to keep.
				ImportStateVerifyIgnore: []string{"talos_version"},
			},
			{
				// A node that joins with the old version is drift, and the only node that is touched.
				PreConfig: func() { added = s.join(talosModern) },
				Config:    configuration(s, talosTarget),
				ConfigStateChecks: []statecheck.StateCheck{
					stateIs(node, knownvalue.MapSizeExact(4)),
				},
				Check: func(*terraform.State) error {
					s.wantUpgraded(talosTarget, once(1, 2))
					s.times(map[string]int{added: 1})

					return nil
				},
			},
			{
				Config:   configuration(s, talosTarget),
				PlanOnly: true,
			},
		},
	})

	s.wantUpgraded(talosTarget, once(1, 2))
}

// join adds a worker and waits until it is ready.
func (s *simulated) join(talos string) string {
	s.t.Helper()
	s.forget()

	joined, err := s.AddNode(model.NodeOptions{Role: model.Worker, Talos: talos, Kubernetes: kubernetes})
	if err != nil {
		s.t.Fatal(err)
	}

	s.awaitReady(joined)

	return joined
}

func TestAccImportByID(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosTarget})
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nkubernetes_version = \"v1.34.2\"")

	if run := w.run("import", "-input=false", "-no-color", this, "another-cluster"); run.exit == 0 || !strings.Contains(run.output, "another-cluster") {
		t.Errorf("an import of another cluster ended with %d\n%s", run.exit, run.output)
	}

	if run := w.run("import", "-input=false", "-no-color", this, s.World.ClusterID()); run.exit != 0 {
		t.Fatalf("import: %s", run.output)
	}

	w.plan().mustSucceed(0)
	s.unchanged()
}
