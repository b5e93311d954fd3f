// SPDX-License-Identifier: MPL-2.0

package attribute_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
)

func TestText_AcceptsAndRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		validator validator.String
		value     types.String
		valid     bool
	}{
		"version":                  {attribute.Version(), types.StringValue("1.13.4"), true},
		"version with v":           {attribute.Version(), types.StringValue("v1.13.4"), true},
		"pre-release":              {attribute.Version(), types.StringValue("1.14.0-rc.1"), true},
		"unknown version":          {attribute.Version(), types.StringUnknown(), true},
		"no version":               {attribute.Version(), types.StringNull(), true},
		"minor version":            {attribute.Version(), types.StringValue("1.13"), false},
		"word":                     {attribute.Version(), types.StringValue("latest"), false},
		"empty version":            {attribute.Version(), types.StringValue(""), false},
		"duration":                 {attribute.Duration(), types.StringValue("1h30m"), true},
		"unknown duration":         {attribute.Duration(), types.StringUnknown(), true},
		"zero":                     {attribute.Duration(), types.StringValue("0s"), false},
		"negative":                 {attribute.Duration(), types.StringValue("-1m"), false},
		"settled at once":          {attribute.DurationOrZero(), types.StringValue("0s"), true},
		"settled before":           {attribute.DurationOrZero(), types.StringValue("-1s"), false},
		"one worker":               {attribute.Share(), types.StringValue("1"), true},
		"share of the workers":     {attribute.Share(), types.StringValue("33%"), true},
		"leading zero":             {attribute.Share(), types.StringValue("02"), false},
		"leading zeros of a share": {attribute.Share(), types.StringValue("050%"), false},
		"no number":                {attribute.Share(), types.StringValue("%"), false},
		"unknown share":            {attribute.Share(), types.StringUnknown(), true},
		"more than all workers":    {attribute.Share(), types.StringValue("101%"), false},
		"empty share":              {attribute.Share(), types.StringValue(""), false},
		"number without unit":      {attribute.Duration(), types.StringValue("30"), false},
		"repository":               {attribute.InstallerImage("talos_version"), types.StringValue("registry.example.com:5000/talos/installer"), true},
		"installer with tag":       {attribute.InstallerImage("talos_version"), types.StringValue("ghcr.io/siderolabs/installer:v1.13.4"), true},
		"installer of today":       {attribute.InstallerImage("talos_version"), types.StringValue("ghcr.io/siderolabs/installer:latest"), false},
		"repository with tag":      {attribute.Image("kubernetes_version"), types.StringValue("ghcr.io/siderolabs/kubelet:v1.35.2"), false},
		"repository with digest":   {attribute.InstallerImage("talos_version"), types.StringValue("ghcr.io/siderolabs/installer@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"), true},
		"digest and tag":           {attribute.InstallerImage("talos_version"), types.StringValue("ghcr.io/siderolabs/installer:v1.13.4@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"), false},
		"half a digest":            {attribute.InstallerImage("talos_version"), types.StringValue("ghcr.io/siderolabs/installer@sha256:3765"), false},
		"no repository":            {attribute.InstallerImage("talos_version"), types.StringValue("Not A Reference"), false},
		"component":                {attribute.Image("kubernetes_version"), types.StringValue("registry.example.com:5000/k8s/kubelet"), true},
		"component with digest":    {attribute.Image("kubernetes_version"), types.StringValue("ghcr.io/siderolabs/kubelet@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"), false},
		"component with tag":       {attribute.Image("kubernetes_version"), types.StringValue("ghcr.io/siderolabs/kubelet:v1.35.2"), false},
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
			attribute.KeepVersion().PlanModifyString(t.Context(), planmodifier.StringRequest{StateValue: test.state, PlanValue: test.plan}, &resp)

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
			attribute.KeepDuration().PlanModifyString(t.Context(),
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
			attribute.KeepVersion().PlanModifyList(t.Context(), planmodifier.ListRequest{StateValue: test.state, PlanValue: test.plan}, &resp)

			if !resp.PlanValue.Equal(test.want) {
				t.Errorf("got %s, want %s", resp.PlanValue, test.want)
			}
		})
	}
}

func texts(elements ...string) types.List {
	values := make([]attr.Value, 0, len(elements))
	for _, element := range elements {
		values = append(values, types.StringValue(element))
	}

	return types.ListValueMust(types.StringType, values)
}

func TestDecides_NothingThatIsEmpty(t *testing.T) {
	object := func(value attr.Value) types.Object {
		return types.ObjectValueMust(map[string]attr.Type{"a": value.Type(t.Context())}, map[string]attr.Value{"a": value})
	}
	one := []attr.Value{types.StringValue("")}

	for name, test := range map[string]struct {
		value attr.Value
		want  bool
	}{
		"no value":                  {nil, false},
		"null":                      {types.StringNull(), false},
		"unknown":                   {types.StringUnknown(), false},
		"text":                      {types.StringValue(""), true},
		"false":                     {types.BoolValue(false), true},
		"empty list":                {types.ListValueMust(types.StringType, nil), false},
		"empty set":                 {types.SetValueMust(types.StringType, nil), false},
		"empty map":                 {types.MapValueMust(types.StringType, nil), false},
		"list":                      {types.ListValueMust(types.StringType, one), true},
		"set":                       {types.SetValueMust(types.StringType, one), true},
		"map":                       {types.MapValueMust(types.StringType, map[string]attr.Value{"": one[0]}), true},
		"object of null":            {object(types.StringNull()), false},
		"object of unknown":         {object(types.StringUnknown()), false},
		"object of an empty list":   {object(types.ListValueMust(types.StringType, nil)), false},
		"object of another object":  {object(object(types.BoolValue(false))), true},
		"object of objects of null": {object(object(types.BoolNull())), false},
	} {
		if got := attribute.Decides(test.value); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
