// SPDX-License-Identifier: MPL-2.0

package releases

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func versionsOf(texts ...string) []version.Version {
	versions := make([]version.Version, 0, len(texts))
	for _, text := range texts {
		versions = append(versions, version.MustParse(text))
	}

	return versions
}

func TestOutlook_NextIsTheNewestReleaseOneStepAway(t *testing.T) {
	talos := versionsOf("1.11.3", "1.11.6", "1.12.0", "1.12.8", "1.13.4")
	kubernetes := versionsOf("1.33.1", "1.33.4", "1.34.2", "1.35.0", "1.35.2", "1.36.0")

	for name, test := range map[string]struct {
		talos, kubernetes         string
		wantTalos, wantKubernetes string
	}{
		"both":                                   {"1.12.0", "1.34.2", "1.13.4", "1.35.2"},
		"the newest of its line is passed by":    {"1.11.3", "1.33.1", "1.12.8", "1.34.2"},
		"Kubernetes that Talos does not support": {"1.11.6", "1.34.2", "1.12.8", ""},
		"nothing newer":                          {"1.13.4", "1.36.0", "", ""},
		"no Kubernetes":                          {"1.12.0", "", "1.13.4", ""},
		"Talos is not known":                     {"", "1.34.2", "", ""},
		"nothing is known":                       {"", "", "", ""},
		"Talos ahead of lists":                   {"1.99.0", "1.34.2", "", ""},
		"only a patch of either":                 {"1.13.0", "1.35.0", "1.13.4", "1.36.0"},
	} {
		t.Run(name, func(t *testing.T) {
			parse := func(text string) version.Version {
				if text == "" {
					return version.Version{}
				}

				return version.MustParse(text)
			}

			gotTalos, gotKubernetes := Next(parse(test.talos), parse(test.kubernetes), talos, kubernetes)
			if !gotTalos.Equal(parse(test.wantTalos)) || !gotKubernetes.Equal(parse(test.wantKubernetes)) {
				t.Errorf("got %q and %q, want %q and %q", gotTalos, gotKubernetes, test.wantTalos, test.wantKubernetes)
			}
		})
	}
}
