// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

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
	p.checkBudget()
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

// checkIdentity wants a machine UUID of its own for every node to be moved: the
// journal knows the machines by it.
func (p *planner) checkIdentity() {
	owner := make(map[string]string, len(p.nodes))

	for i := range p.nodes {
		node := &p.nodes[i]
		if !node.turns() {
			continue
		}

		other, taken := owner[node.uuid]
		owner[node.uuid] = node.Name

		switch {
		case node.uuid == "":
			p.find(cluster.Finding{
				Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Unknown: true, Node: node.Name,
				Found:  "the machine reports no UUID, under which the journal would know it",
				Remedy: "Set one in its firmware or its virtual machine definition.",
			})
		case taken:
			p.find(cluster.Finding{
				Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name,
				Found:  fmt.Sprintf("the machine has the same UUID as %s (%s), and the journal could not tell them apart", other, node.uuid),
				Remedy: "Give each virtual machine a UUID of its own.",
			})
		}
	}
}
