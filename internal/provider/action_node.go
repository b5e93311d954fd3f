// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
)

// maxJournalReason is the maximum length of a reason in the journal, in characters.
const maxJournalReason = 200

// newRollbackAction returns talosupgrade_rollback.
func newRollbackAction() action.Action {
	return &clusterAction{
		name: "rollback", doing: "roll back the node", limit: 45 * time.Minute,
		text: "Sends one node back to the Talos version that it ran before its last upgrade, drained and guarded as in an upgrade, under the same lease. " +
			"The node stays on it until `talosupgrade_retry_node`, `retry_boot_id`, or another version or image allows an upgrade. " +
			"If the content of the node's other boot slot is uncertain or does not fit the cluster, the action is refused before anything is touched.",
		attributes: rollbackAttributes, validate: validatePublishTo, invoke: rollBack,
	}
}

// newRetryNodeAction returns talosupgrade_retry_node.
func newRetryNodeAction() action.Action {
	return &clusterAction{
		name: "retry_node", doing: "allow another try on the node", limit: 10 * time.Minute,
		text: "Lets the next apply install the same image again on a node that fell back or was rolled back, as `node_overrides.retry_boot_id` of the resource does, but without a boot ID. " +
			"It changes one entry of the journal, under the lease. The next attempt ends its effect.",
		attributes: func(context.Context) map[string]schema.Attribute {
			return map[string]schema.Attribute{attrname.Node: nodeAttribute()}
		},
		invoke: retryNode,
	}
}

func nodeAttribute() schema.Attribute {
	return schema.StringAttribute{
		MarkdownDescription: "Name of the Kubernetes node, as `kubectl get nodes` shows it.",
		Required:            true,
		Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
	}
}

func rollbackAttributes(ctx context.Context) map[string]schema.Attribute {
	resource := clusterSchema(ctx).Attributes

	return map[string]schema.Attribute{
		attrname.Node: nodeAttribute(),
		attrname.Reason: schema.StringAttribute{
			MarkdownDescription: fmt.Sprintf("Reason, shown in the journal and in the next plan; at most %d characters.", maxJournalReason),
			Optional:            true,
			Validators:          []validator.String{stringvalidator.UTF8LengthAtMost(maxJournalReason)},
		},
		attrname.Drain:     input(resource[attrname.Drain]),
		attrname.PublishTo: input(resource[attrname.PublishTo]),
	}
}

// rollBack rolls the node back.
func rollBack(ctx context.Context, on *invocation) error {
	request, to, diagnostics := rollbackRequest(ctx, on)
	if diagnostics.HasError() {
		on.diagnostics.Append(diagnostics...)

		return nil
	}

	id := on.identify(ctx)

	beside, err := on.reached.Operator(to)
	if err != nil {
		return err
	}

	known, end := on.clusters.Releases.Outlook(ctx, on.clusters.Settings.UserAgent())
	defer end()

	options := on.options(beside, "talosupgrade_rollback")
	out := &publication.Observers{
		Publisher: on.reached.Publisher(id, to, known.Next), Events: on.reached.Events(to),
		Trace: publication.StartTrace(ctx, on.clusters.Settings.Version, id, options, engine.Request{}, to),
	}
	options.Observers = append([]cluster.Observer{diagnostic.NewProgress(ctx), on}, out.All()...)
	options.Permitted = diagnostic.NewProgress(ctx).Permitted

	entry, err := engine.New(options).RollBackNode(ctx, request)
	on.diagnostics.Append(out.Close(ctx, to, on.reached.Name, cluster.Observation{}, err)...)

	if err == nil {
		on.say("Node %s runs Talos %s, as before its upgrade to %s, and is in service. %s is not installed there again until talosupgrade_retry_node, retry_boot_id, or another version or image says so.",
			request.Node, entry.Previous, entry.Target, entry.Image)
	}

	return err
}

// rollbackRequest returns the request in the configuration. A third of the time is reserved for what precedes the
// disruption of the node, such as waiting for the lease of a run that died.
func rollbackRequest(ctx context.Context, on *invocation) (request engine.NodeRequest, to publication.Publication, diagnostics diag.Diagnostics) {
	var (
		node, reason types.String
		model        clusterModel
	)

	diagnostics.Append(on.config.GetAttribute(ctx, path.Root(attrname.Node), &node)...)
	diagnostics.Append(on.config.GetAttribute(ctx, path.Root(attrname.Reason), &reason)...)
	diagnostics.Append(on.config.GetAttribute(ctx, path.Root(attrname.Drain), &model.Drain)...)
	diagnostics.Append(on.config.GetAttribute(ctx, path.Root(attrname.PublishTo), &model.PublishTo)...)

	policy, more := model.planned(ctx).policy(ctx)
	diagnostics.Append(more...)

	policy.NodeTimeout = on.limit * 2 / 3

	return engine.NodeRequest{Node: node.ValueString(), Reason: reason.ValueString(), Policy: policy}, model.publication(), diagnostics
}

// retryNode allows the next apply to install the same image again.
func retryNode(ctx context.Context, on *invocation) error {
	var node types.String

	diagnostics := on.config.GetAttribute(ctx, path.Root(attrname.Node), &node)
	if diagnostics.HasError() {
		on.diagnostics.Append(diagnostics...)

		return nil
	}

	on.identify(ctx)

	options := on.options(nil, "talosupgrade_retry_node")
	options.Observers = []cluster.Observer{diagnostic.NewProgress(ctx), on}

	entry, err := engine.New(options).AllowRetry(ctx, engine.NodeRequest{Node: node.ValueString(), Policy: cluster.DefaultPolicy()})
	if err == nil {
		on.say("The next apply may install %s on node %s again, which runs Talos %s now. If that fails as well, the image is not tried again.", entry.Image, node.ValueString(), entry.Previous)
	}

	return err
}
