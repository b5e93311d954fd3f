// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// inventory is who belongs to the cluster: Kubernetes nodes and discovery
// members, matched by address. Either list alone will do when the other one is
// not to be had.
func inventory(members []cluster.Member, nodes []cluster.KubeNode, now time.Time) (known []cluster.Node, foreign []string) {
	rest := slices.Clone(members)

	for _, kube := range nodes {
		index := slices.IndexFunc(rest, func(m cluster.Member) bool { return sharesAddress(m.Addresses, kube.Addresses) })

		if index < 0 && !kube.Talos {
			foreign = append(foreign, kube.Name)

			continue
		}

		node := cluster.Node{Name: kube.Name, Role: kubeRole(kube), Kube: &kube}

		if index >= 0 {
			node.Member, node.Role = true, rest[index].Role
			node.Address = commonAddress(rest[index].Addresses, kube.Addresses)
			rest = slices.Delete(rest, index, index+1)
		} else if len(kube.Addresses) > 0 {
			node.Address = kube.Addresses[0]
		}

		node.Gone = !node.Member && len(members) > 0 && !kube.Ready && now.Sub(kube.ReadySince) > cluster.GoneAfter
		known = append(known, node)
	}

	for _, member := range rest {
		known = append(known, cluster.Node{Name: member.Hostname, Role: member.Role, Member: true, Address: member.Address()})
	}

	return known, foreign
}

// keepUnfinished does not let a node count as gone whose upgrade is unfinished:
// going on without it could take down one node after the other with an image
// that does not boot.
func keepUnfinished(nodes []cluster.Node, journal cluster.Journal) {
	for index := range nodes {
		if _, entry, found := journal.Of(nodes[index]); found && entry.Open() {
			nodes[index].Gone = false
		}
	}
}

func kubeRole(kube cluster.KubeNode) cluster.Role {
	if kube.ControlPlane {
		return cluster.ControlPlane
	}

	return cluster.Worker
}

func sharesAddress(a, b []string) bool { return commonAddress(a, b) != "" }

// commonAddress is the first of the node's addresses that discovery knows too.
func commonAddress(member, node []string) string {
	for _, address := range node {
		if slices.Contains(member, address) {
			return address
		}
	}

	return ""
}

// sortNodes puts workers first and orders by name within a role, so that every
// table and every message lists nodes the same way.
func sortNodes(nodes []cluster.Node) {
	slices.SortFunc(nodes, func(a, b cluster.Node) int {
		return cmp.Or(cmp.Compare(roleRank(a.Role), roleRank(b.Role)), cmp.Compare(a.Name, b.Name))
	})
}

func roleRank(role cluster.Role) int {
	if role == cluster.Worker {
		return 0
	}

	return 1
}
