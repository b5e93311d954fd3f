// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

// TestReleaseSource_OfTheProviderReachesTheDataSource goes through the protocol,
// without credentials, as Terraform does.
func TestReleaseSource_OfTheProviderReachesTheDataSource(t *testing.T) {
	server, warnings := configuredWith(t, providerSourceOf(map[string]tftypes.Value{"talos_versions": textsOf("1.13.1", "1.14.2"), "kubernetes_versions": textsOf("1.34.2")}))
	if len(warnings) > 0 {
		t.Fatal(warnings)
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

// configuredWith is the provider as Terraform configures it with the release_source alone.
func configuredWith(t *testing.T, source tftypes.Value) (tfprotov6.ProviderServer, []*tfprotov6.Diagnostic) {
	t.Helper()

	server, schema := serve(t)

	object, ok := schema.Provider.ValueType().(tftypes.Object)
	if !ok {
		t.Fatal("the provider schema is no object")
	}

	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
	}

	values["release_source"] = source

	block, err := tfprotov6.NewDynamicValue(object, tftypes.NewValue(object, values))
	if err != nil {
		t.Fatal(err)
	}

	configured, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: &block})
	if err != nil {
		t.Fatal(err)
	}

	return server, configured.Diagnostics
}

// tableOf is what a provider block knows of releases that names the table.
func tableOf(t *testing.T, set map[string]tftypes.Value) (*compat.Table, diag.Diagnostics) {
	t.Helper()

	table, diagnostics := defaults(t, types.StringNull(), providerSourceOf(set)).ReadTable(t.Context(), "test")

	return table, told.Noted(t, diagnostics)
}

func TestReleaseTable_IsKnownToEverythingThatPlans(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "releases.txt")
	if err := os.WriteFile(file, []byte("as-of 2096-12-01\ntalos 1.13.77 1.14.77\nstop 1.13.4 | withdrawn | was broken | Choose another. | x#1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	table, diagnostics := tableOf(t, map[string]tftypes.Value{"table": textOf(file)})
	check(t, diagnostics)

	clusters := threeNodes("1.13.3", "1.34.2").clusters(t)
	clusters.Releases.Table = table

	_, diagnostics = planned(t, clusters, nil, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "Talos 1.13.4 was broken (x#1)"})

	from := map[string]tftypes.Value{"talos_version": textOf("1.13.3"), "kubernetes_version": textOf("1.34.2")}

	available, diagnostics := readAvailable(t, clusters, from)
	check(t, diagnostics)

	if got := " " + listed(t, available.TalosVersions) + " "; !strings.Contains(got, " 1.14.77 ") || strings.Contains(got, " 1.13.4 ") {
		t.Errorf("available are %s", got)
	}

	if available.Source.Talos.ValueString() != "embedded, "+file || available.AsOf.Talos.ValueString() != "2096-12-01" {
		t.Errorf("they are from %s as of %s", available.Source.Talos, available.AsOf.Talos)
	}
}

func TestReleaseTable_ThatIsNotReadIsAWarning(t *testing.T) {
	t.Parallel()

	missing := filepath.Join(t.TempDir(), "releases.txt")

	table, diagnostics := tableOf(t, map[string]tftypes.Value{"table": textOf(missing)})
	check(t, diagnostics, outcome{diag.SeverityWarning, "Unable to read " + missing + ": not found"})

	// What is built in grows, and texts are kept.
	known, err := compat.Read("", "as-of 2026-10-21\ntalos 1.12.12\n")
	if err != nil {
		t.Fatal(err)
	}

	clusters := threeNodes("1.11.5", "1.34.2").clusters(t)
	clusters.Releases.Table = known.Without(table.Unread)

	two := desired("1.13.4", "")
	two.AllowIntermediate = types.BoolValue(true)

	_, diagnostics = planned(t, clusters, nil, two)
	check(t, diagnostics, outcome{diag.SeverityError, "could not be read (" + missing + ": not found), and the patches to walk through are chosen with it; the built-in table would give Talos 1.12.12"})

	clusters = threeNodes("1.13.3", "1.34.2").clusters(t)
	clusters.Releases.Table = table

	_, diagnostics = planned(t, clusters, nil, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"})
}

// TestReleaseTable_UnknownIsSomethingToWaitFor: what is built in must not be taken for all there is.
func TestReleaseTable_UnknownIsSomethingToWaitFor(t *testing.T) {
	t.Parallel()

	for name, set := range map[string]map[string]tftypes.Value{
		"where it is": {"table": tftypes.NewValue(tftypes.String, tftypes.UnknownValue)},
		"its SHA-256": {"table": textOf("releases.txt"), "table_sha256": tftypes.NewValue(tftypes.String, tftypes.UnknownValue)},
	} {
		clusters := threeNodes("1.13.3", "1.34.2").clusters(t)
		clusters.Releases = defaults(t, types.StringNull(), providerSourceOf(set))

		_, diagnostics := planned(t, clusters, nil, desired("1.13.4", ""))
		check(t, diagnostics, outcome{diag.SeverityWarning, "only after an apply (release_source)"})

		_, diagnostics = readAvailable(t, clusters, map[string]tftypes.Value{"talos_version": textOf("1.13.3")})
		if !diagnostics.HasError() || !strings.Contains(diagnostics[0].Detail(), "(release_source.table)") {
			t.Errorf("%s: %v", name, diagnostics)
		}

		config := configOf(t, compatibilitySchema(), nil)
		resp := datasource.ReadResponse{State: tfsdk.State{Schema: config.Schema, Raw: tftypes.NewValue(config.Raw.Type(), nil)}}

		(&compatibilityDataSource{clusters: clusters}).Read(t.Context(), datasource.ReadRequest{Config: config}, &resp)
		check(t, told.Noted(t, resp.Diagnostics), outcome{diag.SeverityError, "known only after an apply"})
	}

	if table, diagnostics := tableOf(t, nil); table != nil || len(diagnostics) > 0 {
		t.Errorf("without one: %v, %v", table, diagnostics)
	}

	_, warnings := configuredWith(t, providerSourceOf(map[string]tftypes.Value{"table": textOf("/dev/null")}))
	if len(warnings) != 1 || warnings[0].Severity != tfprotov6.DiagnosticSeverityWarning || warnings[0].Summary != "Table of releases not read" {
		t.Errorf("got %v", warnings)
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
		clusters.Releases.FactoryURL = types.StringValue(url)

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
	clusters.Releases.FactoryURL = types.StringUnknown()

	_, diagnostics := planned(t, clusters, nil, desired("1.14.0", ""))
	check(t, diagnostics, outcome{diag.SeverityWarning, "only after an apply (image_factory_url)"})
}

func TestReleaseSource_URLOfTheFactory(t *testing.T) {
	for name, test := range map[string]struct {
		value types.String
		valid bool
	}{
		"factory":                 {types.StringValue("https://factory.example.com:8443/mirror/talos/"), true},
		"factory of one word":     {types.StringValue("http://factory"), false},
		"factory on this machine": {types.StringValue("http://localhost:8080"), true},
		"factory in upper case":   {types.StringValue("https://factory.example.com/Mirror"), false},
		"factory behind no port":  {types.StringValue("https://factory.example.com:99999"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var resp validator.StringResponse

			releases.FactoryURLText().ValidateString(t.Context(), validator.StringRequest{Path: path.Root("x"), ConfigValue: test.value}, &resp)

			if resp.Diagnostics.HasError() == test.valid {
				t.Errorf("valid is %t: %v", !test.valid, resp.Diagnostics)
			}
		})
	}
}
