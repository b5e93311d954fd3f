// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const functionSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// outputs returns the outputs in the state.
func (w *workspace) outputs() map[string]any {
	w.t.Helper()

	shown := w.run("output", "-json")
	if shown.exit != 0 {
		w.t.Fatalf("output: %s", shown.output)
	}

	var document map[string]struct {
		Value any `json:"value"`
	}

	// The command line first prints a warning about the development override.
	if err := json.Unmarshal([]byte(shown.output[strings.IndexByte(shown.output, '{'):]), &document); err != nil {
		w.t.Fatalf("%v\n%s", err, shown.output)
	}

	values := map[string]any{}
	for name, output := range document {
		values[name] = output.Value
	}

	return values
}

// TestAccFunctions uses every function as modules do, with neither a cluster nor a provider block.
func TestAccFunctions(t *testing.T) {
	smoke(t)
	t.Parallel()

	w := newWorkspace(t)
	w.raw(`
locals {
  talos = "v1.13.4"
  from  = { talos = "1.11.3", kubernetes = "1.33.4" }
  path  = provider::talosupgrade::upgrade_path(local.from, { talos = "v1.13.0", kubernetes = "v1.34.2" })
}

check "supported" {
  assert {
    condition     = provider::talosupgrade::compatible(local.talos, "1.30.1")
    error_message = "not a pair"
  }
}

resource "terraform_data" "guarded" {
  lifecycle {
    precondition {
      condition     = provider::talosupgrade::compatible(local.talos, "v1.34.2")
      error_message = "not a pair"
    }
  }
}

resource "terraform_data" "later" {}

output "range" { value = provider::talosupgrade::kubernetes_versions("1.13.4") }
output "first" { value = local.path[0] }
output "last" { value = local.path[length(local.path) - 1] }
output "minors" { value = distinct([for state in local.path : join(".", slice(split(".", state.talos), 0, 2))]) }
output "talos_only" { value = provider::talosupgrade::upgrade_path({ talos = "1.13.0" }, { talos = "1.13.1", kubernetes = null }) }
output "image" {
  value = provider::talosupgrade::installer_image({ platform = "metal", schematic = "` + functionSchematic + `", version = "1.13.4" })
}
output "nulls" {
  value = provider::talosupgrade::installer_image({
    platform = "aws", schematic = "` + functionSchematic + `", version = "1.13.4", secure_boot = null, factory = null
  })
}
output "mirror" {
  value = provider::talosupgrade::installer_image(tomap({
    platform = "nocloud", schematic = "` + functionSchematic + `", secure_boot = true, factory = "registry.example.com:5000"
  }))
}
output "unknown_until_then" {
  value = startswith(provider::talosupgrade::installer_image({
    platform = "metal", schematic = sha256(terraform_data.later.id), version = "1.13.4"
  }), "factory.talos.dev/metal-installer/")
}
`)
	w.apply().mustSucceed(0).mustWarn("not a pair")

	want := map[string]any{
		"range":  map[string]any{"min": "1.31", "max": "1.36"},
		"first":  map[string]any{"talos": "1.11.3", "kubernetes": "1.33.4"},
		"last":   map[string]any{"talos": "1.13.0", "kubernetes": "1.34.2"},
		"minors": []any{"1.11", "1.12", "1.13"},
		"talos_only": []any{
			map[string]any{"talos": "1.13.0", "kubernetes": nil},
			map[string]any{"talos": "1.13.1", "kubernetes": nil},
		},
		"image":              "factory.talos.dev/metal-installer/" + functionSchematic + ":v1.13.4",
		"nulls":              "factory.talos.dev/aws-installer/" + functionSchematic + ":v1.13.4",
		"mirror":             "registry.example.com:5000/nocloud-installer-secureboot/" + functionSchematic,
		"unknown_until_then": true,
	}
	if diff := cmp.Diff(want, w.outputs()); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

// TestAccFunctionsNameTheArgument wants the command line to name the parameter that a refusal is about.
func TestAccFunctionsNameTheArgument(t *testing.T) {
	smoke(t)
	t.Parallel()

	refusals := map[string]string{
		`compatible("1.13", "1.35.2")`:                                                                `Invalid value for "talos" parameter: malformed version "1.13"`,
		`compatible("1.13.4", "latest")`:                                                              `Invalid value for "kubernetes" parameter: malformed version "latest"`,
		`compatible("1.99.0", "1.35.2")`:                                                              `Invalid value for "talos" parameter: Talos 1.99.0 is newer than the support matrix, which ends at Talos 1.`,
		`kubernetes_versions("2.0.0")`:                                                                `Invalid value for "talos" parameter: Talos 2.0.0 is newer than the support matrix`,
		`upgrade_path({ kubernetes = "1.35.2" }, { talos = "1.13.4" })`:                               `Invalid value for "from" parameter: talos is missing`,
		`upgrade_path({ talos = "1.13.4" }, { talos = "1.12.6" })`:                                    `Invalid value for "to" parameter: `,
		`installer_image({ platform = "metal", schematic = "abc", version = "1.13.4" })`:              `Invalid value for "image" parameter: schematic is "abc"`,
		`installer_image({ platform = "metal", schematic = sha256(""), secureboot = true })`:          `Invalid value for "image" parameter: there is no attribute "secureboot"`,
		`installer_image({ platform = "metal", schematic = sha256(""), factory = "https://x.test" })`: `Invalid value for "image" parameter: factory is "https://x.test"`,
	}

	var text strings.Builder
	for call := range refusals {
		text.WriteString("output \"o" + strings.Repeat("o", text.Len()) + "\" {\n  value = provider::talosupgrade::" + call + "\n}\n")
	}

	w := newWorkspace(t)
	w.raw(text.String())

	planned := w.plan()
	if planned.exit != 1 || len(planned.errors) != len(refusals) {
		t.Fatalf("exit code %d with %d errors, want 1 with %d\n%s", planned.exit, len(planned.errors), len(refusals), planned.text())
	}

	for call, says := range refusals {
		found := false

		for _, refused := range planned.errors {
			if strings.Contains(refused.Snippet.Code, call) {
				found = strings.Contains(refused.Detail, says)
			}
		}

		if !found {
			t.Errorf("no error about %s says %q\n%s", call, says, planned.text())
		}
	}
}

// TestAccFunctionInPrecondition wants a pair of versions that is refused to stop a plan.
func TestAccFunctionInPrecondition(t *testing.T) {
	smoke(t)
	t.Parallel()

	w := newWorkspace(t)
	w.raw(`
locals {
  talos = "1.12.6"
}

resource "terraform_data" "guarded" {
  lifecycle {
    precondition {
      condition     = provider::talosupgrade::compatible(local.talos, "1.36.0")
      error_message = "Talos ${local.talos} runs Kubernetes ${provider::talosupgrade::kubernetes_versions(local.talos).max} at most."
    }
  }
}
`)
	w.plan().mustFail("Resource precondition failed", "Talos 1.12.6 runs Kubernetes 1.35 at most.")
}
