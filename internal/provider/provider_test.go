// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(wording.Runner{Name: "provider", Tests: m, Update: update})
}

func serve(t *testing.T) (tfprotov6.ProviderServer, *tfprotov6.GetProviderSchemaResponse) {
	t.Helper()

	server, err := providerserver.NewProtocol6WithError(New("test")())()
	if err != nil {
		t.Fatal(err)
	}

	schema, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}

	for _, diagnostic := range schema.Diagnostics {
		t.Fatalf("schema: %s: %s", diagnostic.Summary, diagnostic.Detail)
	}

	return server, schema
}

func TestSchemasOfferWhatTheDocumentationPromises(t *testing.T) {
	_, schema := serve(t)

	want := map[string]struct {
		block *tfprotov6.SchemaBlock
		names string
	}{
		"provider": {schema.Provider.Block, "talosconfig talosconfig_path endpoints client_configuration context kubeconfig kubeconfig_path management credentials_from release_source image_factory_url"},
		"resource": {
			schema.ResourceSchemas["talosupgrade_cluster"].Block,
			"talos_version kubernetes_version context order reboot_mode node_timeout drain installer_image allow_intermediate_versions " +
				"intermediate_versions allow_unknown_versions max_unavailable parallel_pulls pools canary canary_selector settle node_overrides selector_overrides kubernetes timeouts id status nodes " +
				"preflight etcd_snapshot gates maintenance_window sync_install_image on_failure on_suspend retry publish_to mode report_path snapshot",
		},
		"data source": {schema.DataSourceSchemas["talosupgrade_current_versions"].Block, "context id talos kubernetes images nodes"},
		"available versions": {
			schema.DataSourceSchemas["talosupgrade_available_versions"].Block,
			"context talos_version kubernetes_version include_prereleases release_source talos_versions kubernetes_versions next eventual " +
				"latest_talos latest_kubernetes source as_of",
		},
		"compatibility": {schema.DataSourceSchemas["talosupgrade_compatibility"].Block, "talos_version kubernetes_version matrix as_of"},
	}
	for name, test := range want {
		names := strings.Fields(test.names)
		if len(test.block.Attributes) != len(names) {
			t.Errorf("%s has %d attributes, want %d", name, len(test.block.Attributes), len(names))
		}

		for _, attribute := range test.block.Attributes {
			if !strings.Contains(" "+test.names+" ", " "+attribute.Name+" ") {
				t.Errorf("%s has an attribute %s that the documentation does not know", name, attribute.Name)
			}

			if attribute.Description == "" {
				t.Errorf("%s attribute %s has no description", name, attribute.Name)
			}
		}
	}
}

func TestSecretsAreSensitive(t *testing.T) {
	_, schema := serve(t)

	sensitive := map[string]bool{}
	for _, attribute := range schema.Provider.Block.Attributes {
		sensitive[attribute.Name] = attribute.Sensitive

		if attribute.NestedType != nil {
			for _, nested := range attribute.NestedType.Attributes {
				sensitive[nested.Name] = nested.Sensitive
			}
		}
	}

	for _, name := range []string{"talosconfig", "kubeconfig", "client_key"} {
		if !sensitive[name] {
			t.Errorf("%s is not sensitive", name)
		}
	}
}

// validateProvider validates a provider block in which only the given
// attributes are set.
func validateProvider(ctx context.Context, t *testing.T, set map[string]tftypes.Value) []*tfprotov6.Diagnostic {
	t.Helper()

	server, schema := serve(t)

	object, ok := schema.Provider.ValueType().(tftypes.Object)
	if !ok {
		t.Fatal("the provider schema is no object")
	}

	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
		if value, given := set[name]; given {
			values[name] = value
		}
	}

	config, err := tfprotov6.NewDynamicValue(object, tftypes.NewValue(object, values))
	if err != nil {
		t.Fatal(err)
	}

	resp, err := server.ValidateProviderConfig(ctx, &tfprotov6.ValidateProviderConfigRequest{Config: &config})
	if err != nil {
		t.Fatal(err)
	}

	return notedOnWire(t, resp.Diagnostics)
}

func TestContradictoryCredentialsAreRefused(t *testing.T) {
	text := func(value string) tftypes.Value { return tftypes.NewValue(tftypes.String, value) }
	endpoints := tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{text("10.5.0.2")})
	certificateType := tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"ca_certificate": tftypes.String, "client_certificate": tftypes.String, "client_key": tftypes.String,
	}}
	certificate := tftypes.NewValue(certificateType, map[string]tftypes.Value{
		"ca_certificate": text("ca"), "client_certificate": text("crt"), "client_key": text("key"),
	})

	for name, test := range map[string]struct {
		set map[string]tftypes.Value
		at  string
	}{
		"nothing is allowed":          {nil, ""},
		"talosconfig alone":           {map[string]tftypes.Value{"talosconfig": text("a")}, ""},
		"endpoints and certificate":   {map[string]tftypes.Value{"endpoints": endpoints, "client_configuration": certificate}, ""},
		"unknown talosconfig":         {map[string]tftypes.Value{"talosconfig": tftypes.NewValue(tftypes.String, tftypes.UnknownValue)}, ""},
		"talosconfig and path":        {map[string]tftypes.Value{"talosconfig": text("a"), "talosconfig_path": text("b")}, "talosconfig_path"},
		"kubeconfig and path":         {map[string]tftypes.Value{"kubeconfig": text("a"), "kubeconfig_path": text("b")}, "kubeconfig_path"},
		"endpoints alone":             {map[string]tftypes.Value{"endpoints": endpoints}, "endpoints"},
		"certificate alone":           {map[string]tftypes.Value{"client_configuration": certificate}, "client_configuration"},
		"certificate and talosconfig": {map[string]tftypes.Value{"talosconfig": text("a"), "endpoints": endpoints, "client_configuration": certificate}, "client_configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			diagnostics := validateProvider(t.Context(), t, test.set)
			if test.at == "" {
				if len(diagnostics) != 0 {
					t.Fatalf("got %s: %s", diagnostics[0].Summary, diagnostics[0].Detail)
				}

				return
			}

			if len(diagnostics) != 1 {
				t.Fatalf("got %d diagnostics, want 1", len(diagnostics))
			}

			if at := diagnostics[0].Attribute.String(); at != `AttributeName("`+test.at+`")` {
				t.Errorf("points at %s, want %s", at, test.at)
			}
		})
	}
}

func TestEveryFunctionExplainsItself(t *testing.T) {
	t.Parallel()

	_, schema := serve(t)

	for name, offered := range schema.Functions {
		if offered.Summary == "" || !strings.HasSuffix(offered.Summary, ".") || offered.Description == "" {
			t.Errorf("%s: summary %q, description %q", name, offered.Summary, offered.Description)
		}

		for _, parameter := range offered.Parameters {
			if parameter.Name == "" || parameter.Description == "" {
				t.Errorf("%s: parameter %q has the description %q", name, parameter.Name, parameter.Description)
			}
		}
	}

	if diff := cmp.Diff([]string{"compatible", "installer_image", "kubernetes_versions", "upgrade_path"}, slices.Sorted(maps.Keys(schema.Functions))); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
}
