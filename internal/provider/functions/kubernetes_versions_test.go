// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
)

func TestKubernetesVersions_OfATalosVersion(t *testing.T) {
	t.Parallel()

	for talos, want := range map[string]string{
		"1.13.4":       `{"max":"1.36","min":"1.31"}`,
		"v1.13.0":      `{"max":"1.36","min":"1.31"}`,
		"1.8.0":        `{"max":"1.31","min":"1.26"}`,
		"1.14.0-rc.1":  `{"max":"1.37","min":"1.32"}`,
		"v1.10.99":     `{"max":"1.33","min":"1.28"}`,
		"1.9.0-beta.0": `{"max":"1.32","min":"1.27"}`,
	} {
		got, refused := callFunction(t, newKubernetesVersionsFunction(), versionValues(talos)...)
		if refused != nil {
			t.Fatal(refused)
		}

		if got != want {
			t.Errorf("kubernetes_versions(%q) is %s, want %s", talos, got, want)
		}
	}
}

func TestKubernetesVersions_RefuseWhatIsNotInTheMatrix(t *testing.T) {
	t.Parallel()

	_, newest := compat.TalosMinors()

	for talos, says := range map[string]string{
		"1.13":                        "MAJOR.MINOR.PATCH",
		"":                            "malformed",
		newest.Next().String() + ".0": "ends at Talos " + newest.String(),
		"1.0.0":                       "begins at Talos 1.8",
	} {
		_, refused := callFunction(t, newKubernetesVersionsFunction(), versionValues(talos)...)
		wantRefusal(t, refused, 0, says)
	}
}
