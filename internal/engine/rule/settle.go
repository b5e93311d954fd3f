// SPDX-License-Identifier: MPL-2.0

package rule

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// CheckSettle is the name of the check of nodes that were moved.
const CheckSettle = "settle"

// settled requires the nodes that were moved to have stayed healthy for `settle` before a cordon, and to be
// healthy before an install.
func settled(s View) []cluster.Finding {
	if s.Returning {
		return nil
	}

	return s.Unsettled
}
