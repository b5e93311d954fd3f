// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
)

func TestValue_Validators(t *testing.T) {
	for name, test := range map[string]struct {
		validator validator.String
		value     types.String
		valid     bool
	}{
		"version":                  {versionValidator{}, types.StringValue("1.13.4"), true},
		"version with v":           {versionValidator{}, types.StringValue("v1.13.4"), true},
		"pre-release":              {versionValidator{}, types.StringValue("1.14.0-rc.1"), true},
		"unknown version":          {versionValidator{}, types.StringUnknown(), true},
		"no version":               {versionValidator{}, types.StringNull(), true},
		"minor version":            {versionValidator{}, types.StringValue("1.13"), false},
		"word":                     {versionValidator{}, types.StringValue("latest"), false},
		"empty version":            {versionValidator{}, types.StringValue(""), false},
		"duration":                 {durationValidator{}, types.StringValue("1h30m"), true},
		"unknown duration":         {durationValidator{}, types.StringUnknown(), true},
		"zero":                     {durationValidator{}, types.StringValue("0s"), false},
		"negative":                 {durationValidator{}, types.StringValue("-1m"), false},
		"settled at once":          {durationValidator{zero: true}, types.StringValue("0s"), true},
		"settled before":           {durationValidator{zero: true}, types.StringValue("-1s"), false},
		"one worker":               {shareValidator{}, types.StringValue("1"), true},
		"share of the workers":     {shareValidator{}, types.StringValue("33%"), true},
		"leading zero":             {shareValidator{}, types.StringValue("02"), false},
		"leading zeros of a share": {shareValidator{}, types.StringValue("050%"), false},
		"no number":                {shareValidator{}, types.StringValue("%"), false},
		"unknown share":            {shareValidator{}, types.StringUnknown(), true},
		"more than all workers":    {shareValidator{}, types.StringValue("101%"), false},
		"empty share":              {shareValidator{}, types.StringValue(""), false},
		"number without unit":      {durationValidator{}, types.StringValue("30"), false},
		"repository":               {repositoryValidator{}, types.StringValue("registry.example.com:5000/talos/installer"), true},
		"installer with tag":       {repositoryValidator{}, types.StringValue("ghcr.io/siderolabs/installer:v1.13.4"), true},
		"installer of today":       {repositoryValidator{}, types.StringValue("ghcr.io/siderolabs/installer:latest"), false},
		"repository with tag":      {repositoryValidator{by: "kubernetes_version"}, types.StringValue("ghcr.io/siderolabs/kubelet:v1.35.2"), false},
		"repository with digest":   {repositoryValidator{}, types.StringValue("ghcr.io/siderolabs/installer@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"), true},
		"digest and tag":           {repositoryValidator{}, types.StringValue("ghcr.io/siderolabs/installer:v1.13.4@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"), false},
		"half a digest":            {repositoryValidator{}, types.StringValue("ghcr.io/siderolabs/installer@sha256:3765"), false},
		"factory":                  {factoryURLValidator{}, types.StringValue("https://factory.example.com:8443/mirror/talos/"), true},
		"factory of one word":      {factoryURLValidator{}, types.StringValue("http://factory"), false},
		"factory on this machine":  {factoryURLValidator{}, types.StringValue("http://localhost:8080"), true},
		"factory in upper case":    {factoryURLValidator{}, types.StringValue("https://factory.example.com/Mirror"), false},
		"factory behind no port":   {factoryURLValidator{}, types.StringValue("https://factory.example.com:99999"), false},
		"no repository":            {repositoryValidator{}, types.StringValue("Not A Reference"), false},
		"component":                {repositoryValidator{by: attrKubernetesVersion}, types.StringValue("registry.example.com:5000/k8s/kubelet"), true},
		"component with digest":    {repositoryValidator{by: attrKubernetesVersion}, types.StringValue("ghcr.io/siderolabs/kubelet@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"), false},
		"component with tag":       {repositoryValidator{by: attrKubernetesVersion}, types.StringValue("ghcr.io/siderolabs/kubelet:v1.35.2"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var resp validator.StringResponse

			test.validator.ValidateString(t.Context(), validator.StringRequest{Path: path.Root("x"), ConfigValue: test.value}, &resp)

			if resp.Diagnostics.HasError() == test.valid {
				t.Errorf("valid is %t: %v", !test.valid, resp.Diagnostics)
			}
		})
	}
}

func TestValue_SpellingOfAVersionIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		state, plan, want types.String
	}{
		"v added":      {types.StringValue("1.13.4"), types.StringValue("v1.13.4"), types.StringValue("1.13.4")},
		"v removed":    {types.StringValue("v1.13.4"), types.StringValue("1.13.4"), types.StringValue("v1.13.4")},
		"other":        {types.StringValue("1.13.4"), types.StringValue("v1.13.5"), types.StringValue("v1.13.5")},
		"unknown":      {types.StringValue("1.13.4"), types.StringUnknown(), types.StringUnknown()},
		"removed":      {types.StringValue("1.13.4"), types.StringNull(), types.StringNull()},
		"first":        {types.StringNull(), types.StringValue("v1.13.4"), types.StringValue("v1.13.4")},
		"not a number": {types.StringValue("x"), types.StringValue("vx"), types.StringValue("vx")},
	} {
		t.Run(name, func(t *testing.T) {
			resp := planmodifier.StringResponse{PlanValue: test.plan}
			keepSpelling{sameVersion}.PlanModifyString(t.Context(), planmodifier.StringRequest{StateValue: test.state, PlanValue: test.plan}, &resp)

			if !resp.PlanValue.Equal(test.want) {
				t.Errorf("got %s, want %s", resp.PlanValue, test.want)
			}
		})
	}
}

func TestValue_SpellingOfADurationIsKept(t *testing.T) {
	for name, test := range map[string]struct{ state, plan, want string }{
		"another unit":  {"60s", "1m", "60s"},
		"zero":          {"0s", "0m", "0s"},
		"two units":     {"90m", "1h30m", "90m"},
		"other":         {"60s", "2m", "2m"},
		"no duration":   {"x", "0s", "0s"},
		"not a version": {"1.13.4", "v1.13.4", "v1.13.4"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := planmodifier.StringResponse{PlanValue: types.StringValue(test.plan)}
			keepSpelling{sameDuration}.PlanModifyString(t.Context(),
				planmodifier.StringRequest{StateValue: types.StringValue(test.state), PlanValue: resp.PlanValue}, &resp)

			if got := resp.PlanValue.ValueString(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestValue_SpellingOfVersionsInAListIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		state, plan, want types.List
	}{
		"v added":     {texts("1.12.8", "v1.13.4"), texts("v1.12.8", "v1.13.4"), texts("1.12.8", "v1.13.4")},
		"other":       {texts("1.12.8"), texts("v1.12.9"), texts("v1.12.9")},
		"other order": {texts("1.12.8", "1.13.4"), texts("1.13.4", "1.12.8"), texts("1.13.4", "1.12.8")},
		"one more":    {texts("1.12.8"), texts("v1.12.8", "1.13.4"), texts("v1.12.8", "1.13.4")},
		"first":       {types.ListNull(types.StringType), texts("v1.12.8"), texts("v1.12.8")},
		"removed":     {texts("1.12.8"), types.ListNull(types.StringType), types.ListNull(types.StringType)},
		"unknown":     {texts("1.12.8"), types.ListUnknown(types.StringType), types.ListUnknown(types.StringType)},
	} {
		t.Run(name, func(t *testing.T) {
			resp := planmodifier.ListResponse{PlanValue: test.plan}
			keepSpelling{sameVersion}.PlanModifyList(t.Context(), planmodifier.ListRequest{StateValue: test.state, PlanValue: test.plan}, &resp)

			if !resp.PlanValue.Equal(test.want) {
				t.Errorf("got %s, want %s", resp.PlanValue, test.want)
			}
		})
	}
}

func TestValue_DurationsArePrintedAsPeopleWriteThem(t *testing.T) {
	for want, duration := range map[string]time.Duration{
		"30m": 30 * time.Minute, "1h30m": 90 * time.Minute, "4h": 4 * time.Hour, "90s": 90 * time.Second, "10m30s": 630 * time.Second,
	} {
		got := diagnostic.Duration(duration)
		if parsed, err := time.ParseDuration(got); err != nil || parsed != duration {
			t.Errorf("%s does not read back: %s", duration, got)
		}

		if want != "90s" && got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestValue_EveryDurationMayBeSpelledOtherwise: whoever rewrites 60s to 1m changes
// nothing about the cluster.
func TestValue_EveryDurationMayBeSpelledOtherwise(t *testing.T) {
	attributes := testSchema(t).Attributes

	for name, of := range map[string]map[string]schema.Attribute{
		attrNodeTimeout: attributes, attrSettle: attributes,
		"timeout": nestedIn(t, attributes[attrDrain]), "timeout of manifests": {
			"timeout of manifests": nestedIn(t, nestedIn(t, attributes[attrKubernetes])[attrManifests])[attrTimeout],
		},
		attrBackoff: nestedIn(t, attributes[attrRetry]),
		"create":    nestedIn(t, attributes[attrTimeouts]), "update": nestedIn(t, attributes[attrTimeouts]), "read": nestedIn(t, attributes[attrTimeouts]),
	} {
		text, isText := of[name].(schema.StringAttribute)
		if !isText {
			t.Fatalf("%s is %T", name, of[name])
		}

		resp := planmodifier.StringResponse{PlanValue: types.StringValue("1m")}
		for _, modifier := range text.PlanModifiers {
			modifier.PlanModifyString(t.Context(), planmodifier.StringRequest{StateValue: types.StringValue("60s"), PlanValue: resp.PlanValue}, &resp)
		}

		if got := resp.PlanValue.ValueString(); got != "60s" {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func nestedIn(t *testing.T, attribute schema.Attribute) map[string]schema.Attribute {
	t.Helper()

	object, isObject := attribute.(schema.SingleNestedAttribute)
	if !isObject {
		t.Fatalf("%T has nothing in it", attribute)
	}

	return object.Attributes
}
