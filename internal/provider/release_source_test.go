// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// TestReleaseSourceOfTheProviderReachesTheDataSource goes through the protocol,
// without credentials, as Terraform does.
func TestReleaseSourceOfTheProviderReachesTheDataSource(t *testing.T) {
	server, schema := serve(t)

	object, ok := schema.Provider.ValueType().(tftypes.Object)
	if !ok {
		t.Fatal("the provider schema is no object")
	}

	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
	}

	values["release_source"] = someReleases()

	block, err := tfprotov6.NewDynamicValue(object, tftypes.NewValue(object, values))
	if err != nil {
		t.Fatal(err)
	}

	configured, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: &block})
	if err != nil || len(configured.Diagnostics) > 0 {
		t.Fatal(err, configured.Diagnostics)
	}

	config := configOf(t, availableVersionsSchema(), map[string]tftypes.Value{"talos_version": textOf("1.13.0")})

	asked, err := tfprotov6.NewDynamicValue(config.Raw.Type(), config.Raw)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := server.ReadDataSource(t.Context(), &tfprotov6.ReadDataSourceRequest{TypeName: "talosupgrade_available_versions", Config: &asked})
	if err != nil || len(resp.Diagnostics) > 0 {
		t.Fatal(err, resp.Diagnostics)
	}

	state, err := resp.State.Unmarshal(config.Raw.Type())
	if err != nil {
		t.Fatal(err)
	}

	var (
		attributes map[string]tftypes.Value
		latest     string
	)

	if err := state.As(&attributes); err != nil {
		t.Fatal(err)
	}

	if err := attributes["latest_talos"].As(&latest); err != nil || latest != "1.14.2" {
		t.Errorf("latest is %s: %v", latest, err)
	}
}
