// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

// newSuspendAction returns talosupgrade_suspend.
func newSuspendAction() action.Action {
	return &clusterAction{
		name: "suspend", doing: "suspend the upgrades of the cluster", limit: 3 * time.Minute,
		text: "Suspends the upgrades of a cluster: nothing new starts, and nodes in progress are finished. A running upgrade keeps the lease. " +
			"The action writes one annotation, as the `kubectl` command of [the guide](../guides/suspending-upgrades.md) does. An existing suspension stays as it is, and is shown.",
		attributes: func(context.Context) map[string]schema.Attribute {
			return map[string]schema.Attribute{
				attrname.Reason: schema.StringAttribute{
					MarkdownDescription: fmt.Sprintf("Who suspends the upgrades and why, such as `\"ola: storage is degraded\"`; at most %d characters. Every message about the suspension shows it.", maxReason),
					Required:            true,
					Validators:          []validator.String{reasonText()},
				},
			}
		},
		invoke: suspend,
	}
}

// newResumeAction returns talosupgrade_resume.
func newResumeAction() action.Action {
	return &clusterAction{
		name: "resume", doing: "let the upgrades of the cluster go on", limit: 3 * time.Minute,
		text: "Resumes the suspended upgrades of a cluster, and says who had suspended them. It takes the lease from nobody. If the upgrades were not suspended, that is no error.",
		invoke: func(ctx context.Context, on *invocation) error {
			lifted, err := engine.New(on.clusters.EngineOptions(on.reached, nil)).Resume(ctx)

			switch {
			case err != nil:
				return err
			case lifted == nil:
				on.say("Upgrades of this cluster were not suspended.")
			default:
				on.say("Upgrades of this cluster are no longer suspended. They had been suspended %s.", lifted)
			}

			return nil
		},
	}
}

func suspend(ctx context.Context, on *invocation) error {
	var reason types.String

	on.diagnostics.Append(on.config.GetAttribute(ctx, path.Root(attrname.Reason), &reason)...)

	if on.diagnostics.HasError() {
		return nil
	}

	// A lease that is created for this carries the ID of the cluster, as that of a run does.
	on.identify(ctx)

	standing, err := engine.New(on.clusters.EngineOptions(on.reached, nil)).Suspend(ctx, reason.ValueString())

	switch {
	case err != nil:
		return err
	case standing == nil:
		on.say("Upgrades of this cluster are suspended: %s.", strings.TrimSuffix(reason.ValueString(), "."))
	default:
		on.say("Upgrades of this cluster were suspended already, %s. That stays as it is: talosupgrade_resume takes it away.", standing)
	}

	return nil
}

// maxReason is the maximum length of the reason of a suspension, in characters: every message about the suspension
// shows it.
const maxReason = 500

// reasonText accepts a readable text that suspends the upgrades.
func reasonText() attribute.Text {
	const remedy = "\n\nWrite who suspends the upgrades and why, such as \"ola: storage is degraded\"."

	accepts := fmt.Sprintf("say who suspends the upgrades and why, in at most %d characters", maxReason)

	return attribute.Text{Accepts: accepts, Check: func(at path.Path, text string) diag.Diagnostic {
		switch length := utf8.RuneCountInString(text); {
		case strings.TrimSpace(text) == "":
			return attribute.Problem(at, "Invalid reason", " is empty."+remedy)
		case strings.TrimSpace(text) == protocol.SuspendNot:
			return attribute.Problem(at, "Invalid reason",
				fmt.Sprintf(" is %q, which is as good as no suspension. Whoever wants to let upgrades go on invokes talosupgrade_resume.%s", text, remedy))
		case length > maxReason:
			return attribute.Problem(at, "Invalid reason",
				fmt.Sprintf(" has %d characters, and %d are allowed: every message about the suspension shows it.%s", length, maxReason, remedy))
		default:
			return nil
		}
	}}
}
