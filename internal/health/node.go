// SPDX-License-Identifier: MPL-2.0

package health

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// Leaving tells whether a machine in that stage is on its way out of service. No
// healthy one gets there by itself.
func Leaving(stage cluster.Stage) bool {
	switch stage {
	case cluster.StageUpgrading, cluster.StageRebooting, cluster.StageInstalling, cluster.StageResetting, cluster.StageShuttingDown:
		return true
	case cluster.StageBooting, cluster.StageRunning:
		return false
	default:
		return false
	}
}

// Disables tells whether the machine configuration of the node switches the
// component off; false where it could not be read.
func Disables(node cluster.Node, component cluster.Component) bool {
	return node.Machine != nil && node.Machine.Config != nil && node.Machine.Config.Disabled[component]
}
