// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	registryname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// factory serves a list of versions as the Image Factory does, and returns its URL.
func factory(t *testing.T, answer string) string {
	t.Helper()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /versions", func(w http.ResponseWriter, _ *http.Request) {
		// A client that has gone away does not need the answer.
		_, _ = io.WriteString(w, answer)
	})

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	return server.URL
}

// mirror serves a registry with an image under the tags, and returns the repository.
func mirror(t *testing.T, repository string, tags ...string) string {
	t.Helper()

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)

	repository = strings.TrimPrefix(server.URL, "http://") + "/" + repository

	for _, tag := range tags {
		reference, err := registryname.NewTag(repository + ":" + tag)
		if err != nil {
			t.Fatal(err)
		}

		if err := remote.Write(reference, empty.Image, remote.WithContext(t.Context())); err != nil {
			t.Fatal(err)
		}
	}

	return "oci://" + repository
}

// TestAccLookups uses the data sources that need no cluster as modules do: in locals, a check and a precondition,
// with the releases of two mirrors.
func TestAccLookups(t *testing.T) {
	smoke(t)
	t.Parallel()

	w := newWorkspace(t)
	w.raw(fmt.Sprintf(`
provider "talosupgrade" {
  image_factory_url = %q
  release_source = {
    talos      = "factory"
    kubernetes = %q
  }
}

data "talosupgrade_available_versions" "next" {
  talos_version      = "v1.12.6"
  kubernetes_version = "1.34.2"
}

data "talosupgrade_available_versions" "early" {
  talos_version       = "1.13.4"
  kubernetes_version  = "1.34.2"
  include_prereleases = true
}

data "talosupgrade_compatibility" "kubernetes" {
  kubernetes_version = "1.31"
}

locals {
  next = data.talosupgrade_available_versions.next
}

check "behind" {
  assert {
    condition     = length(local.next.next.talos) == 0
    error_message = "Talos ${local.next.latest_talos} is out."
  }
}

resource "terraform_data" "guarded" {
  lifecycle {
    precondition {
      condition     = contains(data.talosupgrade_compatibility.kubernetes.matrix[*].talos, "1.13")
      error_message = "not a pair"
    }
  }
}

output "talos" { value = local.next.next.talos }
output "eventually" { value = local.next.eventual.talos }
output "kubernetes" { value = local.next.next.kubernetes }
output "early" { value = data.talosupgrade_available_versions.early.next.talos }
output "lines" { value = data.talosupgrade_compatibility.kubernetes.matrix[*].talos }
`,
		factory(t, `["v1.11.3","v1.12.6","v1.12.7","v1.13.0","v1.13.4","v1.14.0","v1.14.1-rc.0"]`),
		mirror(t, "mirror/kube-apiserver", "v1.33.1", "v1.34.2", "v1.34.3", "v1.35.0", "v1.36.1", "latest", "v1.35.1-slim")))
	w.apply().mustSucceed(0).mustWarn("Talos 1.14.0 is out.")

	want := map[string]any{
		"talos":      []any{"1.12.7", "1.13.0", "1.13.4"},
		"eventually": []any{"1.12.7", "1.13.0", "1.13.4", "1.14.0"},
		"kubernetes": []any{"1.34.3", "1.35.0"},
		"early":      []any{"1.14.0", "1.14.1-rc.0"},
		"lines":      []any{"1.8", "1.9", "1.10", "1.11", "1.12", "1.13"},
	}
	if diff := cmp.Diff(want, w.outputs()); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}

	w.plan().mustSucceed(0)
}

// TestAccLookupOfRubbish: a source whose answer is not a list has to be one error that names the source, and in a
// check only a warning.
func TestAccLookupOfRubbish(t *testing.T) {
	smoke(t)
	t.Parallel()

	url := factory(t, "<html>503</html>")
	source := `data "talosupgrade_available_versions" "next" {
    talos_version      = "1.12.6"
    kubernetes_version = "1.34.2"
    release_source     = { talos = "factory" }
  }`
	settings := fmt.Sprintf("provider \"talosupgrade\" {\n  image_factory_url = %q\n}\n", url)

	w := newWorkspace(t)
	w.raw(settings + source)
	w.plan().mustFail(url)

	checked := newWorkspace(t)
	checked.raw(settings + "check \"next\" {\n  " + source + `
  assert {
    condition     = length(data.talosupgrade_available_versions.next.next.talos) >= 0
    error_message = "never"
  }
}`)
	checked.apply().mustSucceed(0).mustWarn(url)
}

// TestAccAvailableVersionsOfACluster asks to which versions the cluster of the provider can be upgraded, and upgrades
// it to a version that the matrix does not have.
func TestAccAvailableVersionsOfACluster(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: "1.13.4"})
	w := newWorkspace(t)
	configure := func(resource string) {
		w.raw("provider \"talosupgrade\" {\n  " + use(s) + "\n}\n" + resource)
	}

	configure(`
data "talosupgrade_available_versions" "here" {
  release_source = { talos_versions = ["1.12.7", "1.13.4", "1.13.5", "1.14.0"], kubernetes_versions = ["1.34.2", "1.35.0"] }
}

output "runs" { value = data.talosupgrade_available_versions.here.talos_version }
output "talos" { value = data.talosupgrade_available_versions.here.next.talos }
output "kubernetes" { value = data.talosupgrade_available_versions.here.next.kubernetes }
`)
	w.apply().mustSucceed(0)

	want := map[string]any{"runs": "1.13.4", "talos": []any{"1.13.5", "1.14.0"}, "kubernetes": []any{"1.35.0"}}
	if diff := cmp.Diff(want, w.outputs()); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}

	const unknown = "resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = \"1.16.0\"\n  %s\n}\n"

	configure(fmt.Sprintf(unknown, ""))
	w.plan().mustFail("support matrix", "allow_unknown_versions = true")

	configure(fmt.Sprintf(unknown, "allow_unknown_versions = true\n  allow_intermediate_versions = true\n  intermediate_versions = [\"1.14.0\", \"1.15.0\"]"))
	w.plan().mustSucceed(2).mustWarn("Hop 3 of 3: Talos 1.15.0 -> 1.16.0")
	s.unchanged()
}
