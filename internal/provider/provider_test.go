// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
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

func TestProvider_SchemasOfferWhatTheDocumentationPromises(t *testing.T) {
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

func TestProvider_SecretsAreSensitive(t *testing.T) {
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

	return told.NotedOnWire(t, resp.Diagnostics)
}

func TestProvider_RefusesContradictoryCredentials(t *testing.T) {
	text := func(value string) tftypes.Value { return tftypes.NewValue(tftypes.String, value) }
	none := tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{})
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
		"empty endpoints":             {map[string]tftypes.Value{"endpoints": none, "client_configuration": certificate}, "endpoints"},
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

// TestProvider_UnknownCredentialsContradictNothing: while a configuration is validated every input variable is
// unknown, and may turn out to be null. What is certain is said all the same.
func TestProvider_UnknownCredentialsContradictNothing(t *testing.T) {
	unknown := tftypes.NewValue(tftypes.String, tftypes.UnknownValue)
	listType := tftypes.List{ElementType: tftypes.String}
	certificateType := tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"ca_certificate": tftypes.String, "client_certificate": tftypes.String, "client_key": tftypes.String,
	}}
	endpoints, someday := tftypes.NewValue(listType, []tftypes.Value{textOf("10.5.0.2")}), tftypes.NewValue(listType, tftypes.UnknownValue)
	certificate := tftypes.NewValue(certificateType, map[string]tftypes.Value{"ca_certificate": unknown, "client_certificate": unknown, "client_key": unknown})
	issued := tftypes.NewValue(certificateType, tftypes.UnknownValue)
	management := empty(managementType(), map[string]tftypes.Value{"kubeconfig_path": textOf("a")})
	prod := empty(credentialsFromType(), map[string]tftypes.Value{"namespace": textOf("tenant-a"), "name": textOf("prod")})
	from := tftypes.NewValue(credentialsFromType(), tftypes.UnknownValue)

	for name, test := range map[string]struct {
		set map[string]tftypes.Value
		at  string
	}{
		"talosconfig or its path":         {map[string]tftypes.Value{"talosconfig": unknown, "talosconfig_path": unknown}, ""},
		"a talosconfig by default":        {map[string]tftypes.Value{"talosconfig": textOf("a"), "talosconfig_path": unknown}, ""},
		"a path by default":               {map[string]tftypes.Value{"talosconfig": unknown, "talosconfig_path": textOf("a")}, ""},
		"kubeconfig or its path":          {map[string]tftypes.Value{"kubeconfig": unknown, "kubeconfig_path": unknown}, ""},
		"every way":                       {map[string]tftypes.Value{"talosconfig": unknown, "talosconfig_path": unknown, "endpoints": someday, "client_configuration": issued}, ""},
		"a talosconfig or a certificate":  {map[string]tftypes.Value{"talosconfig": unknown, "endpoints": endpoints, "client_configuration": certificate}, ""},
		"endpoints, perhaps":              {map[string]tftypes.Value{"endpoints": someday}, ""},
		"a certificate, perhaps":          {map[string]tftypes.Value{"client_configuration": issued}, ""},
		"endpoints for what is issued":    {map[string]tftypes.Value{"endpoints": endpoints, "client_configuration": issued}, ""},
		"a certificate for any endpoints": {map[string]tftypes.Value{"endpoints": someday, "client_configuration": certificate}, ""},
		"from elsewhere, perhaps":         {map[string]tftypes.Value{"credentials_from": from, "talosconfig": textOf("a"), "kubeconfig": textOf("a")}, ""},
		"from elsewhere, or given":        {map[string]tftypes.Value{"management": management, "credentials_from": prod, "talosconfig": unknown, "endpoints": someday, "kubeconfig_path": unknown}, ""},
		"two, and perhaps a third":        {map[string]tftypes.Value{"talosconfig": textOf("a"), "talosconfig_path": textOf("b"), "client_configuration": issued}, "talosconfig_path"},
		"a certificate of unknown parts":  {map[string]tftypes.Value{"talosconfig": textOf("a"), "endpoints": endpoints, "client_configuration": certificate}, "client_configuration"},
		"unknown parts without endpoints": {map[string]tftypes.Value{"client_configuration": certificate}, "client_configuration"},
		"from elsewhere, and one given":   {map[string]tftypes.Value{"management": management, "credentials_from": prod, "talosconfig": unknown, "kubeconfig": textOf("a")}, "credentials_from"},
	} {
		t.Run(name, func(t *testing.T) {
			diagnostics := validateProvider(t.Context(), t, test.set)

			if test.at == "" {
				if len(diagnostics) != 0 {
					t.Errorf("it says %v", diagnostics[0])
				}

				return
			}

			if len(diagnostics) != 1 || attributeText(t, diagnostics[0]) != test.at {
				t.Errorf("it says %v", diagnostics)
			}
		})
	}
}

func TestProvider_EveryFunctionExplainsItself(t *testing.T) {
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

func managementType() tftypes.Object {
	return tftypes.Object{AttributeTypes: map[string]tftypes.Type{"kubeconfig": tftypes.String, "kubeconfig_path": tftypes.String, "context": tftypes.String}}
}

func credentialsFromType() tftypes.Object {
	return tftypes.Object{AttributeTypes: map[string]tftypes.Type{"namespace": tftypes.String, "name": tftypes.String}}
}

func TestManagementCluster_IsValidated(t *testing.T) {
	unknown := tftypes.NewValue(tftypes.String, tftypes.UnknownValue)
	management := func(set map[string]tftypes.Value) tftypes.Value { return empty(managementType(), set) }
	usable := management(map[string]tftypes.Value{"kubeconfig_path": textOf("a"), "context": textOf("b")})
	from := func(namespace, name tftypes.Value) tftypes.Value {
		return empty(credentialsFromType(), map[string]tftypes.Value{"namespace": namespace, "name": name})
	}
	prod := from(textOf("tenant-a"), textOf("prod"))
	endpoints := tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("10.5.0.2")})
	certificate := empty(tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"ca_certificate": tftypes.String, "client_certificate": tftypes.String, "client_key": tftypes.String,
	}}, map[string]tftypes.Value{"ca_certificate": textOf("a"), "client_certificate": textOf("a"), "client_key": textOf("a")})

	for name, test := range map[string]struct {
		set map[string]tftypes.Value
		at  string
	}{
		"management alone":                  {map[string]tftypes.Value{"management": usable}, ""},
		"a kubeconfig":                      {map[string]tftypes.Value{"management": management(map[string]tftypes.Value{"kubeconfig": textOf("a")})}, ""},
		"beside other credentials":          {map[string]tftypes.Value{"management": usable, "talosconfig": textOf("a"), "kubeconfig": textOf("a")}, ""},
		"an unknown kubeconfig":             {map[string]tftypes.Value{"management": management(map[string]tftypes.Value{"kubeconfig": unknown})}, ""},
		"unknown, and a path":               {map[string]tftypes.Value{"management": management(map[string]tftypes.Value{"kubeconfig": unknown, "kubeconfig_path": textOf("a")})}, ""},
		"an unknown management":             {map[string]tftypes.Value{"management": tftypes.NewValue(managementType(), tftypes.UnknownValue), "credentials_from": prod}, ""},
		"no kubeconfig":                     {map[string]tftypes.Value{"management": management(map[string]tftypes.Value{"context": textOf("a")})}, "management"},
		"two kubeconfigs":                   {map[string]tftypes.Value{"management": management(map[string]tftypes.Value{"kubeconfig": textOf("a"), "kubeconfig_path": textOf("b")})}, "management"},
		"an empty kubeconfig":               {map[string]tftypes.Value{"management": management(map[string]tftypes.Value{"kubeconfig": textOf("")})}, "management"},
		"an empty kubeconfig path":          {map[string]tftypes.Value{"management": management(map[string]tftypes.Value{"kubeconfig_path": textOf("")})}, "management"},
		"credentials":                       {map[string]tftypes.Value{"management": usable, "credentials_from": prod}, ""},
		"credentials and a context":         {map[string]tftypes.Value{"management": usable, "credentials_from": prod, "context": textOf("admin@prod")}, ""},
		"unknown credentials":               {map[string]tftypes.Value{"management": usable, "credentials_from": from(unknown, unknown)}, ""},
		"credentials from nowhere":          {map[string]tftypes.Value{"credentials_from": prod}, "credentials_from"},
		"credentials and a talosconfig":     {map[string]tftypes.Value{"management": usable, "credentials_from": prod, "talosconfig": textOf("a")}, "credentials_from"},
		"credentials and a path":            {map[string]tftypes.Value{"management": usable, "credentials_from": prod, "talosconfig_path": textOf("a")}, "credentials_from"},
		"credentials and a kubeconfig":      {map[string]tftypes.Value{"management": usable, "credentials_from": prod, "kubeconfig": textOf("a")}, "credentials_from"},
		"credentials and a kubeconfig path": {map[string]tftypes.Value{"management": usable, "credentials_from": prod, "kubeconfig_path": textOf("a")}, "credentials_from"},
		"credentials and a certificate": {
			map[string]tftypes.Value{"management": usable, "credentials_from": prod, "endpoints": endpoints, "client_configuration": certificate}, "credentials_from",
		},
	} {
		t.Run(name, func(t *testing.T) {
			diagnostics := validateProvider(t.Context(), t, test.set)
			for _, diagnostic := range diagnostics {
				t.Logf("%s: %s\n%s", diagnostic.Attribute, diagnostic.Summary, diagnostic.Detail)
			}

			if test.at == "" {
				if len(diagnostics) != 0 {
					t.Fatal("refused")
				}

				return
			}

			if len(diagnostics) != 1 {
				t.Fatalf("got %d diagnostics, want 1", len(diagnostics))
			}

			if at := attributeText(t, diagnostics[0]); at != test.at {
				t.Errorf("points at %s, want %s", at, test.at)
			}
		})
	}
}

// TestManagementCluster_UnknownValuesAreNamed: a provider block that is not
// known yet is configured all the same, and says what it waits for once.
func TestManagementCluster_UnknownValuesAreNamed(t *testing.T) {
	managementTypes := map[string]attr.Type{attrname.Kubeconfig: types.StringType, attrname.KubeconfigPath: types.StringType, attrname.Context: types.StringType}
	fromTypes := map[string]attr.Type{attrname.Namespace: types.StringType, attrname.Name: types.StringType}

	for name, test := range map[string]struct {
		management, from types.Object
		want             []string
	}{
		"nothing": {types.ObjectNull(managementTypes), types.ObjectNull(fromTypes), nil},
		"known": {
			types.ObjectValueMust(managementTypes, map[string]attr.Value{attrname.Kubeconfig: types.StringValue("a"), attrname.KubeconfigPath: types.StringNull(), attrname.Context: types.StringValue("b")}),
			types.ObjectValueMust(fromTypes, map[string]attr.Value{attrname.Namespace: types.StringValue("tenant-a"), attrname.Name: types.StringValue("prod")}),
			nil,
		},
		"parts": {
			types.ObjectValueMust(managementTypes, map[string]attr.Value{attrname.Kubeconfig: types.StringUnknown(), attrname.KubeconfigPath: types.StringNull(), attrname.Context: types.StringUnknown()}),
			types.ObjectValueMust(fromTypes, map[string]attr.Value{attrname.Namespace: types.StringUnknown(), attrname.Name: types.StringUnknown()}),
			[]string{attrname.Management, attrname.CredentialsFrom},
		},
		"all": {types.ObjectUnknown(managementTypes), types.ObjectUnknown(fromTypes), []string{attrname.Management, attrname.CredentialsFrom}},
	} {
		t.Run(name, func(t *testing.T) {
			model := providerModel{
				Endpoints: types.ListNull(types.StringType), ClientConfiguration: types.ObjectNull(nil), Management: test.management, CredentialsFrom: test.from,
			}

			access, diagnostics := model.credentials(t.Context())
			wellDone(t, diagnostics)

			if !slices.Equal(access.Unknown, test.want) {
				t.Errorf("unknown are %v, want %v", access.Unknown, test.want)
			}

			if name == "known" && (access.Management.Kubeconfig != "a" || access.Management.Context != "b" || access.From.String() != "tenant-a/prod") {
				t.Errorf("got %+v and %s", access.Management, access.From)
			}

			if name == "nothing" && (access.Management != nil || access.From != nil) {
				t.Errorf("got %+v and %s", access.Management, access.From)
			}
		})
	}
}

// TestManagementCluster_KubeconfigIsSensitive: the one of the upgraded cluster is too,
// and has the same name.
func TestManagementCluster_KubeconfigIsSensitive(t *testing.T) {
	_, schema := serve(t)

	for _, attribute := range schema.Provider.Block.Attributes {
		if attribute.Name != attrname.Management {
			continue
		}

		for _, nested := range attribute.NestedType.Attributes {
			if nested.Sensitive != (nested.Name == attrname.Kubeconfig) {
				t.Errorf("%s.%s: sensitive is %t", attribute.Name, nested.Name, nested.Sensitive)
			}

			if nested.Description == "" {
				t.Errorf("%s.%s has no description", attribute.Name, nested.Name)
			}
		}

		return
	}

	t.Error("there is no management")
}

// TestProvider_NoMessageRepeatsAPassword: output of Terraform is kept by pipelines, and
// an address with a password is a mistake that is easily made.
func TestProvider_NoMessageRepeatsAPassword(t *testing.T) {
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
			"validated as a source of Talos":      judged(releases.LocationText(version.Talos), address),
			"validated as a source of Kubernetes": judged(releases.LocationText(version.Kubernetes), address),
			"validated as a factory":              judged(releases.FactoryURLText(), address),
			"validated as an installer image":     judged(attribute.InstallerImage(attrname.TalosVersion), address),
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
				clusters.Releases = defaults(t, types.StringValue(address), providerSourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

				_, diagnostics := readAvailable(t, clusters, map[string]tftypes.Value{"talos_version": textOf("1.13.0")})

				return diagnostics
			},
			"planned with a factory": func(t *testing.T) diag.Diagnostics {
				t.Helper()

				clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
				clusters.Releases.FactoryURL = types.StringValue(address)

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

		return told.Noted(t, resp.Diagnostics)
	}
}

// TestExample_CoversEveryAttribute: who looks for an attribute in the documentation
// finds it in use. What can be set is set somewhere below examples, at its own
// place; what can only be read is read in a file that has its resource or data
// source; and each function is called.
func TestExample_CoversEveryAttribute(t *testing.T) {
	answer, err := providerserver.NewProtocol6(New("test")())().GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}

	shown := readExamples(t, filepath.Join("..", "..", "examples"))

	wanted := map[string]*tfprotov6.Schema{"provider talosupgrade": answer.Provider}
	for name, schema := range answer.ResourceSchemas {
		wanted["resource "+name] = schema
	}

	for name, schema := range answer.DataSourceSchemas {
		wanted["data "+name] = schema
	}

	if len(wanted) < 6 || len(answer.Functions) == 0 {
		t.Fatalf("%d schemas and %d functions", len(wanted), len(answer.Functions))
	}

	var missing []string

	for of, schema := range wanted {
		if len(schema.Block.BlockTypes) > 0 {
			t.Errorf("%s has nested blocks, which this test does not look into", of)
		}

		missing = append(missing, shown.without(of, schema.Block.Attributes)...)
	}

	for name := range answer.Functions {
		if !shown.calls["provider::talosupgrade::"+name] {
			missing = append(missing, "function "+name)
		}
	}

	slices.Sort(missing)

	for _, one := range missing {
		t.Errorf("%s is in no example", one)
	}
}

// examples is what the files below examples use.
type examples struct {
	// set holds "resource talosupgrade_cluster.drain.timeout".
	set map[string]bool
	// read holds, by "resource talosupgrade_cluster", the names that a file with
	// such a block or a reference to one selects from values.
	read map[string]map[string]bool
	// calls holds the functions.
	calls map[string]bool
}

// without are the attributes of a block that no example has, by their paths.
func (e examples) without(of string, attributes []*tfprotov6.SchemaAttribute) []string {
	kind, _, _ := strings.Cut(of, ".")

	var missing []string

	for _, attribute := range attributes {
		place := of + "." + attribute.Name

		if settable := attribute.Required || attribute.Optional; settable && !e.set[place] || !settable && !e.read[kind][attribute.Name] {
			missing = append(missing, place)
		}

		if attribute.NestedType != nil {
			missing = append(missing, e.without(place, attribute.NestedType.Attributes)...)
		}
	}

	return missing
}

func readExamples(t *testing.T, root string) examples {
	t.Helper()

	shown := examples{set: map[string]bool{}, read: map[string]map[string]bool{}, calls: map[string]bool{}}

	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".tf" {
			return err
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		file, problems := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
		if problems.HasErrors() {
			return problems
		}

		if body, ok := file.Body.(*hclsyntax.Body); ok {
			shown.add(body)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return shown
}

// add takes in one file.
func (e examples) add(file *hclsyntax.Body) {
	var kinds []string

	for _, block := range file.Blocks {
		inner := blocksOf(block)
		for _, one := range inner {
			kind := one.Type + " " + one.Labels[0]
			kinds = append(kinds, kind)

			for name, attribute := range one.Body.Attributes {
				e.give(kind+"."+name, attribute.Expr)
			}
		}
	}

	selected := map[string]bool{}

	// The walk has no errors of its own.
	_ = hclsyntax.VisitAll(file, func(node hclsyntax.Node) hcl.Diagnostics {
		switch expression := node.(type) {
		case *hclsyntax.ScopeTraversalExpr:
			kinds = append(kinds, references(expression.Traversal)...)
			selects(expression.Traversal, selected)
		case *hclsyntax.RelativeTraversalExpr:
			selects(expression.Traversal, selected)
		case *hclsyntax.FunctionCallExpr:
			e.calls[expression.Name] = true
		}

		return nil
	})

	for _, kind := range kinds {
		if e.read[kind] == nil {
			e.read[kind] = map[string]bool{}
		}

		for name := range selected {
			e.read[kind][name] = true
		}
	}
}

// blocksOf is a block of the provider's, or those in a check, which may have data
// sources of its own.
func blocksOf(block *hclsyntax.Block) []*hclsyntax.Block {
	switch block.Type {
	case "provider", "resource", "data":
		return []*hclsyntax.Block{block}
	case "check":
		return slices.DeleteFunc(slices.Clone(block.Body.Blocks), func(inner *hclsyntax.Block) bool { return inner.Type != "data" })
	default:
		return nil
	}
}

// give takes in that a place is set, and what is set within it: elements of lists
// and of maps are all at the same place as far as the schema is concerned.
func (e examples) give(place string, value hclsyntax.Expression) {
	e.set[place] = true

	switch value := value.(type) {
	case *hclsyntax.ObjectConsExpr:
		for _, item := range value.Items {
			key, problems := item.KeyExpr.Value(nil)
			if problems.HasErrors() {
				continue
			}

			e.give(place+"."+key.AsString(), item.ValueExpr)
			// Where the schema has a map, the key is a name and no attribute.
			e.inside(place, item.ValueExpr)
		}
	case *hclsyntax.TupleConsExpr:
		for _, element := range value.Exprs {
			e.inside(place, element)
		}
	case *hclsyntax.ForExpr:
		e.inside(place, value.ValExpr)
	}
}

// inside takes in an element of a list or a map.
func (e examples) inside(place string, element hclsyntax.Expression) {
	object, ok := element.(*hclsyntax.ObjectConsExpr)
	if !ok {
		return
	}

	for _, item := range object.Items {
		if key, problems := item.KeyExpr.Value(nil); !problems.HasErrors() {
			e.give(place+"."+key.AsString(), item.ValueExpr)
		}
	}
}

// references is the kind of the block that a traversal begins at, if it is one.
func references(traversal hcl.Traversal) []string {
	root := traversal.RootName()
	if strings.HasPrefix(root, "talosupgrade_") {
		return []string{"resource " + root}
	}

	if root != "data" || len(traversal) < 2 {
		return nil
	}

	if kind, ok := traversal[1].(hcl.TraverseAttr); ok {
		return []string{"data " + kind.Name}
	}

	return nil
}

// selects adds the names that a traversal selects.
func selects(traversal hcl.Traversal, selected map[string]bool) {
	for _, step := range traversal {
		if attribute, ok := step.(hcl.TraverseAttr); ok {
			selected[attribute.Name] = true
		}
	}
}
