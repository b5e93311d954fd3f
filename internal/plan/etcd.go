// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkEtcd compares the control planes with the members of etcd, and refuses
// topologies that lose etcd when one member is down.
func (p *planner) checkEtcd() {
	var controlPlanes []*subject

	moving := false

	for i := range p.nodes {
		if node := &p.nodes[i]; node.Role == cluster.ControlPlane {
			controlPlanes = append(controlPlanes, node)
			moving = moving || node.turns()
		}
	}

	switch {
	case len(controlPlanes) == 0:
		p.find(cluster.Finding{
			Check: "etcd-members", Severity: cluster.Observed,
			Found: "no control plane was found", Remedy: "Check that the endpoints belong to this cluster.",
		})
	case len(controlPlanes) == 1 && moving:
		p.find(cluster.Finding{
			Check: "single-control-plane", Severity: cluster.Advice, Node: controlPlanes[0].Name,
			Found: "the cluster has one control plane: the Kubernetes API is away while it reboots",
		})
	case len(controlPlanes) == 2 && moving:
		p.find(cluster.Finding{
			Check: "two-members", Severity: cluster.Observed,
			Found:  "etcd has two members, and while one of them reboots the other has no quorum",
			Remedy: "Add a third control plane, or remove one, before the upgrade.",
		})
	}

	for _, node := range controlPlanes {
		if node.Etcd == nil {
			p.checkSilence(node)

			continue
		}

		if finding, ok := compareMembers(node, controlPlanes); ok {
			p.find(finding)
		}
	}
}

// compareMembers holds one control plane's list of etcd members against the
// control planes that are there.
func compareMembers(viewer *subject, controlPlanes []*subject) (cluster.Finding, bool) {
	var strangers []string

	for _, member := range viewer.Etcd.Members {
		known := slices.ContainsFunc(controlPlanes, func(n *subject) bool {
			return slices.Contains(member.PeerAddresses, n.Address) || (n.Etcd != nil && n.Etcd.Status.MemberID == member.ID)
		})
		if !known {
			strangers = append(strangers, fmt.Sprintf("%s (%016x)", member.Name, member.ID))
		}
	}

	if len(strangers) == 0 && len(viewer.Etcd.Members) == len(controlPlanes) {
		return cluster.Finding{}, false
	}

	found := fmt.Sprintf("etcd has %d members as seen from %s, but the cluster has %d control planes", len(viewer.Etcd.Members), viewer.Name, len(controlPlanes))
	if len(strangers) > 0 {
		found += "; not a control plane: " + listed(strangers)
	}

	return cluster.Finding{
		Check: "etcd-members", Severity: cluster.Observed, Node: viewer.Name, Found: found,
		Remedy: "Let members join, or remove the stale ones (talosctl etcd members, talosctl etcd remove-member).",
	}, true
}

// checkSilence refuses to begin while a control plane's etcd does not answer,
// except on a node that an earlier run may have sent into a reboot.
func (p *planner) checkSilence(node *subject) {
	if node.open || node.Machine == nil {
		return
	}

	p.find(cluster.Finding{
		Check: "etcd-quorum", Severity: cluster.Observed, Node: node.Name, Err: node.EtcdError,
		Found:  fmt.Sprintf("etcd on this control plane does not answer: %v", node.EtcdError),
		Remedy: "Bring it back to health first (talosctl service etcd, talosctl etcd status).",
	})
}
