// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	preset "github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

// planOf is the first plan of a configuration that sets no more than what is given.
func (d driven) planOf(given map[string]tftypes.Value) tftypes.Value {
	d.Helper()

	config := d.dynamic(empty(d.kind, given))

	resp, err := d.server.PlanResourceChange(d.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: attrname.TypeName + "_cluster", PriorState: d.dynamic(tftypes.NewValue(d.kind, nil)), ProposedNewState: config, Config: config,
	})
	if err != nil {
		d.Fatal(err)
	}

	for _, diagnostic := range resp.Diagnostics {
		if diagnostic.Severity == tfprotov6.DiagnosticSeverityError {
			d.Fatalf("%s: %s", diagnostic.Summary, diagnostic.Detail)
		}
	}

	return d.value(resp.PlannedState)
}

// TestSchema_EveryDefaultIsInThePlan: what an apply goes by is in the plan, and a module that
// passes objects of nulls on gets the same as one that passes nothing.
func TestSchema_EveryDefaultIsInThePlan(t *testing.T) {
	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	versions := map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.4")}
	plain := d.planOf(versions)

	for name, want := range map[string]tftypes.Value{
		attrname.Mode:             tftypes.NewValue(tftypes.String, "direct"),
		attrname.OnFailure:        tftypes.NewValue(tftypes.String, "stop"),
		attrname.OnSuspend:        tftypes.NewValue(tftypes.String, "wait"),
		attrname.SyncInstallImage: tftypes.NewValue(tftypes.Bool, false),
		attrname.MaxUnavailable:   tftypes.NewValue(tftypes.String, "1"),
		attrname.Settle:           tftypes.NewValue(tftypes.String, "0s"),
	} {
		if got := d.attribute(plain, name); !got.Equal(want) {
			t.Errorf("%s is planned as %s, want %s", name, got, want)
		}
	}

	// Publishing, snapshots and windows have arguments that Terraform wants to be there.
	for _, name := range []string{attrname.Drain, attrname.Kubernetes, attrname.Retry, attrname.Preflight, attrname.Timeouts} {
		given := map[string]tftypes.Value{name: empty(d.object(d.kind.AttributeTypes[name]), nil)}
		for version, value := range versions {
			given[version] = value
		}

		for attribute := range d.kind.AttributeTypes {
			if attribute == name && (name == attrname.Preflight || name == attrname.Timeouts) {
				continue // which have no default, and stay as they are written
			}

			if got, want := d.attribute(d.planOf(given), attribute), d.attribute(plain, attribute); !got.Equal(want) {
				t.Errorf("with %s full of nulls %s is planned as %s, want %s", name, attribute, got, want)
			}
		}
	}
}

// TestSchema_ManifestsFollowKubernetesInThePlan: whether they are synced is decided by
// kubernetes_version where nothing else says so.
func TestSchema_ManifestsFollowKubernetesInThePlan(t *testing.T) {
	kinds := drive(t, threeNodes("1.13.4", "1.34.2"))
	kind := kinds.object(kinds.kind.AttributeTypes[attrname.Kubernetes])
	manifests := kinds.object(kind.AttributeTypes[attrname.Manifests])

	saying := func(sync any) tftypes.Value {
		return empty(kind, map[string]tftypes.Value{
			attrname.Manifests: empty(manifests, map[string]tftypes.Value{attrname.Sync: tftypes.NewValue(tftypes.Bool, sync)}),
		})
	}

	for name, test := range map[string]struct {
		version any
		given   tftypes.Value
		want    any
	}{
		"not managed":                       {nil, tftypes.NewValue(kind, nil), false},
		"not managed, with options":         {nil, saying(nil), false},
		"not managed, and wanted":           {nil, saying(true), true},
		"managed":                           {"1.34.2", tftypes.NewValue(kind, nil), true},
		"managed, with options":             {"1.34.2", saying(nil), true},
		"managed, and not wanted":           {"1.34.2", saying(false), false},
		"not known whether it is":           {tftypes.UnknownValue, tftypes.NewValue(kind, nil), tftypes.UnknownValue},
		"not known whether it is, and none": {tftypes.UnknownValue, saying(false), false},
		"managed, not known whether wanted": {"1.34.2", saying(tftypes.UnknownValue), tftypes.UnknownValue},
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, threeNodes("1.13.4", "1.34.2"))
			planned := d.planOf(map[string]tftypes.Value{
				attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.4"), attrname.KubernetesVersion: tftypes.NewValue(tftypes.String, test.version), attrname.Kubernetes: test.given,
			})

			sync := d.attribute(d.attribute(d.attribute(planned, attrname.Kubernetes), attrname.Manifests), attrname.Sync)
			if want := tftypes.NewValue(tftypes.Bool, test.want); !want.Equal(sync) {
				t.Errorf("sync is planned as %s, want %s", sync, want)
			}
		})
	}
}

// TestSchema_DefaultsAreKnown: a default of which something is unknown differs from every state,
// so that a plan that changes nothing works through each value of each node.
func TestSchema_DefaultsAreKnown(t *testing.T) {
	var walk func(at path.Path, attributes map[string]schema.Attribute) (found int)

	walk = func(at path.Path, attributes map[string]schema.Attribute) (found int) {
		for name, attribute := range attributes {
			object, nested := attribute.(schema.SingleNestedAttribute)
			if !nested {
				continue
			}

			here := at.AtName(name)
			found += walk(here, object.Attributes)

			if object.Default == nil {
				continue
			}

			var resp preset.ObjectResponse

			object.Default.DefaultObject(t.Context(), preset.ObjectRequest{Path: here}, &resp)

			value, err := resp.PlanValue.ToTerraformValue(t.Context())
			if err != nil || !value.IsFullyKnown() {
				t.Errorf("the default of %s is %s, %v", here, value, err)
			}

			found++
		}

		return found
	}

	if walk(path.Empty(), clusterSchema(t.Context()).Attributes) == 0 {
		t.Error("no object has a default")
	}
}

// TestSchema_EveryDurationMayBeSpelledOtherwise: whoever rewrites 60s to 1m changes nothing about the cluster.
func TestSchema_EveryDurationMayBeSpelledOtherwise(t *testing.T) {
	var walk func(at path.Path, attributes map[string]schema.Attribute) (found int)

	walk = func(at path.Path, attributes map[string]schema.Attribute) (found int) {
		for name, of := range attributes {
			switch of := of.(type) {
			case schema.SingleNestedAttribute:
				found += walk(at.AtName(name), of.Attributes)
			case schema.ListNestedAttribute:
				found += walk(at.AtName(name), of.NestedObject.Attributes)
			case schema.MapNestedAttribute:
				found += walk(at.AtName(name), of.NestedObject.Attributes)
			case schema.StringAttribute:
				if !isDuration(of) {
					continue
				}

				found++

				resp := planmodifier.StringResponse{PlanValue: types.StringValue("1m")}
				for _, modifier := range of.PlanModifiers {
					modifier.PlanModifyString(t.Context(), planmodifier.StringRequest{StateValue: types.StringValue("60s"), PlanValue: resp.PlanValue}, &resp)
				}

				if got := resp.PlanValue.ValueString(); got != "60s" {
					t.Errorf("%s: got %s", at.AtName(name), got)
				}
			}
		}

		return found
	}

	if found := walk(path.Empty(), testSchema(t).Attributes); found < 10 {
		t.Errorf("only %d durations", found)
	}
}

// isDuration reports whether the attribute accepts durations alone.
func isDuration(of schema.StringAttribute) bool {
	return slices.ContainsFunc(of.Validators, func(one validator.String) bool {
		text, is := one.(attribute.Text)

		return is && (text.Accepts == attribute.Duration().Accepts || text.Accepts == attribute.DurationOrZero().Accepts)
	})
}
