// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// plannedRoll is the roll in a plan file.
type plannedRoll struct {
	Hops []struct {
		Product, From, To string
		ReleaseNotes      string `json:"release_notes"`
	}
	Steps []struct {
		Hop, Estimate              int
		Node, Component, To, Image string
		Pool                       string
		Canary                     bool
	}
	Held     []string
	Estimate int
}

// roll reads data.talosupgrade_preflight.roll from a plan file, as a policy does.
func (w *workspace) roll(file string) plannedRoll {
	w.t.Helper()

	var plan struct {
		Prior struct {
			Values struct {
				Root struct {
					Resources []struct {
						Address string
						Values  plannedRoll
					}
				} `json:"root_module"`
			}
		} `json:"prior_state"`
	}

	if shown := w.run("show", "-json", file); json.Unmarshal([]byte(shown.output), &plan) != nil {
		w.t.Fatalf("show -json: %s", shown.output)
	}

	for _, resource := range plan.Prior.Values.Root.Resources {
		if resource.Address == "data.talosupgrade_preflight.roll" {
			return resource.Values
		}
	}

	w.t.Fatal("the plan file does not say what data.talosupgrade_preflight.roll read")

	return plannedRoll{}
}

// rolling returns a configuration with one object for the resource and for the data source.
func rolling(s *simulated) string {
	const arguments = `
  talos_version      = local.roll.talos_version
  kubernetes_version = local.roll.kubernetes_version
  canary             = local.roll.canary
`

	return "provider \"talosupgrade\" {\n" + use(s) + "\n}\n\n" +
		"locals {\n  roll = { talos_version = \"1.13.4\", kubernetes_version = \"" + kubernetesTarget + "\", canary = [\"worker-1\"] }\n}\n\n" +
		"data \"talosupgrade_preflight\" \"roll\" {" + arguments + "}\n\nresource \"talosupgrade_cluster\" \"this\" {" + arguments + "}\n"
}

// TestAccRollIsData wants a plan file to have the whole roll as data. Its apply is not bound by it: the cluster
// changes between the two, and what was done must not be done again.
func TestAccRollIsData(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	w := newWorkspace(t)
	w.raw(rolling(s))

	file := filepath.Join(w.dir, "roll.tfplan")
	w.run("plan", "-json", "-input=false", "-out="+file).mustSucceed(0).mustWarn("As data: hops and steps of the data source talosupgrade_preflight.")

	roll := w.roll(file)

	var hops []string
	for _, hop := range roll.Hops {
		hops = append(hops, hop.Product+" "+hop.From+" "+hop.To)

		if !strings.HasPrefix(hop.ReleaseNotes, "https://github.com/") {
			t.Errorf("the release notes are at %q", hop.ReleaseNotes)
		}
	}

	if want := []string{"talos " + talosModern + " " + talosTarget, "kubernetes " + kubernetes + " " + kubernetesTarget}; !slices.Equal(hops, want) {
		t.Errorf("the hops are %q, want %q", hops, want)
	}

	var steps []string
	for _, step := range roll.Steps {
		steps = append(steps, fmt.Sprintf("%d %s %s %s %t", step.Hop, step.Node, step.Component, step.To, step.Canary))
	}

	for index, want := range []string{"0 worker-1  1.13.4 true", "0 worker-0  1.13.4 false", "0 cp-0  1.13.4 false", "1 cp-0 kube-apiserver 1.35.2 false"} {
		if steps[index] != want {
			t.Errorf("step %d is %q, want %q", index, steps[index], want)
		}
	}

	if last := steps[len(steps)-1]; last != "1  manifests 1.35.2 false" || roll.Estimate <= 0 {
		t.Errorf("the last step is %q, and all take %d seconds", last, roll.Estimate)
	}

	other := newWorkspace(t)
	other.write(use(s), `talos_version = "1.13.4"`)
	other.apply().mustSucceed(0)

	w.apply(file).mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
	s.wantKubernetes(kubernetesTarget)
	w.mustPlan()
}

// TestAccTypoCostsNoNode wants an entry of node_overrides that sets nothing, as a misspelt hold does, to be refused
// before a node is upgraded.
func TestAccTypoCostsNoNode(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	for title, overrides := range map[string]string{
		"a misspelt name": `{ "worker-0" = { hodl = true } }`,
		"only nulls":      `{ "worker-0" = { hold = null, installer_image = null } }`,
		"null":            `{ "worker-0" = null }`,
	} {
		t.Run(title, func(t *testing.T) {
			w.write(use(s), "talos_version = \"1.13.4\"\nnode_overrides = "+overrides)
			w.apply().mustFail("Empty node override", `node_overrides["worker-0"]`, "hold, installer_image, reboot_mode, retry_boot_id", "misspelt").mustPoint(t, "node_overrides = "+overrides)
		})
	}

	// A module that passes its variables on leaves such entries out, as the error says.
	w.write(use(s), "talos_version = \"1.13.0\"\ndrain = { enabled = null }\nkubernetes = { manifests = { sync = null } }\nretry = { attempts = null }\ntimeouts = { read = null }\n"+
		`node_overrides = { for name, entry in { "worker-0" = { hold = null } } : name => entry if anytrue([for value in values(entry) : value != null]) }`)
	w.apply().mustSucceed(0).mustWarn("none of create, delete, read, update is set")
	w.mustPlan()
	s.unchanged()
}

// TestAccVersionsThatDoNotGoTogether wants versions that are not compatible to fail without a cluster.
func TestAccVersionsThatDoNotGoTogether(t *testing.T) {
	full(t)

	w := newWorkspace(t)
	w.write("", "talos_version = \"1.13.4\"\nkubernetes_version = \"1.37.0\"")

	validated := w.run("validate", "-json")
	if validated.exit == 0 || !strings.Contains(validated.output, "Talos 1.13.4 needs Kubernetes 1.36 or older") {
		t.Errorf("validate: %s", validated.output)
	}
}
