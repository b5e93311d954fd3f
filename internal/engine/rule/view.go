// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// View is what a rule judges: an observation, and the step that would disturb a node.
type View struct {
	cluster.Observation

	Step plan.Step
	// Run is the ID under which cordons of this run are marked.
	Run    string
	Policy cluster.Policy
	// Others are the nodes that other upgrades of this run are taking out of service: true if that began before
	// the step's own node.
	Others map[string]bool
	// Cordoning is true if the step would take a node out of service whose pods have to go somewhere.
	Cordoning bool
	// Starting is true if nothing was done yet to the step's node, or component.
	Starting bool
	// Returning is true if the step's node is to be sent back to its old system.
	Returning bool
	// Vitals are what is wrong with the disk and the clock of the step's node. Closed are the gates that do not
	// hold, and the finding that the upgrades are suspended.
	Vitals, Closed []cluster.Finding
	// Unsettled are nodes that were moved and have not stayed healthy since.
	Unsettled []cluster.Finding
	// Kubelets are the services of the kubelets of other control planes, by node name; nil if they do not matter.
	Kubelets map[string]cluster.ComponentStatus
	// Intruded is what shows that the operator of the cluster acts.
	Intruded []cluster.Finding
}

// ill reports whether the node is the one that is not expected to be healthy.
func (s View) ill(node cluster.Node) bool { return s.Returning && node.Name == s.Step.Node }

// Well reports whether nothing is wrong with the node itself: its system, its kubelet and its member of etcd.
func Well(node cluster.Node) bool {
	switch {
	case node.Machine == nil || !node.Machine.Settled():
		return false
	case node.Kube == nil || !node.Kube.Ready || node.Kube.BootID != "" && node.Kube.BootID != node.Machine.BootID:
		return false
	case node.Role != cluster.ControlPlane:
		return true
	default:
		return health.Votes(node)
	}
}
