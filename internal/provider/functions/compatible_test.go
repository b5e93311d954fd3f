// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"strconv"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
)

func versionValues(texts ...string) []attr.Value {
	values := make([]attr.Value, 0, len(texts))
	for _, text := range texts {
		values = append(values, types.StringValue(text))
	}

	return values
}

func TestCompatible_AnswersAsTheMatrix(t *testing.T) {
	t.Parallel()

	_, newestKubernetes := compat.KubernetesRange()

	for name, test := range map[string]struct {
		talos, kubernetes string
		want              bool
	}{
		"oldest":               {"1.13.4", "1.31.0", true},
		"newest, with v":       {"v1.13.4", "v1.36.9", true},
		"below the oldest":     {"1.13.4", "1.30.14", false},
		"above the newest":     {"1.12.6", "1.36.0", false},
		"newest of all known":  {"1.13.4", newestKubernetes.String() + ".0", false},
		"older than all known": {"1.13.4", "1.10.0", false},
		"pre-release of Talos": {"1.13.0-beta.1", "1.35.2", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, refused := callFunction(t, newCompatibleFunction(), versionValues(test.talos, test.kubernetes)...)
			if refused != nil {
				t.Fatal(refused)
			}

			if got != strconv.FormatBool(test.want) {
				t.Errorf("compatible(%q, %q) is %s, want %t", test.talos, test.kubernetes, got, test.want)
			}
		})
	}
}

func TestCompatible_RefusesWhatItCannotAnswer(t *testing.T) {
	t.Parallel()

	oldest, newest := compat.TalosMinors()
	_, newestKubernetes := compat.KubernetesRange()
	beyond := []string{"Kubernetes", "newer", "ends at Kubernetes " + newestKubernetes.String()}

	for name, test := range map[string]struct {
		talos, kubernetes string
		position          int64
		says              []string
	}{
		"no Talos version":              {"latest", "1.35.2", 0, []string{`"latest"`, "1.13.4"}},
		"minor of Talos":                {"1.13", "1.35.2", 0, []string{`"1.13"`, "MAJOR.MINOR.PATCH"}},
		"empty Talos version":           {"", "1.35.2", 0, []string{`""`}},
		"no Kubernetes version":         {"1.13.4", "newest", 1, []string{`"newest"`}},
		"minor of Kubernetes":           {"1.13.4", "v1.35", 1, []string{`"v1.35"`, "MAJOR.MINOR.PATCH"}},
		"newer than the matrix":         {newest.Next().String() + ".0", "1.38.0", 0, []string{"newer", "ends at Talos " + newest.String()}},
		"next major":                    {"2.0.0", "1.38.0", 0, []string{"newer", "ends at Talos " + newest.String()}},
		"older than the matrix":         {"1.1.0", "1.24.0", 0, []string{"older", "begins at Talos " + oldest.String()}},
		"Kubernetes beyond, last Talos": {newest.String() + ".0", "1.99.0", 1, beyond},
		"Kubernetes beyond, any Talos":  {"1.13.4", newestKubernetes.Next().String() + ".0", 1, beyond},
		"another major of Kubernetes":   {"1.13.4", "2.33.0", 1, beyond},
		"both beyond, first named":      {"1.99.0", "1.99.0", 0, []string{"ends at Talos " + newest.String()}},
		"two malformed, first named":    {"x", "y", 0, []string{`"x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, refused := callFunction(t, newCompatibleFunction(), versionValues(test.talos, test.kubernetes)...)
			wantRefusal(t, refused, test.position, test.says...)
		})
	}
}
