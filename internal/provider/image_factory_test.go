// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// TestImagesComeFromTheFactoryOfTheProviderBlock: from Talos 1.14 on there is
// no generic installer, and a private factory is there to be used instead of
// the public one.
func TestImagesComeFromTheFactoryOfTheProviderBlock(t *testing.T) {
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

// TestUnknownFactoryIsLookedAtDuringApply: which image a node gets depends on it.
func TestUnknownFactoryIsLookedAtDuringApply(t *testing.T) {
	t.Parallel()

	clusters := threeNodes("1.13.4", "1.34.2").clusters(t)
	clusters.releases.factoryURL = types.StringUnknown()

	_, diagnostics := planned(t, clusters, nil, desired("1.14.0", ""))
	check(t, diagnostics, outcome{diag.SeverityWarning, "only after an apply (image_factory_url)"})
}
