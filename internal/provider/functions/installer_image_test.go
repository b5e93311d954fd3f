// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"maps"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/siderolabs/talos/pkg/machinery/platforms"
)

const someSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

// imageObject is a good argument with the changes; "-" takes an attribute away.
func imageObject(changes map[string]any) types.Dynamic {
	attributes := map[string]any{"platform": "metal", "schematic": someSchematic, "version": "1.13.4"}
	maps.Copy(attributes, changes)
	maps.DeleteFunc(attributes, func(_ string, value any) bool { return value == "-" })

	return dynamicObject(attributes)
}

func TestInstallerImage_IsTheFactorysName(t *testing.T) {
	t.Parallel()

	asMap := types.DynamicValue(types.MapValueMust(types.StringType, map[string]attr.Value{
		"platform": types.StringValue("metal"), "schematic": types.StringValue(someSchematic),
		"version": types.StringValue("1.13.4"), "secure_boot": types.StringValue("true"), "factory": types.StringNull(),
	}))

	for name, test := range map[string]struct {
		argument types.Dynamic
		want     string
	}{
		"metal":             {imageObject(nil), "factory.talos.dev/metal-installer/" + someSchematic + ":v1.13.4"},
		"version with v":    {imageObject(map[string]any{"version": "v1.13.4"}), "factory.talos.dev/metal-installer/" + someSchematic + ":v1.13.4"},
		"pre-release":       {imageObject(map[string]any{"version": "1.14.0-rc.1"}), "factory.talos.dev/metal-installer/" + someSchematic + ":v1.14.0-rc.1"},
		"legacy Talos":      {imageObject(map[string]any{"version": "1.8.4"}), "factory.talos.dev/metal-installer/" + someSchematic + ":v1.8.4"},
		"without version":   {imageObject(map[string]any{"version": "-"}), "factory.talos.dev/metal-installer/" + someSchematic},
		"secure boot":       {imageObject(map[string]any{"secure_boot": true}), "factory.talos.dev/metal-installer-secureboot/" + someSchematic + ":v1.13.4"},
		"no secure boot":    {imageObject(map[string]any{"secure_boot": false}), "factory.talos.dev/metal-installer/" + someSchematic + ":v1.13.4"},
		"nulls":             {imageObject(map[string]any{"secure_boot": nil, "factory": nil}), "factory.talos.dev/metal-installer/" + someSchematic + ":v1.13.4"},
		"typed nulls":       {imageObject(map[string]any{"secure_boot": types.BoolNull(), "factory": types.StringNull()}), "factory.talos.dev/metal-installer/" + someSchematic + ":v1.13.4"},
		"cloud":             {imageObject(map[string]any{"platform": "aws"}), "factory.talos.dev/aws-installer/" + someSchematic + ":v1.13.4"},
		"dash in the name":  {imageObject(map[string]any{"platform": "digital-ocean"}), "factory.talos.dev/digital-ocean-installer/" + someSchematic + ":v1.13.4"},
		"Equinix Metal":     {imageObject(map[string]any{"platform": "equinixMetal"}), "factory.talos.dev/installer/" + someSchematic + ":v1.13.4"},
		"platform in time":  {imageObject(map[string]any{"platform": "alibabacloud", "version": "1.14.0"}), "factory.talos.dev/alibabacloud-installer/" + someSchematic + ":v1.14.0"},
		"own factory":       {imageObject(map[string]any{"factory": "factory.example.com"}), "factory.example.com/metal-installer/" + someSchematic + ":v1.13.4"},
		"port":              {imageObject(map[string]any{"factory": "registry.example.com:5000"}), "registry.example.com:5000/metal-installer/" + someSchematic + ":v1.13.4"},
		"path of a mirror":  {imageObject(map[string]any{"factory": "registry.example.com/talos/factory"}), "registry.example.com/talos/factory/metal-installer/" + someSchematic + ":v1.13.4"},
		"local registry":    {imageObject(map[string]any{"factory": "localhost"}), "localhost/metal-installer/" + someSchematic + ":v1.13.4"},
		"IPv6 address":      {imageObject(map[string]any{"factory": "[2001:db8::1]:5000"}), "[2001:db8::1]:5000/metal-installer/" + someSchematic + ":v1.13.4"},
		"a map of strings":  {asMap, "factory.talos.dev/metal-installer-secureboot/" + someSchematic + ":v1.13.4"},
		"everything at all": {imageObject(map[string]any{"platform": "nocloud", "secure_boot": true, "factory": "10.0.0.1:443"}), "10.0.0.1:443/nocloud-installer-secureboot/" + someSchematic + ":v1.13.4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, refused := callFunction(t, newInstallerImageFunction(), test.argument)
			if refused != nil {
				t.Fatal(refused)
			}

			if diff := cmp.Diff(strconv.Quote(test.want), got); diff != "" {
				t.Errorf("image (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInstallerImage_RefusesWhatTheFactoryDoesNotServe(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		argument types.Dynamic
		says     []string
	}{
		"no object":              {types.DynamicValue(types.StringValue("metal")), []string{"object with the attributes platform, schematic", `"metal"`}},
		"a list":                 {types.DynamicValue(types.TupleValueMust(nil, nil)), []string{"object", "a list"}},
		"misspelt attribute":     {imageObject(map[string]any{"secureboot": true}), []string{`"secureboot"`, "secure_boot"}},
		"no platform":            {imageObject(map[string]any{"platform": "-"}), []string{"platform is missing", `"metal"`}},
		"null platform":          {imageObject(map[string]any{"platform": nil}), []string{"platform is missing"}},
		"empty platform":         {imageObject(map[string]any{"platform": ""}), []string{"platform is empty"}},
		"unknown platform":       {imageObject(map[string]any{"platform": "metel"}), []string{`platform is "metel"`, "aws", "metal"}},
		"platform in capitals":   {imageObject(map[string]any{"platform": "AWS"}), []string{`platform is "AWS"`, "aws"}},
		"platform and path":      {imageObject(map[string]any{"platform": "../metal"}), []string{`platform is "../metal"`}},
		"platform of the future": {imageObject(map[string]any{"platform": "alibabacloud"}), []string{"alibabacloud", "1.13.4", "1.14.0"}},
		"no schematic":           {imageObject(map[string]any{"schematic": "-"}), []string{"schematic is missing"}},
		"short schematic":        {imageObject(map[string]any{"schematic": someSchematic[1:]}), []string{"schematic is", "64", "without extensions"}},
		"long schematic":         {imageObject(map[string]any{"schematic": someSchematic + "\n"}), []string{"schematic is", "64"}},
		"schematic in capitals":  {imageObject(map[string]any{"schematic": strings.ToUpper(someSchematic)}), []string{"lower case"}},
		"malformed version":      {imageObject(map[string]any{"version": "1.13"}), []string{"version", `"1.13"`, "MAJOR.MINOR.PATCH"}},
		"number as version":      {imageObject(map[string]any{"version": types.NumberValue(big.NewFloat(1.5))}), []string{"version must be a string", "the number 1.5"}},
		"null version":           {imageObject(map[string]any{"version": nil}), []string{"version is null", "without a tag"}},
		"word as flag":           {imageObject(map[string]any{"secure_boot": "yes"}), []string{"secure_boot must be true or false", `"yes"`}},
		"number as flag":         {imageObject(map[string]any{"secure_boot": types.NumberValue(big.NewFloat(1))}), []string{"secure_boot must be true or false", "the number 1"}},
		"factory with scheme":    {imageObject(map[string]any{"factory": "https://factory.talos.dev/"}), []string{"factory is", "without https://", `"factory.talos.dev"`}},
		"factory and slash":      {imageObject(map[string]any{"factory": "factory.talos.dev/"}), []string{"factory is", "slash at the end"}},
		"factory and query":      {imageObject(map[string]any{"factory": "factory.talos.dev?x=y"}), []string{"factory holds a user name or a query"}},
		"factory and way up":     {imageObject(map[string]any{"factory": "factory.talos.dev/.."}), []string{"factory is"}},
		"factory and space":      {imageObject(map[string]any{"factory": " factory.talos.dev"}), []string{"factory is"}},
		"factory and tag":        {imageObject(map[string]any{"factory": "factory.talos.dev/mirror:v1"}), []string{"factory is"}},
		"factory without dot":    {imageObject(map[string]any{"factory": "factory"}), []string{"factory is", "no registry"}},
		"port that is none":      {imageObject(map[string]any{"factory": "registry.example.com:70000"}), []string{"factory is", "port"}},
		"list as factory":        {imageObject(map[string]any{"factory": types.TupleValueMust(nil, nil)}), []string{"factory must be a string", "a list"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, refused := callFunction(t, newInstallerImageFunction(), test.argument)
			wantRefusal(t, refused, 0, test.says...)
		})
	}
}

func TestInstallerImage_DoesNotRepeatPasswords(t *testing.T) {
	t.Parallel()

	for _, factory := range []string{"robot:hunter2@registry.example.com", "https://robot:hunter2@registry.example.com"} {
		_, refused := callFunction(t, newInstallerImageFunction(), imageObject(map[string]any{"factory": factory}))
		wantRefusal(t, refused, 0, "user name")

		if strings.Contains(refused.Text, "hunter2") {
			t.Errorf("the error repeats the password: %s", refused.Text)
		}
	}
}

// TestInstallerImage_PlatformsAgreeWithMachinery fails when the machinery version in go.mod
// knows platforms that the function does not.
func TestInstallerImage_PlatformsAgreeWithMachinery(t *testing.T) {
	t.Parallel()

	const noMinimum = "0.0.0"

	theirs := map[string]string{}

	for _, platform := range append(platforms.CloudPlatforms(), platforms.MetalPlatform()) {
		theirs[platform.Name] = strings.TrimPrefix(platform.MinVersion.String(), noMinimum)
	}

	ours := map[string]string{}
	for _, platform := range talosPlatforms() {
		ours[platform.name] = platform.since
	}

	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("platforms (-machinery +ours):\n%s", diff)
	}
}
