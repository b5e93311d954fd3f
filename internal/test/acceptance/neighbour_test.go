// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestAccOtherProviderAppliesTheImagesThatRun does what talos_machine_configuration_apply does with its next change:
// it patches the generated configuration and writes all of it again, on every node. The patches are those of the
// guide.
func TestAccOtherProviderAppliesTheImagesThatRun(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosTarget})
	generated := s.configs()

	w := newWorkspace(t)
	w.write(use(s), `kubernetes_version = "`+kubernetesTarget+`"`)
	w.apply().mustSucceed(0)
	w.guide("beside-siderolabs-talos/images.tf", "output \"patches\" { value = jsonencode(local.image_patches) }\n")
	w.apply().mustSucceed(0)

	var patches map[string][]string
	if err := json.Unmarshal([]byte(w.output("patches")), &patches); err != nil {
		t.Fatal(err)
	}

	for node, config := range generated {
		if len(patches[node]) == 0 {
			t.Fatalf("the guide has no patches for %s: %v", node, patches)
		}

		s.overwrite(node, patched(t, config, patches[node]))
	}

	s.wantKubernetes(kubernetesTarget)
	w.plan().mustSucceed(0)

	// Without them the old image comes back, and the plan says so.
	s.forget()
	s.overwrite("worker-0", generated["worker-0"])
	s.await("the kubelet of worker-0 running "+kubernetes, func(event history.Event) bool {
		return event.Kind == history.KindComponent && event.Node == "worker-0" && event.Detail["version"] == kubernetes && event.Detail["state"] == "ready"
	})
	w.plan().mustSucceed(2).mustWarn("worker-0")
}

// patched returns a configuration as the other provider makes it.
func patched(t *testing.T, config string, patches []string) string {
	t.Helper()

	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		t.Fatal(err)
	}

	output, err := configpatcher.Apply(configpatcher.WithBytes([]byte(config)), loaded)
	if err != nil {
		t.Fatal(err)
	}

	content, err := output.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}

// overwrite replaces the configuration of a machine, as another tool does.
func (s *simulated) overwrite(node, config string) {
	s.t.Helper()

	if err := s.World.SetConfigByHand(node, func(string) (string, error) { return config, nil }); err != nil {
		s.t.Fatal(err)
	}
}

// guide adds an example of a guide to the configuration.
func (w *workspace) guide(name, more string) {
	w.t.Helper()

	content, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "guides", name))
	if err != nil {
		w.t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(w.dir, "guide.tf"), append(content, more...), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// TestAccConfigurationsThatDisagreeAreNamed reads the data source that other resources use: if nodes disagree, it
// must not give an answer.
func TestAccConfigurationsThatDisagreeAreNamed(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosTarget})
	if err := s.World.SetImage("worker-0", model.KubeletName, "mirror.example/kubelet:v"+kubernetes); err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\ndata \"talosupgrade_current_versions\" \"this\" {}\n\n" +
		"output \"kubelet\" { value = data.talosupgrade_current_versions.this.images.kubelet }\n")

	applied := w.apply().mustSucceed(0)
	applied.mustWarn("worker-0")
	applied.mustWarn("mirror.example/kubelet:v" + kubernetes)

	if kubelet := w.output("kubelet"); kubelet != "" {
		t.Errorf("the data source says %q where nodes disagree", kubelet)
	}
}

// output returns the text of an output value; empty if it is null.
func (w *workspace) output(name string) string {
	w.t.Helper()

	shown := w.run("output", "-json")
	if shown.exit != 0 {
		w.t.Fatalf("terraform output: %s", shown.output)
	}

	var values map[string]struct {
		Value any `json:"value"`
	}

	if err := json.Unmarshal([]byte(shown.output), &values); err != nil {
		w.t.Fatalf("terraform output: %v\n%s", err, shown.output)
	}

	text, _ := values[name].Value.(string)

	return text
}
