// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func versionsOf(texts ...string) []version.Version {
	versions := make([]version.Version, 0, len(texts))
	for _, text := range texts {
		versions = append(versions, version.MustParse(text))
	}

	return versions
}

func TestNextIsTheNewestReleaseOneStepAway(t *testing.T) {
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

			gotTalos, gotKubernetes := next(parse(test.talos), parse(test.kubernetes), talos, kubernetes)
			if !gotTalos.Equal(parse(test.wantTalos)) || !gotKubernetes.Equal(parse(test.wantKubernetes)) {
				t.Errorf("got %q and %q, want %q and %q", gotTalos, gotKubernetes, test.wantTalos, test.wantKubernetes)
			}
		})
	}
}

// TestReleasesThatNeedNoNetworkAreKnownAtOnce: an upgrade announces what is ahead
// with its first word.
func TestReleasesThatNeedNoNetworkAreKnownAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		defaults        releaseDefaults
		wantTalosIsJust string
	}{
		"embedded": {releaseDefaults{}, ""},
		"given": {defaults(t, types.StringNull(), sourceOf(map[string]tftypes.Value{
			"talos_versions":      tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("1.13.1")}),
			"kubernetes_versions": tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("1.35.0")}),
		})), "1.13.1"},
	} {
		t.Run(name, func(t *testing.T) {
			known, end := test.defaults.outlook(t.Context(), "test")
			defer end()

			talos, kubernetes := known.next(version.MustParse("1.12.0"), version.MustParse("1.34.0"))
			if talos.IsZero() || kubernetes.IsZero() {
				t.Errorf("ahead are %q and %q", talos, kubernetes)
			}

			if test.wantTalosIsJust != "" && talos.String() != test.wantTalosIsJust {
				t.Errorf("ahead is Talos %s, want %s", talos, test.wantTalosIsJust)
			}

			// The same question again, and another one.
			if again, _ := known.next(version.MustParse("1.12.0"), version.MustParse("1.34.0")); !again.Equal(talos) {
				t.Errorf("asked again: %s", again)
			}

			if newest, _ := known.next(version.MustParse("1.99.0"), version.MustParse("1.34.0")); !newest.IsZero() {
				t.Errorf("ahead of 1.99.0: %s", newest)
			}
		})
	}
}

// TestSourceThatDoesNotAnswerHoldsNothingUp: what is ahead is only not known then,
// and nobody waits for the source in the end.
func TestSourceThatDoesNotAnswerHoldsNothingUp(t *testing.T) {
	asked := make(chan struct{}, 10)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}

		<-r.Context().Done()
	}))

	defer hanging.Close()

	from := defaults(t, types.StringValue(hanging.URL), sourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	known, end := from.outlook(ctx, "test")

	<-asked

	if talos, kubernetes := known.next(version.MustParse("1.12.0"), version.MustParse("1.34.0")); !talos.IsZero() || kubernetes.IsZero() {
		t.Errorf("ahead are %q and %q, want no Talos and some Kubernetes", talos, kubernetes)
	}

	end()
}
