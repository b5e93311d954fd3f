// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSchemaGetsTheNameThatTheGeneratorLooksFor(t *testing.T) {
	const want = `{"format_version":"1.0","provider_schemas":{"talosupgrade":{"provider":{"version":0}}}}`

	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		t.Run(host, func(t *testing.T) {
			got, err := renameProvider([]byte(`{"format_version":"1.0","provider_schemas":{` +
				`"` + host + `/hashicorp/other":{},"` + host + `/vitistack/talosupgrade":{"provider":{"version":0}}}}`))
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchemaWithoutTheProviderIsRefused(t *testing.T) {
	for name, output := range map[string]string{
		"another provider": `{"provider_schemas":{"registry.terraform.io/hashicorp/other":{}}}`,
		"no JSON":          `Error: no schema`,
		"nothing at all":   `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := renameProvider([]byte(output)); err == nil {
				t.Errorf("got %s", got)
			}
		})
	}
}
