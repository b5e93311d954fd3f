// SPDX-License-Identifier: MPL-2.0

package rule

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// CheckSettle is the name of the check of nodes that were moved.
const CheckSettle = "settle"

// settled wants the nodes that were moved to stay healthy: before a cordon for `settle`, and before an install by now.
func settled(s View) []cluster.Finding {
	if s.Returning {
		return nil
	}

	return s.Unsettled
}
