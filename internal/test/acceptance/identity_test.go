// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// pinnedTerraform makes the workspace use the Terraform that has identities and queries.
func (w *workspace) pinnedTerraform() {
	w.t.Helper()

	found, err := toolchain.PinnedTerraform(w.t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		w.t.Fatal(err)
	}

	w.command = found.Path
}

// file changes the text of a file in the workspace.
func (w *workspace) file(name string, change func(text string) string) {
	w.t.Helper()

	path := filepath.Join(w.dir, name)

	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(change(string(text))), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// stored returns the IDs that are the identities of the resources in the state file, by address; empty if a resource
// has none.
func (w *workspace) stored() map[string]string {
	w.t.Helper()

	var state struct {
		Resources []struct {
			Type, Name string
			Instances  []struct {
				Identity struct{ ID string }
			}
		}
	}

	w.file("terraform.tfstate", func(text string) string {
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			w.t.Fatal(err)
		}

		return text
	})

	found := map[string]string{}

	for _, resource := range state.Resources {
		for _, instance := range resource.Instances {
			found[resource.Type+"."+resource.Name] = instance.Identity.ID
		}
	}

	return found
}

// silent adds a context to a talosconfig whose endpoint does not answer.
func silent(t *testing.T, file, name string) {
	t.Helper()

	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var parsed map[string]map[string]map[string]any
	if err := yaml.Unmarshal(content, &parsed); err != nil {
		t.Fatal(err)
	}

	added := map[string]any{}

	for _, context := range parsed["contexts"] {
		for key, value := range context {
			added[key] = value
		}
	}

	added["endpoints"], added["nodes"] = []string{"127.0.0.1:1"}, nil
	parsed["contexts"][name] = added

	if content, err = yaml.Marshal(parsed); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustChange fails the test unless a plan or an apply adds, changes and imports so many resources.
func (r result) mustChange(added, changed, imported int) {
	r.t.Helper()

	if want := fmt.Sprintf(`"changes":{"add":%d,"change":%d,"import":%d,`, added, changed, imported); !strings.Contains(r.output, want) {
		r.t.Errorf("not said: %s\n%s", want, r.output)
	}
}

// TestAccQueryBringsClustersIn imports the clusters of a talosconfig with the configuration that a query writes. One
// of its contexts does not answer, and one is renamed afterwards.
func TestAccQueryBringsClustersIn(t *testing.T) {
	full(t)

	north := start(t, sim.Options{ClusterName: "north", ControlPlanes: 1, Talos: talosTarget})
	south := start(t, sim.Options{ClusterName: "south", ControlPlanes: 1, Talos: talosTarget, Seed: 2})

	talosconfig := together(t, north, south)
	silent(t, talosconfig, "east")

	w := newWorkspace(t)
	w.pinnedTerraform()
	w.raw(fmt.Sprintf("provider \"talosupgrade\" {\n  talosconfig_path = %q\n  context          = \"south\"\n}\n", talosconfig))
	w.file("all.tfquery.hcl", func(string) string { return "list \"talosupgrade_cluster\" \"all\" {\n  provider = talosupgrade\n}\n" })

	found := w.run("query", "-json", "-generate-config-out=clusters.tf").mustSucceed(0)
	found.mustWarn(`Unable to observe the cluster (talosconfig context "east")`)

	for _, s := range []*simulated{north, south} {
		if want := fmt.Sprintf(`"identity":{"id":%q}`, s.World.ClusterID()); strings.Count(found.output, want) != 1 {
			t.Errorf("not listed once: %s\n%s", want, found.output)
		}
	}

	// It needs neither the context that does not answer nor any change.
	w.plan().mustSucceed(2).mustChange(0, 0, 2)
	w.apply().mustSucceed(0).mustChange(0, 0, 2)
	w.plan().mustSucceed(0)

	identities := map[string]string{"talosupgrade_cluster.all_0": north.World.ClusterID(), "talosupgrade_cluster.all_1": south.World.ClusterID()}
	if diff := cmp.Diff(identities, w.stored()); diff != "" {
		t.Errorf("identities in state (-want +got):\n%s", diff)
	}

	renamed, err := os.ReadFile(talosconfig)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(talosconfig, []byte(strings.Replace(string(renamed), "north:", "uno:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}

	w.plan().mustFail(`context "north" does not exist, there are "east"`)
	w.file("clusters.tf", func(text string) string { return strings.Replace(text, `"north"`, `"uno"`, 1) })
	w.apply().mustSucceed(0).mustChange(0, 1, 0)
	w.plan().mustSucceed(0)

	if diff := cmp.Diff(identities, w.stored()); diff != "" {
		t.Errorf("identities after a context was renamed (-want +got):\n%s", diff)
	}

	w.file("clusters.tf", func(string) string {
		return "import {\n  to = talosupgrade_cluster.lost\n  identity = { id = \"west\" }\n}\n\nresource \"talosupgrade_cluster\" \"lost\" {\n  talos_version = \"1.13.4\"\n}\n"
	})
	w.plan().mustFail("Unable to find the cluster to import", `context "uno" reaches cluster `+north.World.ClusterID(), `context "east"`, "connection refused")

	north.unchanged()
	south.unchanged()
}

// TestAccStateWithoutIdentity continues with a state that an earlier build, or an older command line, has stored,
// with a refresh before the change and without.
func TestAccStateWithoutIdentity(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosTarget})
	w := newWorkspace(t)
	settle := 0

	write := func() {
		settle++
		w.write(use(s), fmt.Sprintf("talos_version = %q\nsettle = \"%ds\"", talosTarget, settle))
	}

	forget := func() {
		w.file("terraform.tfstate", func(text string) string {
			text = regexp.MustCompile(`"identity(_schema_version)?": (\{[^}]*\}|\d+),?\s*`).ReplaceAllString(text, "")

			// OpenTofu writes them last, which leaves a comma.
			return regexp.MustCompile(`,(\s*\})`).ReplaceAllString(text, "$1")
		})
	}

	goOn := func() {
		forget()

		if got := w.stored()[this]; got != "" {
			t.Fatalf("the identity is %q", got)
		}

		w.plan().mustSucceed(0)
		write()
		w.run("apply", "-json", "-auto-approve", "-input=false", "-refresh=false").mustSucceed(0)
		forget()
		write()
		w.apply().mustSucceed(0)
		w.plan().mustSucceed(0)
	}

	write()
	w.apply().mustSucceed(0)
	goOn()

	if command(t).Name == toolchain.NameOpenTofu {
		return // whose states Terraform does not take over
	}

	under := w.command
	w.pinnedTerraform()
	goOn()

	if got := w.stored()[this]; got != s.World.ClusterID() {
		t.Errorf("the identity is %q, want %q", got, s.World.ClusterID())
	}

	// Going back to the older command line loses nothing.
	w.command = under

	w.plan().mustSucceed(0)
	write()
	w.apply().mustSucceed(0)
	s.unchanged()
}
