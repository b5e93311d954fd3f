// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The tests in this file use configurations in the shapes that other people's modules give them: what they pass on,
// and when it is known. In addition, TestAccInstallerImageCarriesATag has an installer image in the form of
// talos_image_factory_urls, TestAccSeveralClusters and TestAccProviderForEachCluster have for_each, and
// TestAccNodesStayWhileNothingListsThem has no discovery.

// madeBy writes a module that stands for one that creates the cluster: its outputs are known once its resource
// exists.
func (w *workspace) madeBy(s *simulated) {
	w.t.Helper()

	values := regexp.MustCompile(`(?s)endpoints = (\[.*?\]).*client_configuration = (\{.*\})`).FindStringSubmatch(clientConfiguration(w.t, s))

	dir := filepath.Join(w.dir, "machines")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}

	text := fmt.Sprintf(`
variable "nodes" {
  type    = number
  default = 1
}

resource "terraform_data" "cluster" {
  input = { nodes = var.nodes, endpoints = %s, client_configuration = %s }
}

output "endpoints" { value = terraform_data.cluster.output.endpoints }

# The whole data source, as some modules hand it over.
output "client" {
  sensitive = true
  value = {
    id                   = "simulated"
    cluster_name         = "simulated"
    talos_config         = "context: simulated"
    client_configuration = terraform_data.cluster.output.client_configuration
  }
}
`, values[1], values[2])

	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// fromModule is a configuration whose provider block depends only on the module.
const fromModule = `
variable "nodes" {
  type    = number
  default = 1
}

module "machines" {
  source = "./machines"
  nodes  = var.nodes
}

provider "talosupgrade" {
  endpoints            = module.machines.endpoints
  client_configuration = module.machines.client.client_configuration
}

`

// TestAccShapeProviderFromAModule creates and upgrades a cluster in one apply, and later upgrades it while a machine
// is added. The credentials are not known to any of the plans, and the apply has to include what has joined.
func TestAccShapeProviderFromAModule(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.madeBy(s)

	configure := func(talos string) {
		w.raw(fromModule + "resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = \"" + talos + "\"\n  depends_on = [module.machines]\n}\n")
	}

	configure("1.13.2")
	w.run("get", "-no-color").mustSucceed(0)
	w.plan().mustSucceed(2).mustWarn("Looked at during apply")
	w.apply().mustSucceed(0)
	s.wantUpgraded("1.13.2", once(1, 1))
	w.plan().mustSucceed(0)

	joined := s.join(talosModern)

	configure(talosTarget)

	larger := w.run("plan", "-json", "-input=false", "-detailed-exitcode", "-var=nodes=2").mustSucceed(2)
	larger.mustWarn("Looked at during apply")
	w.apply("-var=nodes=2").mustSucceed(0)
	s.wantUpgraded(talosTarget, map[string]int{joined: 1, "cp-0": 2, "worker-0": 2})
}

// TestAccShapeCount has the resource only if there is a cluster, as modules with a switch for the first apply do.
func TestAccShapeCount(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.madeBy(s)
	w.raw(fromModule + `
variable "running" {
  type    = bool
  default = false
}

resource "talosupgrade_cluster" "this" {
  count         = var.running ? 1 : 0
  talos_version = "1.13.4"
}
`)
	w.run("get", "-no-color").mustSucceed(0)

	w.apply().mustSucceed(0)
	s.unchanged()

	w.apply("-var=running=true").mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}

// TestAccShapeWrongNesting passes the whole data source on. Terraform itself refuses that; the page about credentials
// has its messages, and what to write instead.
func TestAccShapeWrongNesting(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.madeBy(s)

	for title, test := range map[string]struct{ provider, says string }{
		"client_configuration of the whole": {
			"endpoints = module.machines.endpoints\n  client_configuration = module.machines.client",
			`attributes "ca_certificate", "client_certificate", and "client_key" are required`,
		},
		"talosconfig of the whole": {"talosconfig = module.machines.client", "string required"},
		"talosconfig of the part":  {"talosconfig = module.machines.client.client_configuration", "string required"},
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.raw(strings.Replace(fromModule, "endpoints            = module.machines.endpoints\n  client_configuration = module.machines.client.client_configuration", test.provider, 1) +
				"resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = \"1.13.4\"\n}\n")
			w.run("get", "-no-color").mustSucceed(0)

			// Terraform wraps its messages.
			refused := w.run("plan", "-no-color", "-input=false")
			if text := strings.Join(strings.Fields(strings.ReplaceAll(refused.output, "│", "")), " "); refused.exit == 0 || !strings.Contains(text, test.says) {
				t.Errorf("Terraform does not say %q, which the page quotes:\n%s", test.says, refused.output)
			}
		})
	}
}

// TestAccShapeLoadBalancer reaches everything through one address, which leads to a different control plane each
// time, and never to the one that is away. The server in the kubeconfig was replaced by it.
func TestAccShapeLoadBalancer(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 3, Workers: 1, Talos: talosModern})
	credentials := clientConfiguration(t, s)
	endpoints := regexp.MustCompile(`endpoints = \[(.*?)\]`)

	var machines []string
	for _, quoted := range strings.Split(endpoints.FindStringSubmatch(credentials)[1], ",") {
		machines = append(machines, strings.Trim(quoted, ` "`))
	}

	kubeconfig, err := os.ReadFile(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	server := regexp.MustCompile(`server: (\S+)`)

	address, err := url.Parse(server.FindStringSubmatch(string(kubeconfig))[1])
	if err != nil {
		t.Fatal(err)
	}

	rewritten := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(rewritten, server.ReplaceAll(kubeconfig, []byte("server: https://"+balance(t, address.Host))), 0o600); err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.write(endpoints.ReplaceAllString(credentials, `endpoints = ["`+balance(t, machines...)+`"]`)+"\nkubeconfig_path = "+quote(rewritten),
		"talos_version = \"1.13.4\"\nkubernetes_version = \""+kubernetesTarget+"\"")
	w.plan().mustSucceed(2)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(3, 1))
	s.wantKubernetes(kubernetesTarget)
	w.plan().mustSucceed(0)
}

// balance listens, and forwards connections to the addresses in turn; an address that does not answer is skipped.
func balance(t *testing.T, addresses ...string) string {
	t.Helper()

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for next := 0; ; next++ {
			caller, err := listener.Accept()
			if err != nil {
				return
			}

			first := next % len(addresses)
			go connect(t.Context(), caller, slices.Concat(addresses[first:], addresses[:first])...)
		}
	}()

	return listener.Addr().String()
}

// TestAccShapeSchematicsByLabel has cloud nodes that boot from the generic image, and others, selected by a label,
// that have a schematic.
func TestAccShapeSchematicsByLabel(t *testing.T) {
	full(t)

	const own = "factory.talos.dev/nocloud-installer/" + model.EmptySchematic

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Platform: "nocloud"})

	patch := []byte(`{"metadata": {"labels": {"pool": "storage"}}}`)
	if _, err := s.someone().CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nselector_overrides = [{ selector = \"pool=storage\", installer_image = \""+own+"\" }]")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))

	for _, install := range s.installs() {
		want := "ghcr.io/siderolabs/installer:v" + talosTarget
		if install.Node == "worker-1" {
			want = own + ":v" + talosTarget
		}

		if install.Detail["image"] != want {
			t.Errorf("%s got %s, want %s", install.Node, install.Detail["image"], want)
		}
	}

	for _, boot := range s.history() {
		if boot.Kind == history.KindBoot && boot.Detail["platform"] != "nocloud" {
			t.Errorf("%s: %v", boot.Node, boot.Detail)
		}
	}

	w.plan().mustSucceed(0)
}

// TestAccShapeVersionThatFeedsAnImage uses one version for the machines' image and for the upgrade, as a module for
// the creation of machines does. With the lifecycle of the documentation, no machine may be replaced.
func TestAccShapeVersionThatFeedsAnImage(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	configure := func(talos, lifecycle string) {
		w.raw(fmt.Sprintf(`
locals {
  talos_version = %q
}

resource "terraform_data" "machine" {
  count            = 2
  triggers_replace = "talos-${local.talos_version}.qcow2"

  lifecycle {
    %s
  }
}

provider "talosupgrade" {
  %s
}

resource "talosupgrade_cluster" "this" {
  talos_version = local.talos_version
}
`, talos, lifecycle, use(s)))
	}

	configure(talosModern, "")
	w.apply().mustSucceed(0)

	configure(talosTarget, "")

	if planned := w.plan().mustSucceed(2); strings.Count(planned.output, `"action":"replace"`) == 0 {
		t.Errorf("the plan replaces no machine:\n%s", planned.output)
	}

	configure(talosTarget, "ignore_changes = [triggers_replace]")

	if planned := w.plan().mustSucceed(2); strings.Contains(planned.output, `"action":"replace"`) {
		t.Errorf("the plan replaces machines:\n%s", planned.output)
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
	w.plan().mustSucceed(0)
}
