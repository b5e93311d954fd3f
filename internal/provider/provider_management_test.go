// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

func managementType() tftypes.Object {
	return tftypes.Object{AttributeTypes: map[string]tftypes.Type{"kubeconfig": tftypes.String, "kubeconfig_path": tftypes.String, "context": tftypes.String}}
}

func credentialsFromType() tftypes.Object {
	return tftypes.Object{AttributeTypes: map[string]tftypes.Type{"namespace": tftypes.String, "name": tftypes.String}}
}

func TestValidationOfTheManagementCluster(t *testing.T) {
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

// TestUnknownValuesOfTheManagementClusterAreNamed: a provider block that is not
// known yet is configured all the same, and says what it waits for once.
func TestUnknownValuesOfTheManagementClusterAreNamed(t *testing.T) {
	managementTypes := map[string]attr.Type{attrKubeconfig: types.StringType, attrKubeconfigPath: types.StringType, attrContext: types.StringType}
	fromTypes := map[string]attr.Type{attrNamespace: types.StringType, attrName: types.StringType}

	for name, test := range map[string]struct {
		management, from types.Object
		want             []string
	}{
		"nothing": {types.ObjectNull(managementTypes), types.ObjectNull(fromTypes), nil},
		"known": {
			types.ObjectValueMust(managementTypes, map[string]attr.Value{attrKubeconfig: types.StringValue("a"), attrKubeconfigPath: types.StringNull(), attrContext: types.StringValue("b")}),
			types.ObjectValueMust(fromTypes, map[string]attr.Value{attrNamespace: types.StringValue("tenant-a"), attrName: types.StringValue("prod")}),
			nil,
		},
		"parts": {
			types.ObjectValueMust(managementTypes, map[string]attr.Value{attrKubeconfig: types.StringUnknown(), attrKubeconfigPath: types.StringNull(), attrContext: types.StringUnknown()}),
			types.ObjectValueMust(fromTypes, map[string]attr.Value{attrNamespace: types.StringUnknown(), attrName: types.StringUnknown()}),
			[]string{attrManagement, attrCredentialsFrom},
		},
		"all": {types.ObjectUnknown(managementTypes), types.ObjectUnknown(fromTypes), []string{attrManagement, attrCredentialsFrom}},
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

// TestTheManagementKubeconfigIsSensitive: the one of the upgraded cluster is too,
// and has the same name.
func TestTheManagementKubeconfigIsSensitive(t *testing.T) {
	_, schema := serve(t)

	for _, attribute := range schema.Provider.Block.Attributes {
		if attribute.Name != attrManagement {
			continue
		}

		for _, nested := range attribute.NestedType.Attributes {
			if nested.Sensitive != (nested.Name == attrKubeconfig) {
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
