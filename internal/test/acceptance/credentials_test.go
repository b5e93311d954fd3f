// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// talosconfig is the part of a talosconfig that siderolabs/talos has as client_configuration.
type talosconfig struct {
	Contexts map[string]struct {
		Endpoints []string `yaml:"endpoints"`
		CA        string   `yaml:"ca"`
		Crt       string   `yaml:"crt"`
		Key       string   `yaml:"key"`
	} `yaml:"contexts"`
}

// clientConfiguration returns the admin of the talosconfig as arguments of the provider.
func clientConfiguration(t *testing.T, s *simulated) string {
	t.Helper()

	content, err := os.ReadFile(s.Talosconfig())
	if err != nil {
		t.Fatal(err)
	}

	var parsed talosconfig
	if err := yaml.Unmarshal(content, &parsed); err != nil {
		t.Fatal(err)
	}

	admin := parsed.Contexts["talossim"]

	endpoints, err := json.Marshal(admin.Endpoints)
	if err != nil {
		t.Fatal(err)
	}

	return fmt.Sprintf("endpoints = %s\nclient_configuration = { ca_certificate = %q, client_certificate = %q, client_key = %q }",
		endpoints, admin.CA, admin.Crt, admin.Key)
}

// TestAccWaysToGiveCredentials plans with each way to configure credentials, and with roles and spellings that are
// allowed to plan.
func TestAccWaysToGiveCredentials(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	inline := fmt.Sprintf("talosconfig = file(%q)", s.Talosconfig())

	for title, test := range map[string]struct {
		provider, resource string
		env                []string
	}{
		"path":                      {use(s), "", nil},
		"text":                      {inline, "", nil},
		"environment":               {"", "", []string{"TALOSCONFIG=" + s.Talosconfig()}},
		"client configuration":      {clientConfiguration(t, s), "", nil},
		"context of the provider":   {use(s) + "\ncontext = \"talossim\"", "", nil},
		"context of the resource":   {use(s) + "\ncontext = \"talossim-dead\"", "\ncontext = \"talossim\"", nil},
		"kubeconfig path":           {use(s) + "\nkubeconfig_path = " + quote(s.Kubeconfig()), "", nil},
		"kubeconfig text":           {use(s) + fmt.Sprintf("\nkubeconfig = file(%q)", s.Kubeconfig()), "", nil},
		"reader with a kubeconfig":  {use(s) + "\ncontext = \"talossim-reader\"\nkubeconfig_path = " + quote(s.Kubeconfig()), "", nil},
		"reader without kubeconfig": {use(s) + "\ncontext = \"talossim-reader\"", "", nil},
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorkspace(t, test.env...)
			w.write(test.provider, `talos_version = "1.13.4"`+test.resource)
			w.plan().mustSucceed(2).mustWarn("Rolling upgrade of 2 of 2 nodes")
		})
	}

	s.unchanged()
}

// TestAccUnknownCredentials plans and applies with a provider block that depends on a resource of the same apply.
func TestAccUnknownCredentials(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	w := newWorkspace(t)
	configure := func(path string) {
		w.raw(fmt.Sprintf(`
resource "terraform_data" "path" {
  input = %q
}

provider "talosupgrade" {
  talosconfig_path = terraform_data.path.output
}

resource "talosupgrade_cluster" "this" {
  talos_version = "1.13.4"
}
`, path))
	}

	configure(s.Talosconfig())
	w.plan().mustSucceed(2).mustWarn("known only after an apply (talosconfig_path)")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 0))
	w.plan().mustSucceed(0)

	// The apply that the plan announces has to find a node that joins meanwhile, although the plan could not look.
	joined := s.join(talosModern)
	// This is another path to the same file.
	configure(filepath.Dir(s.Talosconfig()) + "/./" + filepath.Base(s.Talosconfig()))
	w.plan().mustSucceed(2).mustWarn("known only after an apply (talosconfig_path)")
	w.apply().mustSucceed(0)

	if got := s.verdict().Nodes[joined].Talos; got != talosTarget {
		t.Errorf("%s runs %s after the apply, want %s", joined, got, talosTarget)
	}
}
