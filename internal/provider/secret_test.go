// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestNoMessageRepeatsAPassword: output of Terraform is kept by pipelines, and
// an address with a password is a mistake that is easily made.
func TestNoMessageRepeatsAPassword(t *testing.T) {
	for _, address := range []string{
		"oci://user:s3cret@registry.example.com/foo",
		"oci://user:s3cret@registry.example.com/Foo Bar",
		"oci://user:s3cret@registry.example.com/foo@sha256:" + strings.Repeat("0", 64),
		"oci://registry.example.com/foo?token=s3cret",
		"https://user:s3cret@registry.example.com",
		"https://user:s3cret@registry example com",
		"https://s3cret@registry.example.com?x",
		"user:s3cret@registry.example.com",
		"user:s3cret@registry.example.com/foo:v1.13.4",
		"//user:s3cret@registry.example.com",
		"https://registry.example.com?token=s3cret",
	} {
		for way, attempt := range map[string]func(*testing.T) diag.Diagnostics{
			"validated as a source of Talos":      judged(locationValidator{product: version.Talos}, address),
			"validated as a source of Kubernetes": judged(locationValidator{product: version.Kubernetes}, address),
			"validated as a factory":              judged(factoryURLValidator{}, address),
			"validated as an installer image":     judged(repositoryValidator{}, address),
			"read from a source": func(t *testing.T) diag.Diagnostics {
				t.Helper()

				_, diagnostics := readAvailable(t, noCluster(t), map[string]tftypes.Value{
					"talos_version":  textOf("1.13.0"),
					"release_source": sourceOf(map[string]tftypes.Value{"talos": textOf(address), "kubernetes": textOf(address)}),
				})

				return diagnostics
			},
			"read from a factory": func(t *testing.T) diag.Diagnostics {
				t.Helper()

				clusters := noCluster(t)
				clusters.releases = defaults(t, types.StringValue(address), sourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

				_, diagnostics := readAvailable(t, clusters, map[string]tftypes.Value{"talos_version": textOf("1.13.0")})

				return diagnostics
			},
			"planned with a factory": func(t *testing.T) diag.Diagnostics {
				t.Helper()

				clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
				clusters.releases.factoryURL = types.StringValue(address)

				_, diagnostics := planned(t, clusters, nil, desired("1.14.0", ""))

				return diagnostics
			},
			"planned with an installer image": func(t *testing.T) diag.Diagnostics {
				t.Helper()

				plan := desired("1.14.0", "")
				plan.InstallerImage = types.StringValue(address)

				_, diagnostics := planned(t, threeNodes("1.13.4", "1.34.2").clusters(t), nil, plan)

				return diagnostics
			},
		} {
			t.Run(way+" "+address, func(t *testing.T) {
				diagnostics := attempt(t)
				if len(diagnostics) == 0 {
					t.Error("nothing is said about it")
				}

				for _, diagnostic := range diagnostics {
					if text := diagnostic.Summary() + "\n" + diagnostic.Detail(); strings.Contains(text, "s3cret") {
						t.Errorf("the password is repeated:\n%s", text)
					}
				}
			})
		}
	}
}

// judged tries the value on a validator.
func judged(by validator.String, value string) func(*testing.T) diag.Diagnostics {
	return func(t *testing.T) diag.Diagnostics {
		t.Helper()

		var resp validator.StringResponse

		by.ValidateString(t.Context(), validator.StringRequest{Path: path.Root("x"), ConfigValue: types.StringValue(value)}, &resp)

		return noted(t, resp.Diagnostics)
	}
}
