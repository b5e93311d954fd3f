// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
)

// limitWarnings warns of a roll that probably takes longer than something
// lasts: the limit of the operation, or the certificate it is done with. First
// tells that the resource does not exist yet.
func (m clusterModel) limitWarnings(ctx context.Context, seen observation, estimate time.Duration, first bool) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if estimate <= 0 {
		return diagnostics
	}

	if known(ctx, m.Timeouts) {
		name, limit, more := m.writeLimit(ctx, first)
		diagnostics.Append(more...)

		if estimate > limit {
			diagnostics.AddAttributeWarning(path.Root(attrTimeouts), about("The upgrade may not fit into its limit", seen.name),
				fmt.Sprintf("The upgrade takes %s, and timeouts.%s is %s. When the limit is reached, nodes in progress are finished and the run stops; "+
					"the next apply continues.\n\nRaise timeouts.%s to have it done in one apply.", estimateText(estimate), name, durationText(limit), name))
		}
	}

	if !seen.expires.IsZero() && seen.Taken.Add(estimate).After(seen.expires) {
		diagnostics.AddWarning(about("The client certificate may expire during the upgrade", seen.name),
			fmt.Sprintf("The client certificate of %s expires on %s, and the upgrade takes %s. A run whose certificate expires stops in the middle of it.\n\n"+
				"Renew the certificate before the apply (talosctl config new, or a refresh of the data source that it comes from).",
				seen.name, seen.expires.UTC().Format(time.RFC3339), estimateText(estimate)))
	}

	return diagnostics
}

// writeLimit is how long an apply may take, with the name of the limit.
func (m clusterModel) writeLimit(ctx context.Context, first bool) (string, time.Duration, diag.Diagnostics) {
	if first {
		limit, diagnostics := m.Timeouts.Create(ctx, defaultWriteTimeout)

		return "create", limit, diagnostics
	}

	limit, diagnostics := m.Timeouts.Update(ctx, defaultWriteTimeout)

	return "update", limit, diagnostics
}
