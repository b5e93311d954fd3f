// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// speed is how many simulated seconds pass in a real second.
const speed = 60

// place is a simulated cluster like the one in the documentation, and the home directory of a person who has it in
// their talosconfig.
type place struct {
	*sim.Simulator

	env      []string
	replacer *strings.Replacer
}

func newPlace(t *testing.T) *place {
	t.Helper()

	// The test's own context ends before the cleanup that stops the simulator.
	running, err := sim.Start(context.WithoutCancel(t.Context()), sim.Options{
		ClusterName: "prod", ControlPlanes: 1, Workers: 8, Talos: "1.12.6", Kubernetes: "1.34.2",
		Speed: speed, Dir: t.TempDir(), Seed: 1, Management: true, Progress: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Errorf("stopping the simulator: %v", err)
		}
	})

	home := t.TempDir()
	p := &place{
		Simulator: running,
		env:       []string{"HOME=" + home, "TF_VAR_talosconfig=" + running.Talosconfig()},
		replacer: strings.NewReplacer(
			// What has another name in the simulator, and where a test may write.
			`"gpu-0"`, `"worker-5"`, "/var/backups/etcd", t.TempDir(), "registry.example.com:5000", mirror(t),
			// What the simulated machines are.
			`"nocloud"`, `"metal"`, "secure_boot = true", "secure_boot = false",
			// The target of a guide that uses other versions.
			`"1.12.0"`, `"1.13.4"`, `"1.35.0"`, `"1.35.2"`,
		),
	}

	p.seed(t)
	withContexts(t, running.Talosconfig(), filepath.Join(home, ".talos", "config"), "edge-oslo", "edge-bergen")
	withContexts(t, running.ManagementKubeconfig(), filepath.Join(home, ".kube", "management"), "admin@management")

	return p
}

// mirror returns the host of a registry with the images that the documentation has in a registry.
func mirror(t *testing.T) string {
	t.Helper()

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)

	host := strings.TrimPrefix(server.URL, "http://")

	for _, image := range []string{"installer:v1.12.6", "installer:v1.13.4", "kubelet:v1.34.2", "kubelet:v1.35.2"} {
		reference, err := name.NewTag(host + "/siderolabs/" + image)
		if err != nil {
			t.Fatal(err)
		}

		if err := remote.Write(reference, empty.Image, remote.WithContext(t.Context())); err != nil {
			t.Fatal(err)
		}
	}

	return host
}

// adapt returns a snippet adapted to the simulated cluster.
func (p *place) adapt(s snippet) snippet {
	s.text = p.replacer.Replace(s.text)

	return s
}

// seed creates the objects of operators that the documentation names.
func (p *place) seed(t *testing.T) {
	t.Helper()

	config, err := p.ManagementConfig()
	if err != nil {
		t.Fatal(err)
	}

	objects, err := operator.NewLive(config)
	if err != nil {
		t.Fatal(err)
	}

	for _, namespace := range []string{"tenant-a", "clusters"} {
		if err := objects.CreateNamespace(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}

	talosconfig, err := os.ReadFile(p.Talosconfig())
	if err != nil {
		t.Fatal(err)
	}

	kubeconfig, err := os.ReadFile(p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	for _, of := range []operator.Seed{{Namespace: "tenant-a", Name: "prod"}, {Namespace: "default", Name: "my-cluster"}} {
		of.Talosconfig, of.Kubeconfig = talosconfig, kubeconfig

		if _, err := operator.SeedVitistack(t.Context(), objects, p.World, of); err != nil {
			t.Fatal(err)
		}
	}

	edge := operator.Seed{Namespace: "clusters", Name: "edge"}
	if _, err := operator.SeedDeclarative(t.Context(), objects, p.World, edge); err != nil {
		t.Fatal(err)
	}
}

// wantUpgraded wants every node to run the versions after one install and one reboot, and no invariant to be
// violated.
func (p *place) wantUpgraded(t *testing.T, talos, kubernetes string) {
	t.Helper()

	judged, err := p.Verdict(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for _, violation := range judged.Violations {
		t.Errorf("invariant %s violated on %q: %s", violation.Invariant, violation.Node, violation.What)
	}

	for name, node := range judged.Nodes {
		if node.Talos != talos || node.Kubelet != kubernetes || node.Installs != 1 || node.Reboots != 1 || node.Cordoned {
			t.Errorf("%s: %+v, want Talos %s and Kubernetes %s after one install and one reboot", name, node, talos, kubernetes)
		}
	}
}

// withContexts writes a copy of a talosconfig or a kubeconfig that has its only context under further names.
func withContexts(t *testing.T, from, to string, names ...string) {
	t.Helper()

	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}

	var parsed struct {
		// A talosconfig has its contexts by name, with the name of the current one;
		// a kubeconfig lists them.
		Context  string         `yaml:"context,omitempty"`
		Contexts yaml.Node      `yaml:"contexts"`
		Rest     map[string]any `yaml:",inline"`
	}

	if err := yaml.Unmarshal(content, &parsed); err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		if parsed.Contexts.Kind == yaml.MappingNode {
			parsed.Contexts.Content = append(parsed.Contexts.Content, text(name), parsed.Contexts.Content[1])

			continue
		}

		renamed := *parsed.Contexts.Content[0]
		renamed.Content = slices.Clone(renamed.Content)

		for i := 0; i < len(renamed.Content); i += 2 {
			if renamed.Content[i].Value == "name" {
				renamed.Content[i+1] = text(name)
			}
		}

		parsed.Contexts.Content = append(parsed.Contexts.Content, &renamed)
	}

	if content, err = yaml.Marshal(parsed); err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func text(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }
