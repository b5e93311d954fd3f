// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// talosPlatform is a platform that Talos is installed on.
type talosPlatform struct {
	name string
	// since is the first Talos version that knows the platform; empty where
	// that was before all that matters here.
	since string
}

// talosPlatforms are the platforms of machinery's package platforms, in the
// order of their names.
func talosPlatforms() []talosPlatform {
	return []talosPlatform{
		{"akamai", "1.7.0"},
		{"alibabacloud", "1.14.0-beta.2"},
		{"aws", ""},
		{"azure", ""},
		{"cloudstack", "1.8.0-alpha.2"},
		{"digital-ocean", ""},
		{"equinixMetal", ""},
		{"exoscale", "1.3.0"},
		{"gcp", ""},
		{"hcloud", ""},
		{"metal", ""},
		{"nocloud", ""},
		{"opennebula", "1.7.0"},
		{"openstack", ""},
		{"oracle", ""},
		{"scaleway", ""},
		{"upcloud", ""},
		{"vmware", ""},
		{"vultr", ""},
	}
}

// platform is the platform that the argument names. The Talos version, where
// there is one, must know it.
func (a imageArgument) platform(talos version.Version) (string, *function.FuncError) {
	named, refused := a.required(imagePlatform, "metal")
	if refused != nil {
		return "", refused
	}

	names := make([]string, 0, len(talosPlatforms()))

	for _, known := range talosPlatforms() {
		if known.name != named {
			names = append(names, known.name)

			continue
		}

		if known.since != "" && !talos.IsZero() && talos.Less(version.MustParse(known.since)) {
			return "", refusal(a.position, "Talos %s has no platform %s, which came with Talos %s", talos, named, known.since)
		}

		return named, nil
	}

	return "", refusal(a.position, "%s is %q; Talos knows %s", imagePlatform, named, strings.Join(names, ", "))
}
