// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// checkEtcd compares the control planes with the members of etcd, and refuses topologies that lose quorum if one
// member is down.
func (p *planner) checkEtcd() {
	var controlPlanes []*plannedNode

	moving := false

	for i := range p.nodes {
		if node := &p.nodes[i]; node.Role == cluster.ControlPlane {
			controlPlanes = append(controlPlanes, node)
			moving = moving || node.hasNodeStep()
		}
	}

	switch {
	case len(controlPlanes) == 1 && moving:
		p.add(cluster.Finding{
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
		}
	}

	p.checkEtcdHealth(controlPlanes)
	p.adviseUnasked(controlPlanes)
}

// adviseUnasked says what is unknown because the etcd of a control plane did not answer. That it did not answer
// is a finding of its own. A node that an earlier run may have rebooted is asked when it is back.
func (p *planner) adviseUnasked(controlPlanes []*plannedNode) {
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

		p.add(cluster.Finding{
			Check: unasked.check, Severity: cluster.Advice, Unknown: true,
			Found:  unasked.what + " could not be asked on " + readable.List(names),
			Remedy: health.EtcdRemedy,
		})
	}
}

// checkTwoMembers refuses to take down one of two members. Before Talos 1.13 the node itself checks the quorum
// and refuses, so skipping the check two-members does not help; that is reported as a finding of another check.
func (p *planner) checkTwoMembers() {
	legacy := p.legacyControlPlaneSteps()

	finding := cluster.Finding{
		Check: cluster.CheckTwoMembers, Severity: cluster.Observed,
		Found:  "etcd has two members, and while one of them reboots the other has no quorum",
		Remedy: "Add a third control plane before the upgrade. Or go back to one (talosctl reset takes the member out of etcd and wipes its machine), which leaves one copy of the data.",
	}

	if len(legacy) == 0 {
		finding.Remedy += ` Or accept that etcd and the Kubernetes API are away meanwhile: preflight = { skip = ["two-members"] }.`
	}

	p.add(finding)

	if !p.policy.Skips(cluster.CheckTwoMembers) {
		return
	}

	for _, step := range legacy {
		p.add(cluster.Finding{
			Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Node: step.Node, Firm: true,
			Found:  fmt.Sprintf("the node runs Talos %s, which refuses an upgrade by itself while etcd has two members, so skipping two-members does not help", step.From),
			Remedy: "Add a third control plane, or bring both to Talos 1.13 by hand first.",
		})
	}
}

// legacyControlPlaneSteps returns the first step of each control plane that is upgraded through the legacy API.
func (p *planner) legacyControlPlaneSteps() []Step {
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

// checkSilence refuses to begin while the etcd of a control plane does not answer, except on a node that an
// earlier run may have rebooted.
func (p *planner) checkSilence(node *plannedNode) {
	if node.open || node.Machine == nil {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Unknown: !errors.Is(node.EtcdError, cluster.ErrQuorum), Node: node.Name, Err: node.EtcdError,
		Found:  fmt.Sprintf("etcd on this control plane does not answer: %v", node.EtcdError),
		Remedy: health.EtcdRemedy,
	})
}

const (
	// etcdQuota is the largest size of a database if none is configured: etcd's own default, 2 GiB.
	etcdQuota = 2 << 30
	// quotaAdvice and quotaMost are the percentages of the quota from which the size of a database is a warning,
	// and from which it prevents the roll: after every restart of a node, etcd and Kubernetes write more than
	// usual.
	quotaAdvice, quotaMost = 75, 90
)

// checkEtcdHealth checks what the members of etcd report about themselves. The member on a node that an earlier
// run may have rebooted is not checked, because it still has to catch up.
func (p *planner) checkEtcdHealth(controlPlanes []*plannedNode) {
	open := map[string]bool{}
	for _, node := range controlPlanes {
		open[node.Name] = node.open
	}

	all := p.snapshot.ControlPlanes()
	asked := slices.DeleteFunc(slices.Clone(all), func(n cluster.Node) bool { return open[n.Name] })

	p.add(health.EtcdMembers(all, all)...)
	p.add(health.EtcdVoters(asked, all, func(n cluster.Node) bool { return open[n.Name] })...)
	p.add(health.EtcdLeader(asked)...)
	p.add(health.EtcdAlarms(p.snapshot)...)
	p.add(health.EtcdLag(asked, all)...)
	p.checkSize(controlPlanes)
}

// checkSize compares the size of each database with its quota, beyond which etcd accepts no writes.
func (p *planner) checkSize(controlPlanes []*plannedNode) {
	for _, node := range controlPlanes {
		if node.Etcd == nil || node.Etcd.Status.DBSize <= 0 {
			continue
		}

		quota, by := int64(etcdQuota), "the default of etcd"
		if node.read() && node.Machine.Config.EtcdQuota > 0 {
			quota, by = node.Machine.Config.EtcdQuota, "quota-backend-bytes"
		}

		// In floating point, because a quota has no upper bound.
		part := 100 * float64(node.Etcd.Status.DBSize) / float64(quota)
		if part < quotaAdvice {
			continue
		}

		finding := cluster.Finding{
			Check: cluster.CheckEtcdDBSize, Severity: cluster.Advice, Node: node.Name,
			Found: fmt.Sprintf("the database of etcd takes %s, which is %d %% of its quota of %s (%s)", size(node.Etcd.Status.DBSize), int(part), size(quota), by),
			Remedy: fmt.Sprintf("Reclaim the space that it does not use (talosctl -n %s etcd defrag, one member after the other), or raise quota-backend-bytes; from %d %% on nothing is upgraded.",
				node.Address, quotaMost),
		}

		if part >= quotaMost {
			finding.Severity = cluster.Observed
		}

		p.add(finding)
	}
}

// size returns a number of bytes as people write it: "1.95 GiB", "512 MiB".
func size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
	}

	return fmt.Sprintf("%d MiB", bytes>>20)
}
