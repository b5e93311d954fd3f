// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// TestReleaseSource_OfTheProviderReachesTheDataSource goes through the protocol,
// without credentials, as Terraform does.
func TestReleaseSource_OfTheProviderReachesTheDataSource(t *testing.T) {
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

// TestImageFactory_OfTheProviderBlockIsUsed: from Talos 1.14 on there is
// no generic installer, and a private factory is there to be used instead of
// the public one.
func TestImageFactory_OfTheProviderBlockIsUsed(t *testing.T) {
	t.Parallel()

	for url, want := range map[string]string{
		"":                                   "factory.talos.dev/metal-installer/",
		"https://factory.example.com":        "factory.example.com/metal-installer/",
		"http://10.0.0.5:8443/mirror/talos/": "10.0.0.5:8443/mirror/talos/metal-installer/",
	} {
		clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
		clusters.releases.factoryURL = types.StringValue(url)

		_, diagnostics := planned(t, clusters, nil, desired("1.14.0", ""))
		check(t, diagnostics, outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, want})

		if text := diagnostics[1].Detail(); want != "factory.talos.dev/metal-installer/" && strings.Contains(text, "factory.talos.dev") {
			t.Errorf("%s: the public factory is used as well:\n%s", url, text)
		}
	}
}

// TestImageFactory_UnknownIsLookedAtDuringApply: which image a node gets depends on it.
func TestImageFactory_UnknownIsLookedAtDuringApply(t *testing.T) {
	t.Parallel()

	clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
	clusters.releases.factoryURL = types.StringUnknown()

	_, diagnostics := planned(t, clusters, nil, desired("1.14.0", ""))
	check(t, diagnostics, outcome{diag.SeverityWarning, "only after an apply (image_factory_url)"})
}
