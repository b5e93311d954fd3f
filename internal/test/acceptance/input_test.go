// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// badInput is a configuration that cannot work, and what the only diagnostic about it says.
type badInput struct {
	provider, resource string
	env                []string
	// atApply is true if the plan succeeds, with a warning, and the apply refuses the configuration.
	atApply bool
	says    []string
}

func badInputs(t *testing.T, s *simulated) map[string]badInput {
	t.Helper()

	malformed := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(malformed, []byte("contexts: [unclosed"), 0o600); err != nil {
		t.Fatal(err)
	}

	context := func(suffix string) string { return use(s) + "\ncontext = \"talossim" + suffix + "\"" }

	const upgrade = `talos_version = "1.13.4"`

	return map[string]badInput{
		"no talosconfig": {"", upgrade, nil, false, []string{"Missing credentials", "talosconfig_path (not set)", "TALOSCONFIG (not set)"}},
		"talosconfig that does not exist": {
			`talosconfig_path = "does/not/exist"`, upgrade, nil, false,
			[]string{"talosconfig_path", "no such file"},
		},
		"variable that names nothing": {
			"", upgrade,
			[]string{"TALOSCONFIG=does/not/exist"},
			false,
			[]string{"environment variable TALOSCONFIG", "no such file"},
		},
		"malformed talosconfig": {
			`talosconfig = "contexts: [unclosed"`, upgrade, nil, false,
			[]string{"provider attribute talosconfig", "malformed"},
		},
		"malformed talosconfig file": {
			"talosconfig_path = " + quote(malformed), upgrade, nil, false,
			[]string{"talosconfig_path", "malformed"},
		},
		"kubeconfig as talosconfig": {"talosconfig_path = " + quote(s.Kubeconfig()), upgrade, nil, false, []string{"Unusable credentials", "it is a kubeconfig"}},
		"talosconfig as kubeconfig": {use(s) + "\nkubeconfig_path = " + quote(s.Talosconfig()), upgrade, nil, false, []string{"Unusable credentials", "it is a talosconfig"}},
		"endpoint that is a URL": {
			`endpoints = ["https://10.5.0.2:6443"]` + "\nclient_configuration = { ca_certificate = \"\", client_certificate = \"\", client_key = \"\" }",
			upgrade, nil, false,
			[]string{"Invalid endpoint", `Write "10.5.0.2"`},
		},
		"two talosconfigs": {use(s) + "\ntalosconfig = \"x\"", upgrade, nil, false, []string{"Contradictory credentials", "talosconfig_path"}},
		"endpoints without certificate": {
			`endpoints = ["127.0.0.1"]`, upgrade, nil, false,
			[]string{"Incomplete credentials", "client_configuration"},
		},
		"unknown context": {use(s) + "\ncontext = \"nowhere\"", upgrade, nil, false, []string{`"nowhere"`, `"talossim"`}},
		"unknown context of the resource": {
			use(s), upgrade + "\ncontext = \"nowhere\"", nil, false,
			[]string{`"nowhere"`, `"talossim"`},
		},
		"no endpoint answers":   {context("-dead"), upgrade, nil, true, []string{"No endpoint of talosconfig context \"talossim-dead\" answered: ", "refused", "Check that at least one endpoint"}},
		"expired certificate":   {context("-expired"), upgrade, nil, false, []string{"expired", "Waiting does not help"}},
		"foreign certificate":   {context("-foreign"), upgrade, nil, false, []string{"Waiting does not help"}},
		"reader":                {context("-reader"), upgrade, nil, true, []string{"os:reader", "os:admin"}},
		"operator":              {context("-operator"), upgrade, nil, true, []string{"os:operator", "os:admin"}},
		"backup of etcd":        {context("-etcd-backup"), upgrade, nil, false, []string{"os:etcd:backup", "os:reader", "os:admin"}},
		"worker as endpoint":    {context("-worker"), upgrade, nil, false, []string{"control plane"}},
		"no version":            {use(s), ``, nil, false, []string{"talos_version", "kubernetes_version"}},
		"word as version":       {use(s), `talos_version = "latest"`, nil, false, []string{"Malformed", "latest", "1.13.4", "talos_version"}},
		"minor version":         {use(s), `talos_version = "1.13"`, nil, false, []string{"MAJOR.MINOR.PATCH"}},
		"older than the nodes":  {use(s), `talos_version = "1.12.5"`, nil, false, []string{"newer than the target 1.12.5", "worker-0"}},
		"withdrawn release":     {use(s), `talos_version = "1.13.1"`, nil, false, []string{"talos_version", "Talos 1.13.1 was broken", "1.13.2", "known-defects"}},
		"skipped minor version": {use(s), `talos_version = "1.14.1"`, nil, false, []string{"1.13"}},
		"image with tag":        {use(s), upgrade + "\ninstaller_image = \"ghcr.io/siderolabs/installer:latest\"", nil, false, []string{"installer_image", "the tag latest", "talos_version"}},
		"image of the imager":   {use(s), upgrade + "\ninstaller_image = \"mirror.example/siderolabs/imager\"", nil, false, []string{"installer_image", "installs nothing"}},
		"image of another tag":  {use(s), upgrade + "\ninstaller_image = \"ghcr.io/siderolabs/installer:v1.13.3\"", nil, false, []string{"installer_image", "has the tag v1.13.3, and talos_version is 1.13.4"}},
		"time that is none":     {use(s), upgrade + "\nnode_timeout = \"soon\"", nil, false, []string{"node_timeout"}},
		"limit of zero":         {use(s), upgrade + "\ntimeouts = { create = \"0s\" }", nil, false, []string{"above zero"}},
		"order that is none":    {use(s), upgrade + "\norder = \"random\"", nil, false, []string{"workers-first"}},
		"check that is firm":    {use(s), upgrade + "\npreflight = { skip = [\"etcd-quorum\"] }", nil, false, []string{"etcd-quorum"}},
		"check that is none":    {use(s), upgrade + "\npreflight = { skip = [\"etcd-alarm\"] }", nil, false, []string{"etcd-alarms"}},
		"unknown Kubernetes":    {use(s), `kubernetes_version = "1.99.0"`, nil, false, []string{"1.99"}},
		"older Kubernetes":      {use(s), `kubernetes_version = "1.33.1"`, nil, false, []string{"1.33.1", kubernetes, "downgrade"}},
		"beyond the Talos": {
			use(s), "kubernetes_version = \"1.37.0\"\nallow_intermediate_versions = true", nil, false, []string{"1.37", "Talos 1.12"},
		},
		"drain of legacy nodes": {use(s), upgrade + "\ndrain = { enabled = false }", nil, false, []string{"drain.enabled", "1.13"}},
	}
}

func TestAccBadInput(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy})

	// few are the most important ones, for runs that are not complete.
	few := []string{"no talosconfig", "no endpoint answers", "expired certificate", "reader", "no version", "older than the nodes"}

	// In a complete run they run in parallel: the group ends once all of them have ended.
	t.Run("each", func(t *testing.T) {
		for title, input := range badInputs(t, s) {
			t.Run(title, func(t *testing.T) {
				if !slices.Contains(few, title) {
					full(t)
				}

				w := newWorkspace(t, input.env...)
				w.write(input.provider, input.resource)

				if input.atApply {
					planned := w.plan().mustSucceed(2)
					if len(planned.warnings) == 0 {
						t.Error("the plan does not warn")
					}

					w.apply().mustFail(input.says...)
				} else {
					w.plan().mustFail(input.says...)
				}

				if w.attributes() != nil {
					t.Error("something was stored")
				}
			})
		}
	})

	s.unchanged()
}

func TestAccEqualVersionTouchesNothing(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosTarget})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "v1.13.4"`)

	w.apply().mustSucceed(0)

	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustSucceed(0)

	// Credentials that may only read do not show a change either.
	w.write(use(s)+"\ncontext = \"talossim-reader\"", `talos_version = "1.13.4"`)
	w.plan().mustSucceed(0)

	w.write(use(s), "talos_version = \"1.13.4\"\norder = \"control-planes-first\"\ncontext = \"talossim\"")
	w.plan().mustSucceed(2)
	w.apply().mustSucceed(0)
	s.unchanged()
}

// TestAccTwoClustersAreNotMixedUp: neither the credentials of two sites that use the same names and addresses, nor a
// state and another cluster, may be mixed up.
func TestAccTwoClustersAreNotMixedUp(t *testing.T) {
	full(t)

	first := start(t, sim.Options{ControlPlanes: 1, Talos: talosTarget, Seed: 1})
	second := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern, Seed: 2})

	mixed := newWorkspace(t)
	mixed.write(use(second)+"\nkubeconfig_path = "+quote(first.Kubeconfig()), `talos_version = "1.13.4"`)
	mixed.plan().mustSucceed(2).mustWarn("as if they belonged to two clusters")
	mixed.apply().mustFail("cluster-identity")

	w := newWorkspace(t)
	w.write(use(first), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)

	before := w.attributes()

	w.write(use(second), `talos_version = "1.13.4"`)
	w.plan().mustFail("The state belongs to cluster", first.World.ClusterID(), second.World.ClusterID())
	w.run("apply", "-json", "-auto-approve", "-refresh=false").mustFail("The state belongs to cluster")
	w.destroy().mustFail("The state belongs to cluster")
	w.run("destroy", "-json", "-auto-approve", "-refresh=false").mustFail("The state belongs to cluster")
	first.unchanged()
	second.unchanged()

	if after := w.attributes(); after["id"] != before["id"] {
		t.Errorf("the state now is about %v", after["id"])
	}
}
