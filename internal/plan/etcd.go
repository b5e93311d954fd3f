// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
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
	case len(controlPlanes) == 1 && moving:
		p.find(cluster.Finding{
			Check: cluster.CheckSingleControlPlane, Severity: cluster.Advice, Node: controlPlanes[0].Name,
			Found:  "the cluster has one control plane: the Kubernetes API is away while it reboots",
			Remedy: "Expect kubectl and everything that asks the API to fail for some minutes; with three control planes it stays.",
		})
	case len(controlPlanes) == 2 && moving:
		p.checkTwoMembers()
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

	p.checkEtcdHealth(controlPlanes)
	p.adviseUnasked(controlPlanes)
}

// adviseUnasked says what is not known where a control plane's etcd could not be
// asked; that it did not answer is an error of its own. A node that an earlier run
// may have sent into a reboot is asked when it is back.
func (p *planner) adviseUnasked(controlPlanes []*subject) {
	var names []string

	for _, node := range controlPlanes {
		if node.Etcd == nil && !node.open {
			names = append(names, node.Name)
		}
	}

	if len(names) == 0 {
		return
	}

	for _, unasked := range []struct{ check, what string }{
		{cluster.CheckEtcdMembers, "which members etcd has"},
		{cluster.CheckEtcdAlarms, "whether etcd raised an alarm"},
		{cluster.CheckEtcdRaftLag, "how far behind the members of etcd are"},
		{cluster.CheckEtcdDBSize, "how large the database of etcd is"},
	} {
		said := func(f cluster.Finding) bool { return f.Check == unasked.check }
		if unasked.check == cluster.CheckEtcdMembers && slices.ContainsFunc(p.made.Findings, said) {
			continue
		}

		p.find(cluster.Finding{
			Check: unasked.check, Severity: cluster.Advice, Unknown: true,
			Found:  unasked.what + " could not be asked on " + listed(names),
			Remedy: remedyEtcd,
		})
	}
}

// checkTwoMembers refuses to take away one of two members. Until Talos 1.13 the
// node itself asks for the quorum and refuses, so that what the policy skips does
// not help; that is not two-members, which is skipped.
func (p *planner) checkTwoMembers() {
	legacy := p.legacyControlPlanes()

	finding := cluster.Finding{
		Check: cluster.CheckTwoMembers, Severity: cluster.Observed,
		Found:  "etcd has two members, and while one of them reboots the other has no quorum",
		Remedy: "Add a third control plane, or remove one, before the upgrade.",
	}

	if len(legacy) == 0 {
		finding.Remedy += ` Or accept that etcd and the Kubernetes API are away meanwhile: preflight = { skip = ["two-members"] }.`
	}

	p.find(finding)

	if !p.policy.Skips(cluster.CheckTwoMembers) {
		return
	}

	for _, step := range legacy {
		p.find(cluster.Finding{
			Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Node: step.Node, Firm: true,
			Found:  fmt.Sprintf("the node runs Talos %s, which refuses an upgrade by itself while etcd has two members, so skipping two-members does not help", step.From),
			Remedy: "Add a third control plane, or bring both to Talos 1.13 by hand first.",
		})
	}
}

// legacyControlPlanes are the first turns of the control planes that take the
// legacy call.
func (p *planner) legacyControlPlanes() []Step {
	var legacy []Step

	for i := range p.made.Steps {
		step := &p.made.Steps[i]
		same := func(s Step) bool { return s.Node == step.Node }

		if step.Role == cluster.ControlPlane && step.API == cluster.LegacyAPI && !step.Done && !slices.ContainsFunc(legacy, same) {
			legacy = append(legacy, *step)
		}
	}

	return legacy
}

// compareMembers holds one control plane's list of etcd members against the
// control planes that are there.
func compareMembers(viewer *subject, controlPlanes []*subject) (cluster.Finding, bool) {
	var strangers []string

	for _, member := range viewer.Etcd.Members {
		known := slices.ContainsFunc(controlPlanes, func(n *subject) bool {
			return isMember(n, member)
		})
		if !known {
			strangers = append(strangers, fmt.Sprintf("%s (%016x)", member.Name, member.ID))
		}
	}

	if viewer.Etcd.Mute() || len(strangers) == 0 && len(viewer.Etcd.Members) == len(controlPlanes) {
		return cluster.Finding{}, false
	}

	found := fmt.Sprintf("etcd has %d members as seen from %s, but the cluster has %d control planes", len(viewer.Etcd.Members), viewer.Name, len(controlPlanes))
	if len(strangers) > 0 {
		found += "; not a control plane: " + listed(strangers)
	}

	return cluster.Finding{
		Check: cluster.CheckEtcdMembers, Severity: cluster.Observed, Node: viewer.Name, Found: found,
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
		Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Unknown: !errors.Is(node.EtcdError, cluster.ErrQuorum), Node: node.Name, Err: node.EtcdError,
		Found:  fmt.Sprintf("etcd on this control plane does not answer: %v", node.EtcdError),
		Remedy: remedyEtcd,
	})
}
