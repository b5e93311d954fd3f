// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkStep looks at what one node's own upgrade needs.
func (p *planner) checkStep(node *plannedNode, step Step) {
	if node.moves == 0 {
		p.checkImage(node)
		p.checkBoot(node)
		p.checkPinned(node, step)
	}

	if finding, ok := p.checkFallback(node, step); ok {
		p.add(finding)
	}

	// The defaults move with the version of Talos alone, and the first time is
	// the one to speak of.
	if !step.From.Equal(step.To) && node.Machine.Talos.Equal(step.From) {
		if finding, ok := checkPins(node); ok {
			p.add(finding)
		}
	}

	if step.API == cluster.LegacyAPI && !p.policy.Drain.Enabled && node.moves == 0 {
		p.add(cluster.Finding{
			Check: cluster.CheckVersions, Severity: cluster.Permanent, Node: node.Name, Attribute: attributeDrain,
			Found:  fmt.Sprintf("the node runs Talos %s, which always drains itself during an upgrade, so drain.enabled = false cannot be honoured", step.From),
			Remedy: "Leave drain.enabled at true until the nodes run Talos 1.13.",
		})
	}
}

// checkContainers refuses to upgrade Talos where it runs in containers.
func (p *planner) checkContainers() {
	var names []string

	for i := range p.nodes {
		if node := &p.nodes[i]; node.moves > 0 && node.Machine != nil && node.Machine.Platform == "container" {
			names = append(names, node.Name)
		}
	}

	if len(names) == 0 {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeTalos,
		Found:  "Talos has no upgrade where it runs in a container (platform container), as it does on " + readable.List(names),
		Remedy: "Make new containers of the new version (talosctl cluster create docker), or leave talos_version out and upgrade Kubernetes alone.",
	})
}

// checkFallback refuses an image from which the node already fell back, or was
// sent back, until the target or the image changes or the user asks for another
// try.
func (p *planner) checkFallback(node *plannedNode, step Step) (cluster.Finding, bool) {
	entry := node.entry
	if !entry.Returned() || entry.Image != step.Image {
		return cluster.Finding{}, false
	}

	// An entry without a boot ID must not pass for a retry that nobody asked
	// for.
	if retry, asked := p.policy.Retry[node.Name]; asked && retry == entry.BootID {
		return cluster.Finding{}, false
	}

	found := fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself", entry.Image, entry.Previous)
	if entry.Phase == cluster.PhaseRolledBack {
		found = fmt.Sprintf("the node booted %s, did not become healthy with it and was rolled back to Talos %s", entry.Image, entry.Previous)
	}

	return cluster.Finding{
		Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name, Attribute: attributeOverrides,
		Found: found,
		Remedy: fmt.Sprintf("Find out why (its console, and where machine.logging sends its logs), then choose another talos_version or installer_image, or set node_overrides = { %q = { retry = %q } } to try the same image again.",
			node.Name, entry.BootID),
	}, true
}

// checkUnfinished refuses a target below what an earlier run may have installed
// on a node: the next boot of it, whoever asks for that, may start the newer
// version, and then the node is ahead of the target for good.
func (p *planner) checkUnfinished() {
	if p.target.Talos.IsZero() {
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if !node.open || p.ahead(node) || node.entry.Target.Compare(p.target.Talos) <= 0 || node.rebooted() || node.entry.Phase == cluster.PhaseRollingBack {
			continue
		}

		p.add(cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Permanent, Node: node.Name, Attribute: attributeTalos,
			Found: fmt.Sprintf("an earlier run stopped in the middle of bringing the node to Talos %s, so that its next boot may start that version, and the target %s is older",
				node.entry.Target, p.target.Talos),
			Remedy: fmt.Sprintf("Set talos_version to %s or newer and apply, so that the node is finished.", node.entry.Target),
		})
	}
}

// checkPendingInstalls refuses to move Kubernetes alone while an earlier run may have
// installed another Talos on a node: whatever reboots it then starts that.
func (p *planner) checkPendingInstalls() {
	if !p.target.Talos.IsZero() || len(p.made.Steps) == 0 {
		return
	}

	for i := range p.nodes {
		// Held ones are a finding of their own.
		node := &p.nodes[i]
		if !node.open || node.held {
			continue
		}

		finding := cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name, Attribute: attributeTalos,
			Found:  "an earlier upgrade of Talos is unfinished on this node",
			Remedy: "Set talos_version to the version that it was upgraded to and apply, so that it is finished first.",
		}

		switch to := node.entry.Target; {
		case node.entry.Phase == cluster.PhaseRollingBack && !node.entry.Previous.IsZero():
			finding.Found = fmt.Sprintf("an earlier upgrade to Talos %s failed on this node, and it is being rolled back", to)
			finding.Remedy = fmt.Sprintf("Set talos_version to %s, or to a version that works there, and apply, so that it is finished first.", node.entry.Previous)
		case !to.IsZero():
			finding.Found = fmt.Sprintf("an earlier upgrade to Talos %s is unfinished on this node", to)
			finding.Remedy = fmt.Sprintf("Set talos_version to %s and apply, so that it is finished first.", to)
		}

		p.add(finding)
	}
}

// rebooted tells that the node went through a boot since the journal's entry
// was written: whatever was installed has had its chance.
func (s *plannedNode) rebooted() bool {
	return s.Machine != nil && s.Machine.BootID != "" && s.entry.BootID != "" && s.Machine.BootID != s.entry.BootID
}

// AgainstRollback are the reasons why a node must not be sent back to the system
// that an entry of the journal says it ran before, each a clause; none when it
// may be. A rollback makes the other slot of the bootloader the one that starts,
// so it has to be certain what is in there, and that it still fits.
func AgainstRollback(observed cluster.Observation, name string, entry cluster.Entry) []string {
	node, found := observed.Node(name)
	if !found || node.Machine == nil {
		return []string{"its Talos API does not answer, so that nobody knows what it runs"}
	}

	machine := node.Machine

	switch {
	case !machine.Talos.Equal(entry.Target):
		return []string{fmt.Sprintf("it runs Talos %s, which is not what was installed", machine.Talos)}
	case entry.Schematic != "" && machine.Schematic != entry.Schematic:
		return []string{fmt.Sprintf("it runs schematic %q, which is not what was installed", machine.Schematic)}
	case entry.Told:
		return []string{"it was sent back once before, and started the new system again"}
	case entry.Previous.IsZero():
		return []string{"the journal does not say what it ran before"}
	case entry.Previous.Equal(machine.Talos) && entry.PreviousSchematic == machine.Schematic:
		return []string{"it runs what it ran before"}
	case entry.Phase == cluster.PhaseIntent:
		return []string{"nobody saw the end of the installer, so that it is not certain who installed what it runs"}
	case machine.BootID == "" || entry.BootID == "" || machine.BootID == entry.BootID:
		return []string{"nothing proves that it has booted since the new system was installed"}
	}

	against := olderTalos(observed, node, entry.Previous)
	if node.Role == cluster.ControlPlane {
		against = append(against, olderEtcd(observed, node, entry)...)
	}

	return against
}

// olderTalos objects to Kubernetes that the previous Talos does not run: on a
// control plane all of the cluster's, as its components serve all nodes.
func olderTalos(observed cluster.Observation, node cluster.Node, previous version.Version) []string {
	var seen []version.Version

	for _, other := range observed.Managed() {
		if other.Name != node.Name && node.Role != cluster.ControlPlane {
			continue
		}

		for _, running := range other.Versions {
			seen = append(seen, running)
		}
	}

	if len(seen) == 0 {
		return []string{"nobody can tell which Kubernetes it runs"}
	}

	if err := compat.Supports(previous, version.Highest(seen...)); err != nil {
		return []string{fmt.Sprintf("its previous Talos %s does not fit the Kubernetes that runs now: %v", previous, err)}
	}

	return nil
}

// olderEtcd objects to a cluster of etcd that has moved on: its version is the
// release line of its oldest member, it never goes down, and an older member is
// not let in (etcd, server/etcdserver/api/membership: mustDetectDowngrade).
func olderEtcd(observed cluster.Observation, node cluster.Node, entry cluster.Entry) []string {
	previous, err := version.Parse(entry.PreviousEtcd)
	if err != nil {
		return []string{"the journal does not say which version of etcd it ran before"}
	}

	var (
		seen        []version.Version
		unknown     []string
		controlling = observed.ControlPlanes()
	)

	for _, other := range controlling {
		running := version.Version{}
		if other.Etcd != nil {
			running, _ = version.Parse(other.Etcd.Status.Version)
		}

		switch {
		case !running.IsZero():
			seen = append(seen, running)
		case other.Name != node.Name || len(controlling) == 1:
			unknown = append(unknown, other.Name)
		}
	}

	switch lowest := version.Lowest(seen...); {
	case len(unknown) > 0:
		return []string{"nobody can tell which version of etcd runs on " + readable.List(unknown)}
	case previous.Minor().Compare(lowest.Minor()) < 0:
		return []string{fmt.Sprintf("etcd runs as version %s by now, and the %s of its previous Talos could not join it", lowest.Minor(), previous)}
	}

	return nil
}
