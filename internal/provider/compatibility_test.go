// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// validateData validates the configuration of a data source and returns where
// the errors are.
func validateData(t *testing.T, name string, config tfsdk.Config) []string {
	t.Helper()

	server, _ := serve(t)

	value, err := tfprotov6.NewDynamicValue(config.Raw.Type(), config.Raw)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := server.ValidateDataResourceConfig(t.Context(), &tfprotov6.ValidateDataResourceConfigRequest{TypeName: name, Config: &value})
	if err != nil {
		t.Fatal(err)
	}

	var at []string

	for _, diagnostic := range told.NotedOnWire(t, resp.Diagnostics) {
		t.Logf("%s: %s: %s", diagnostic.Attribute, diagnostic.Summary, diagnostic.Detail)

		text := strings.NewReplacer(`AttributeName("`, "", `")`, "", ".ElementKeyInt(", "[", ")", "]").Replace(diagnostic.Attribute.String())
		at = append(at, text)
	}

	return at
}

func readCompatibility(t *testing.T, set map[string]tftypes.Value) (compatibilityModel, diag.Diagnostics) {
	t.Helper()

	config := configOf(t, compatibilitySchema(), set)
	resp := datasource.ReadResponse{State: tfsdk.State{Schema: config.Schema, Raw: tftypes.NewValue(config.Raw.Type(), nil)}}

	(&compatibilityDataSource{clusters: noCluster(t)}).Read(t.Context(), datasource.ReadRequest{Config: config}, &resp)

	var model compatibilityModel
	if !resp.Diagnostics.HasError() {
		wellDone(t, resp.State.Get(t.Context(), &model))
	}

	return model, told.Noted(t, resp.Diagnostics)
}

func TestCompatibility_WholeMatrix(t *testing.T) {
	got, diagnostics := readCompatibility(t, nil)
	check(t, diagnostics)

	want := compat.Rows()
	if len(got.Matrix) != len(want) {
		t.Fatalf("got %d rows, want %d", len(got.Matrix), len(want))
	}

	for index, row := range got.Matrix {
		if row.Talos.ValueString() != want[index].Talos.String() {
			t.Errorf("row %d is about %s, want %s", index, row.Talos, want[index].Talos)
		}

		newest, known := compat.BuiltIn().Newest(version.Talos, want[index].Talos)
		if known == row.NewestTalos.IsNull() || known && row.NewestTalos.ValueString() != newest.String() {
			t.Errorf("newest of %s is %s, want %s", row.Talos, row.NewestTalos, newest)
		}
	}

	if got.AsOf.ValueString() != compat.BuiltIn().AsOf {
		t.Errorf("as of %s", got.AsOf)
	}
}

func TestCompatibility_OneRow(t *testing.T) {
	for _, text := range []string{"1.13", "v1.13", "1.13.4", "v1.13.4", "1.13.0-rc.1"} {
		got, diagnostics := readCompatibility(t, map[string]tftypes.Value{"talos_version": textOf(text)})
		check(t, diagnostics)

		if len(got.Matrix) != 1 {
			t.Fatalf("%s: got %d rows", text, len(got.Matrix))
		}

		row := got.Matrix[0]

		cells := strings.Join([]string{
			row.Talos.ValueString(), row.KubernetesMin.ValueString(), row.KubernetesMax.ValueString(),
			row.UpgradeableFromMin.ValueString(), row.UpgradeableFromMax.ValueString(),
		}, " ")
		if cells != "1.13 1.31 1.36 1.11 1.14" {
			t.Errorf("%s: got %s", text, cells)
		}
	}
}

func TestCompatibility_RowsThatRunAKubernetesVersion(t *testing.T) {
	for name, test := range map[string]struct {
		set  map[string]tftypes.Value
		want string
	}{
		"Kubernetes":           {map[string]tftypes.Value{"kubernetes_version": textOf("1.36.1")}, "1.13 1.14 1.15"},
		"as a minor":           {map[string]tftypes.Value{"kubernetes_version": textOf("v1.26")}, "1.8"},
		"Kubernetes and Talos": {map[string]tftypes.Value{"kubernetes_version": textOf("1.36"), "talos_version": textOf("1.14")}, "1.14"},
	} {
		t.Run(name, func(t *testing.T) {
			got, diagnostics := readCompatibility(t, test.set)
			check(t, diagnostics)

			var minors []string
			for _, row := range got.Matrix {
				minors = append(minors, row.Talos.ValueString())
			}

			if text := strings.Join(minors, " "); text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
		})
	}
}

func TestCompatibility_NoRowIsAWarning(t *testing.T) {
	for name, set := range map[string]map[string]tftypes.Value{
		"too new":             {"talos_version": textOf("1.99")},
		"too old":             {"kubernetes_version": textOf("1.9.3")},
		"not with each other": {"talos_version": textOf("1.14"), "kubernetes_version": textOf("1.23")},
	} {
		t.Run(name, func(t *testing.T) {
			got, diagnostics := readCompatibility(t, set)
			check(t, diagnostics, outcome{diag.SeverityWarning, "The matrix of this version of the provider knows Talos 1.8 to"})

			if got.Matrix == nil || len(got.Matrix) != 0 {
				t.Errorf("got %v", got.Matrix)
			}
		})
	}
}

func TestCompatibility_ValidatesItsInput(t *testing.T) {
	for text, valid := range map[string]bool{
		"1.13": true, "v1.13.4": true, "1": false, "": false, "1.13.": false, "1.x": false, "latest": false, "1.13-rc.1": false, "1.13.4.5": false, "v": false,
	} {
		t.Run(text, func(t *testing.T) {
			for _, attribute := range []string{"talos_version", "kubernetes_version"} {
				set := map[string]tftypes.Value{attribute: textOf(text)}

				at := validateData(t, "talosupgrade_compatibility", configOf(t, compatibilitySchema(), set))
				if valid != (len(at) == 0) || !valid && at[0] != attribute {
					t.Errorf("errors at %q", at)
				}

				// The same for a value that was not known then.
				if _, diagnostics := readCompatibility(t, set); diagnostics.HasError() == valid {
					t.Errorf("reading gives %v", diagnostics)
				}
			}
		})
	}
}
