// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkWork looks at the roll as a whole; without steps there is nothing to
// object to.
func (p *planner) checkWork() {
	if len(p.made.Steps) == 0 {
		return
	}

	snapshot := &p.snapshot

	p.checkRoles()

	if snapshot.Journal == nil && snapshot.KubernetesError == nil {
		p.find(cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Unknown: true, Err: snapshot.JournalError,
			Found:  fmt.Sprintf("the journal kube-system/talosupgrade-journal cannot be read: %v", snapshot.JournalError),
			Remedy: "Make it readable and apply again: without it an upgrade could destroy a node's fallback system.",
		})
	}

	p.checkReadable()
	p.checkCluster()
	p.checkIdentity()
	p.checkEtcd()
	p.checkControlPlanes()
	p.checkExternal()
	p.checkPressure()
	p.checkCanaries()

	if !p.checkBudget() {
		p.checkRoom()
	}
}

// checkRoles wants the one role that may upgrade. Where nobody can tell the
// roles, the nodes refuse by themselves what the credentials may not do.
func (p *planner) checkRoles() {
	if roles := p.snapshot.Roles; len(roles) > 0 && !slices.Contains(roles, adminRole) {
		p.find(cluster.Finding{
			Check: cluster.CheckRoles, Severity: cluster.Observed,
			Found:  fmt.Sprintf("the Talos credentials carry %s; an upgrade needs %s", strings.Join(roles, ", "), adminRole),
			Remedy: "Apply with a talosconfig of an administrator; planning works with os:reader.",
		})
	}
}

// checkReadable refuses to replace a system whose installer image could not be
// read: a wrong guess would cost the node its extensions. The images of
// components are not guessed either, and some may be pinned nowhere.
func (p *planner) checkReadable() {
	var unread, unchosen []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.moves+node.restarts == 0 || node.Machine == nil || node.Machine.Config != nil {
			continue
		}

		unread = append(unread, node.Name)

		if node.moves > 0 && p.override(node.Name) == "" {
			unchosen = append(unchosen, node.Name)
		}
	}

	for _, missed := range []struct {
		check, what string
		nodes       []string
	}{
		{cluster.CheckSchematic, "the installer image is not known on ", unchosen},
		{cluster.CheckComponentImages, "the images that it pins are not known on ", unread},
	} {
		if len(missed.nodes) > 0 {
			p.find(cluster.Finding{
				Check: missed.check, Severity: cluster.Observed, Unknown: true,
				Found:  "the machine configuration cannot be read, so " + missed.what + listed(missed.nodes),
				Remedy: "Reading it needs os:admin.",
			})
		}
	}
}

// checkCluster wants the two APIs to tell of the same machines. Two sites may use
// the same addresses and names; the boot IDs of their machines differ. A node
// that has just rebooted is told of late by Kubernetes, so one that agrees is
// enough.
func (p *planner) checkCluster() {
	compared := 0

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.Machine == nil || node.Kube == nil || node.Machine.BootID == "" || node.Kube.BootID == "" {
			continue
		}

		// One in the middle of its turn may have rebooted just now.
		if node.Machine.BootID == node.Kube.BootID || node.open {
			return
		}

		compared++
	}

	if compared == 0 {
		return
	}

	p.find(cluster.Finding{
		Check: cluster.CheckIdentity, Severity: cluster.Observed,
		Found:  fmt.Sprintf("the Kubernetes API tells of another boot than the Talos API does for each of the %d nodes that both know, as if they belonged to two clusters", compared),
		Remedy: "Check that kubeconfig and talosconfig lead to the same cluster. Right after all nodes have rebooted, wait a minute.",
	})
}

// checkIdentity wants a machine ID of its own for every node to be moved, and the
// one that it had when its upgrade began: the journal knows the machines by it.
func (p *planner) checkIdentity() {
	for i := range p.nodes {
		node := &p.nodes[i]
		id := node.MachineID()

		finding := cluster.Finding{Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name}

		// What a run of ours left on a silent node is found by its name.
		if id == "" && node.turns() && (node.Machine != nil || !node.open) {
			finding.Unknown = true
			finding.Found = "neither Talos nor Kubernetes tells its machine ID, by which the journal would know it"
			finding.Remedy = fmt.Sprintf("Bring its kubelet up, so that the Node object tells it (kubectl get node %s -o jsonpath='{.status.nodeInfo.machineID}').", node.Name)
			p.find(finding)
		}

		if other := p.twin(i); other != "" {
			finding.Found = fmt.Sprintf("the machine has the same machine ID as %s (%s), and the journal could not tell them apart", other, id)
			finding.Remedy = fmt.Sprintf("If one was copied from the other, wipe STATE on one of them (talosctl -n %s reset --system-labels-to-wipe STATE --reboot) and give it its configuration again. "+
				"If both are one machine that was renamed, delete the Node object of the old name.", node.Address)
			p.find(finding)
		}

		if key, entry, found := p.stray(node); found {
			finding.Found = fmt.Sprintf("the journal has an unfinished upgrade to Talos %s of a node of this name under %s, and the machine has the ID %s: its STATE partition was wiped, or another machine took its name",
				entry.Target, key, id)
			finding.Remedy = fmt.Sprintf("Make sure that it was rebooted after %s, when that was written, then remove the key %s: kubectl -n kube-system edit configmap talosupgrade-journal.",
				entry.Written.UTC().Format(time.RFC3339), key)
			p.find(finding)
		}
	}
}

// twin is a node before this one that has the same machine ID, where one of both is
// to be moved; empty where there is none.
func (p *planner) twin(index int) string {
	node := &p.nodes[index]

	for i := range p.nodes[:index] {
		other := &p.nodes[i]
		if id := node.MachineID(); id != "" && other.MachineID() == id && (node.turns() || other.turns()) {
			return other.Name
		}
	}

	return ""
}

// stray is an unfinished upgrade of what may be a node to be moved, under a
// machine ID that it does not have.
func (p *planner) stray(node *subject) (key string, entry cluster.Entry, found bool) {
	if !node.turns() || p.snapshot.Journal == nil {
		return "", cluster.Entry{}, false
	}

	return p.snapshot.Journal.Stray(*node.Node, p.snapshot.Nodes)
}
