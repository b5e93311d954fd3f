// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

// configuredBlock are the diagnostics of a provider block, once validated and once configured.
func configuredBlock(t *testing.T, given map[string]tftypes.Value) (validated, configured []*tfprotov6.Diagnostic) {
	t.Helper()

	server, schemas := serve(t)
	d := driven{T: t, server: server}
	config := d.dynamic(empty(d.object(schemas.Provider.ValueType()), given))

	one, err := server.ValidateProviderConfig(t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}

	two, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}

	return told.NotedOnWire(t, one.Diagnostics), told.NotedOnWire(t, two.Diagnostics)
}

// TestCredentials_UnusableOnesNameTheirAttribute: once for all resources of the provider
// block, before any of them is looked at. What is in a context is found out by its use.
func TestCredentials_UnusableOnesNameTheirAttribute(t *testing.T) {
	const (
		kubeconfig  = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n"
		talosconfig = "context: a\ncontexts: {a: {endpoints: [10.5.0.2]}}\n"
	)

	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	for name, test := range map[string]struct {
		attribute, value string
		says             string
	}{
		"a kubeconfig as talosconfig":           {attrname.Talosconfig, kubeconfig, "provider attribute talosconfig: talosconfig not usable: it is a kubeconfig"},
		"a kubeconfig file as talosconfig":      {attrname.TalosconfigPath, file(kubeconfig), "it is a kubeconfig"},
		"a talosconfig as kubeconfig":           {attrname.Kubeconfig, talosconfig, "it is a talosconfig"},
		"a talosconfig file as kubeconfig":      {attrname.KubeconfigPath, file(talosconfig), "it is a talosconfig"},
		"malformed":                             {attrname.Talosconfig, "contexts: [unclosed", "malformed YAML"},
		"a file that is not there":              {attrname.TalosconfigPath, filepath.Join(t.TempDir(), "none"), "no such file"},
		"a talosconfig whose context is no use": {attrname.Talosconfig, talosconfig, ""},
	} {
		t.Run(name, func(t *testing.T) {
			validated, configured := configuredBlock(t, map[string]tftypes.Value{test.attribute: tftypes.NewValue(tftypes.String, test.value)})
			if len(validated) > 0 {
				t.Errorf("validation says %v", validated)
			}

			if test.says == "" {
				if len(configured) > 0 {
					t.Errorf("it says %v", configured[0])
				}

				return
			}

			if len(configured) != 1 || configured[0].Summary != "Unusable credentials" || attributeText(t, configured[0]) != test.attribute || !strings.Contains(configured[0].Detail, test.says) {
				t.Errorf("it says %v", configured)
			}
		})
	}
}

// TestCredentials_EmptyIsNotUnset: a variable that is empty by mistake, as in context = var.cluster, must not lead to
// the current context, or to the cluster of TALOSCONFIG.
func TestCredentials_EmptyIsNotUnset(t *testing.T) {
	for _, name := range []string{attrname.Talosconfig, attrname.TalosconfigPath, attrname.Context, attrname.Kubeconfig, attrname.KubeconfigPath} {
		for value, refused := range map[any]bool{"": true, nil: false, tftypes.UnknownValue: false} {
			t.Run(fmt.Sprintf("%s %v", name, value), func(t *testing.T) {
				validated, _ := configuredBlock(t, map[string]tftypes.Value{name: tftypes.NewValue(tftypes.String, value)})

				if !refused {
					if len(validated) > 0 {
						t.Errorf("it says %v", validated[0])
					}

					return
				}

				if len(validated) != 1 || validated[0].Summary != "Unusable credentials" || attributeText(t, validated[0]) != name || !strings.Contains(validated[0].Detail, name+" is empty") {
					t.Errorf("it says %v", validated)
				}
			})
		}
	}
}

// TestCredentials_EndpointsAreNoURLs: one with https:// is most likely that of the Kubernetes API.
func TestCredentials_EndpointsAreNoURLs(t *testing.T) {
	for written, want := range map[string]string{
		"https://10.5.0.2:6443":      `Write "10.5.0.2"`,
		"https://u:s3cret@10.5.0.2":  "Write the host",
		"u:s3cret@10.5.0.2":          "Write the host",
		"https://api.example.com/":   `Write "api.example.com"`,
		"10.5.0.2":                   "",
		"10.5.0.2:50000":             "",
		"[2001:db8::1]:50000":        "",
		"https://[2001:db8::1]:6443": `Write "2001:db8::1"`,
	} {
		text := tftypes.NewValue(tftypes.String, written)
		certificate := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"ca_certificate": tftypes.String, "client_certificate": tftypes.String, "client_key": tftypes.String}}

		validated, _ := configuredBlock(t, map[string]tftypes.Value{
			attrname.Endpoints: tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{text}),
			attrname.ClientConfiguration: tftypes.NewValue(certificate, map[string]tftypes.Value{
				"ca_certificate": text, "client_certificate": text, "client_key": text,
			}),
		})

		if want == "" {
			if len(validated) > 0 {
				t.Errorf("%s: %v", written, validated[0])
			}

			continue
		}

		if len(validated) != 1 || validated[0].Summary != "Invalid endpoint" || attributeText(t, validated[0]) != "endpoints[0]" || !strings.Contains(validated[0].Detail, want) ||
			strings.Contains(validated[0].Detail, "s3cret") {
			t.Errorf("%s: %v", written, validated)
		}
	}
}

// TestCredentials_UnusableClientConfigurationIsNamed: unless a part of it is not known yet.
func TestCredentials_UnusableClientConfigurationIsNamed(t *testing.T) {
	certificate := tftypes.Object{AttributeTypes: map[string]tftypes.Type{"ca_certificate": tftypes.String, "client_certificate": tftypes.String, "client_key": tftypes.String}}

	for name, test := range map[string]struct {
		key  any
		says string
	}{
		"no base64":     {"***", "endpoints and client_configuration: "},
		"not known yet": {tftypes.UnknownValue, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, configured := configuredBlock(t, map[string]tftypes.Value{
				attrname.Endpoints: tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{tftypes.NewValue(tftypes.String, "10.5.0.2")}),
				attrname.ClientConfiguration: tftypes.NewValue(certificate, map[string]tftypes.Value{
					"ca_certificate": tftypes.NewValue(tftypes.String, "***"), "client_certificate": tftypes.NewValue(tftypes.String, "***"),
					"client_key": tftypes.NewValue(tftypes.String, test.key),
				}),
			})

			switch {
			case test.says == "":
				if len(configured) > 0 {
					t.Errorf("it says %v", configured[0])
				}
			case len(configured) != 1 || attributeText(t, configured[0]) != attrname.ClientConfiguration || !strings.Contains(configured[0].Detail, test.says):
				t.Errorf("it says %v", configured)
			}
		})
	}
}
