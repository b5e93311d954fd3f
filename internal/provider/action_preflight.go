// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// newPreflightAction is talosupgrade_preflight, the action.
func newPreflightAction() action.Action {
	return &clusterAction{
		name: "preflight", doing: "make the checks of an upgrade", limit: defaultReadTimeout,
		text: "Makes all checks that an apply of `talosupgrade_cluster` begins with, says what each found, and fails where an apply would be refused. " +
			"It takes the options of the resource, and means the same by them. It writes nothing to the cluster. The data source of the same name has the whole roll as data, and fails nothing.",
		attributes: func(ctx context.Context) map[string]schema.Attribute {
			options := map[string]schema.Attribute{}

			for name, attribute := range preflightSchema(ctx).Attributes {
				if name != attrTimeouts && !attribute.IsComputed() {
					options[name] = attribute
				}
			}

			return options
		},
		validate: func(ctx context.Context, config tfsdk.Config) diag.Diagnostics {
			var model preflightActionModel

			diagnostics := config.Get(ctx, &model)
			if diagnostics.HasError() {
				return diagnostics
			}

			return model.validate(ctx)
		},
		invoke: sayPreflight,
	}
}

// preflightActionModel is the configuration of the action.
type preflightActionModel struct {
	optionsModel

	Timeout types.String `tfsdk:"timeout"`
}

func sayPreflight(ctx context.Context, on *invocation) error {
	var model preflightActionModel

	on.diagnostics.Append(on.config.Get(ctx, &model)...)

	if on.diagnostics.HasError() {
		return nil
	}

	found, diagnostics := on.clusters.preflight(ctx, model.optionsModel)
	on.diagnostics.Append(diagnostics...)

	if diagnostics.HasError() {
		return nil
	}

	work := len(found.made.Steps) > 0
	if work {
		on.say("%s", rollHeadline(found.made))
	}

	models := newCheckModels(found.examined)

	var passed []string

	for _, model := range models {
		if model.Status.ValueString() == checkPassed {
			passed = append(passed, model.Name.ValueString())
		}
	}

	if len(passed) > 0 {
		on.say("Passed: %s.", strings.Join(passed, ", "))
	}

	for _, line := range merged(byCause(found.examined.Findings)) {
		on.say("%s", line.said())
	}

	on.say("%s.", checkSummary(models, work))

	if blocking := cluster.Blocking(found.examined.Findings); len(blocking) > 0 {
		on.diagnostics.Append(checksFailed(blocking, found.seen.name))
	}

	return nil
}
