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
func checkWork(snapshot cluster.Snapshot, steps []Step) []cluster.Finding {
	if len(steps) == 0 {
		return nil
	}

	var findings []cluster.Finding

	if len(snapshot.Roles) > 0 && !slices.Contains(snapshot.Roles, adminRole) {
		findings = append(findings, cluster.Finding{
			Check: "roles", Severity: cluster.Observed,
			Found:  fmt.Sprintf("the Talos credentials carry %s; an upgrade needs %s", strings.Join(snapshot.Roles, ", "), adminRole),
			Remedy: "Apply with a talosconfig of an administrator; planning works with os:reader.",
		})
	}

	if snapshot.Journal == nil && snapshot.KubernetesError == nil {
		findings = append(findings, cluster.Finding{
			Check: "pending-install", Severity: cluster.Observed, Err: snapshot.JournalError,
			Found:  fmt.Sprintf("the journal kube-system/talosupgrade-journal cannot be read: %v", snapshot.JournalError),
			Remedy: "Make it readable and apply again: without it an upgrade could destroy a node's fallback system.",
		})
	}

	findings = append(findings, checkReadable(snapshot, steps)...)
	findings = append(findings, checkIdentity(steps)...)
	findings = append(findings, checkEtcd(snapshot, steps)...)

	if finding, ok := checkBudget(snapshot, steps); ok {
		findings = append(findings, finding)
	}

	return findings
}

// checkReadable refuses to replace a system whose installer image could not be
// read: a wrong guess would cost the node its extensions.
func checkReadable(snapshot cluster.Snapshot, steps []Step) []cluster.Finding {
	var unread []string

	for _, step := range steps {
		node, _ := snapshot.Node(step.Node)
		if !step.Done && node.Machine != nil && node.Machine.Config == nil {
			unread = append(unread, step.Node)
		}
	}

	if len(unread) == 0 {
		return nil
	}

	return []cluster.Finding{{
		Check: "schematic", Severity: cluster.Observed,
		Found:  "the machine configuration cannot be read, so neither the installer image nor the pinned component images are known on " + strings.Join(unread, ", "),
		Remedy: "Reading it needs os:admin.",
	}}
}

// checkIdentity wants a machine UUID of its own for every node to be moved: the
// journal knows the machines by it.
func checkIdentity(steps []Step) []cluster.Finding {
	var findings []cluster.Finding

	owner := map[string]string{}

	for _, step := range steps {
		other, taken := owner[step.UUID]
		owner[step.UUID] = step.Node

		switch {
		case step.UUID == "":
			findings = append(findings, cluster.Finding{
				Check: "pending-install", Severity: cluster.Observed, Node: step.Node,
				Found:  "the machine reports no UUID, under which the journal would know it",
				Remedy: "Set one in its firmware or its virtual machine definition.",
			})
		case taken:
			findings = append(findings, cluster.Finding{
				Check: "pending-install", Severity: cluster.Observed, Node: step.Node,
				Found:  fmt.Sprintf("the machine has the same UUID as %s (%s), and the journal could not tell them apart", other, step.UUID),
				Remedy: "Give each virtual machine a UUID of its own.",
			})
		}
	}

	return findings
}

// checkBudget refuses a roll whose budget of one unavailable worker is spent by
// workers that the roll itself will not bring back.
func checkBudget(snapshot cluster.Snapshot, steps []Step) (cluster.Finding, bool) {
	moves := make(map[string]bool, len(steps))
	for _, step := range steps {
		moves[step.Node] = true
	}

	var spent []string

	costs := false

	for _, node := range snapshot.Workers() {
		switch {
		case node.Kube == nil:
			continue
		case node.Available():
			costs = costs || moves[node.Name]
		case node.Kube.Unschedulable && node.Kube.CordonedBy == "":
			spent = append(spent, node.Name+" (cordoned)")
		case !node.Kube.Ready && !moves[node.Name]:
			spent = append(spent, node.Name+" (not ready)")
		}
	}

	if len(spent) == 0 || !costs {
		return cluster.Finding{}, false
	}

	return cluster.Finding{
		Check: "nodes-ready", Severity: cluster.Observed,
		Found:  "one worker may be unavailable at a time, and that is taken up by " + strings.Join(spent, ", "),
		Remedy: "Bring them back (kubectl uncordon) or remove them from the cluster.",
	}, true
}
