// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// pathState is a state as the function returns it.
type pathState struct {
	Talos, Kubernetes *string
}

func state(talos, kubernetes any) types.Dynamic {
	return dynamicObject(map[string]any{"talos": talos, "kubernetes": kubernetes})
}

func upgradePath(t *testing.T, from, to types.Dynamic) []pathState {
	t.Helper()

	text, refused := callFunction(t, newUpgradePathFunction(), from, to)
	if refused != nil {
		t.Fatal(refused)
	}

	var path []pathState

	// Null is printed as <null>, which JSON does not know.
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "<null>", "null")), &path); err != nil {
		t.Fatalf("%v: %s", err, text)
	}

	return path
}

// spoken is the state as one text.
func (s pathState) spoken() string {
	spoken := func(text *string) string {
		if text == nil {
			return "null"
		}

		return *text
	}

	return spoken(s.Talos) + " " + spoken(s.Kubernetes)
}

func TestUpgradePath_HoldsBothEndsAndSupportedStates(t *testing.T) {
	t.Parallel()

	path := upgradePath(t, state("v1.11.3", "1.33.4"), state("1.13.0", "v1.34.2"))
	if first, last := path[0].spoken(), path[len(path)-1].spoken(); first != "1.11.3 1.33.4" || last != "1.13.0 1.34.2" {
		t.Errorf("the path goes from %s to %s", first, last)
	}

	var minors []string

	for _, step := range path {
		talos, kubernetes := version.MustParse(*step.Talos), version.MustParse(*step.Kubernetes)
		if err := compat.Supports(talos, kubernetes); err != nil {
			t.Error(err)
		}

		if minor := talos.Minor().String(); len(minors) == 0 || minors[len(minors)-1] != minor {
			minors = append(minors, minor)
		}
	}

	if diff := cmp.Diff([]string{"1.11", "1.12", "1.13"}, minors); diff != "" {
		t.Errorf("minor versions of Talos (-want +got):\n%s", diff)
	}
}

func TestUpgradePath_WithoutStatesInBetween(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		from, to types.Dynamic
		want     []string
	}{
		"nothing to do":            {state("1.13.4", "1.35.2"), state("v1.13.4", "v1.35.2"), []string{"1.13.4 1.35.2"}},
		"Talos alone":              {dynamicObject(map[string]any{"talos": "1.13.0"}), state("1.13.4", nil), []string{"1.13.0 null", "1.13.4 null"}},
		"no Kubernetes, no change": {state("1.13.4", types.StringNull()), state("1.13.4", nil), []string{"1.13.4 null"}},
		"Kubernetes stays":         {state("1.13.0", "1.35.2"), state("1.13.4", nil), []string{"1.13.0 1.35.2", "1.13.4 1.35.2"}},
		"Kubernetes alone":         {state("1.13.4", "1.34.2"), state("1.13.4", "1.35.0"), []string{"1.13.4 1.34.2", "1.13.4 1.35.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var got []string
			for _, step := range upgradePath(t, test.from, test.to) {
				got = append(got, step.spoken())
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpgradePath_SaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()

	_, newest := compat.TalosMinors()
	beyond := newest.Next().String() + ".0"

	for name, test := range map[string]struct {
		from, to types.Dynamic
		position int64
		says     []string
	}{
		"no object":                {types.DynamicValue(types.StringValue("1.12.0")), state("1.13.4", nil), 0, []string{"object with the attributes talos, kubernetes", `"1.12.0"`}},
		"no target":                {state("1.12.0", nil), types.DynamicValue(types.BoolValue(true)), 1, []string{"object", "true"}},
		"misspelt attribute":       {state("1.12.0", nil), dynamicObject(map[string]any{"talos": "1.13.4", "kubernets": "1.35.2"}), 1, []string{`"kubernets"`, "kubernetes"}},
		"start without Talos":      {dynamicObject(map[string]any{"kubernetes": "1.35.2"}), state("1.13.4", nil), 0, []string{"talos is missing"}},
		"target without Talos":     {state("1.13.4", "1.34.2"), dynamicObject(map[string]any{"kubernetes": "1.35.2"}), 1, []string{"talos is missing"}},
		"null as Talos":            {state(nil, "1.34.2"), state("1.13.4", "1.34.2"), 0, []string{"talos is missing"}},
		"malformed Talos":          {state("1.12", nil), state("1.13.4", nil), 0, []string{"talos", `"1.12"`, "MAJOR.MINOR.PATCH"}},
		"malformed target":         {state("1.12.0", nil), state("next", nil), 1, []string{"talos", `"next"`}},
		"malformed Kubernetes":     {state("1.12.0", "1.35"), state("1.13.4", "1.35.2"), 0, []string{"kubernetes", `"1.35"`}},
		"number as Talos":          {state(types.NumberValue(big.NewFloat(1.5)), nil), state("1.13.4", nil), 0, []string{"talos must be a string", "1.5"}},
		"Kubernetes from nowhere":  {state("1.12.0", nil), state("1.13.4", "1.35.2"), 0, []string{"kubernetes is missing", "1.35.2"}},
		"downgrade of Talos":       {state("1.13.4", nil), state("1.12.6", nil), 1, []string{"1.13.4", "1.12.6"}},
		"patch downgrade":          {state("1.13.4", nil), state("1.13.3", nil), 1, []string{"1.13.4", "1.13.3"}},
		"downgrade of Kubernetes":  {state("1.13.4", "1.35.2"), state("1.13.4", "1.34.9"), 1, []string{"1.35.2", "1.34.9"}},
		"unsupported target":       {state("1.12.0", "1.35.2"), state("1.12.6", "1.36.0"), 1, []string{"1.36"}},
		"newer than the matrix":    {state("1.13.4", nil), state(beyond, nil), 1, []string{beyond, "ends at Talos " + newest.String()}},
		"Kubernetes of the future": {state("1.13.4", "1.35.2"), state("1.13.4", "1.99.0"), 1, []string{"1.99", "newer release of this provider"}},
		"line without a release":   {state("1.5.0", nil), state("1.8.0", nil), 1, []string{"1.6, 1.7", "no release is known", "newer release of this provider"}},
		"Kubernetes that stays on": {state("1.13.4", "1.31.4"), state("1.14.1", nil), 1, []string{"1.31.4", "1.14", "1.32", "kubernetes is not set", "another Talos version"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, refused := callFunction(t, newUpgradePathFunction(), test.from, test.to)
			wantRefusal(t, refused, test.position, test.says...)

			for _, name := range []string{"talos_version", "kubernetes_version", "intermediate_versions", "allow_unknown_versions"} {
				if strings.Contains(refused.Text, name) {
					t.Errorf("the error names %s, which the function does not have: %s", name, refused.Text)
				}
			}
		})
	}
}
