// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

var _ resource.ResourceWithIdentity = (*clusterResource)(nil)

// identityModel is the identity of the resource. It does not include the context: people rename contexts, and the
// cluster stays the same.
type identityModel struct {
	ID types.String `tfsdk:"id"`
}

// IdentitySchema implements [resource.ResourceWithIdentity].
func (r *clusterResource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{
		Attributes: map[string]identityschema.Attribute{
			attrname.ID: identityschema.StringAttribute{
				Description:       "Talos cluster ID. If the cluster has none, the UID of the namespace kube-system.",
				RequiredForImport: true,
			},
		},
	}
}

// writeIdentity sets the identity to the cluster of the model. While the ID of the cluster is unknown, it is empty:
// an absent identity would be an error, after the work was done.
func (m clusterModel) writeIdentity(ctx context.Context, identity *tfsdk.ResourceIdentity) diag.Diagnostics {
	return identity.Set(ctx, identityModel{ID: types.StringValue(m.ID.ValueString())})
}
