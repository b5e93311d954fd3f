// SPDX-License-Identifier: MPL-2.0

package fact

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Inventory returns the nodes of the cluster: Kubernetes nodes and discovery members, matched by address. One of
// the lists is enough if the other is not available.
func Inventory(members []cluster.Member, nodes []cluster.KubeNode, now time.Time) (known []cluster.Node, foreign []string) {
	// at holds the indexes of the members by address.
	at := make(map[string][]int, len(members))

	for index, member := range members {
		for _, address := range member.Addresses {
			at[address] = append(at[address], index)
		}
	}

	owned, matched := matchMembers(members, nodes, at)
	whole := len(members) > 0 && listsAll(nodes, owned)
	known = make([]cluster.Node, 0, len(nodes))

	for i := range nodes {
		kube, index := &nodes[i], owned[i]

		if index < 0 && !kube.Talos {
			foreign = append(foreign, kube.Name)

			continue
		}

		node := cluster.Node{Name: kube.Name, Role: kubeRole(*kube), Kube: kube}

		if index >= 0 {
			node.Member, node.Role = true, members[index].Role
			node.Address = commonAddress(members[index].Addresses, kube.Addresses)
		} else {
			node.Address = lastAddress(kube, at)
		}

		node.Gone = !node.Member && whole && !kube.Ready && now.Sub(kube.ReadySince) > cluster.GoneAfter
		known = append(known, node)
	}

	for index, member := range members {
		if !matched[index] {
			known = append(known, cluster.Node{Name: member.Hostname, Role: member.Role, Member: true, Address: member.Address()})
		}
	}

	return known, foreign
}

// listsAll reports whether discovery lists every node that is Ready. If it does not, a node may be absent for the same
// reason: without its service, discovery lists only the node that is asked.
func listsAll(nodes []cluster.KubeNode, owned []int) bool {
	for i := range nodes {
		if nodes[i].Talos && nodes[i].Ready && owned[i] < 0 {
			return false
		}
	}

	return true
}

// matchMembers returns the index of the member of each node, negative if it has none, and which members have a
// node. A member has one node at most. If several Node objects have its address, all but one are stale: the one
// with the member's hostname is chosen, then one that is Ready, then the first by name.
func matchMembers(members []cluster.Member, nodes []cluster.KubeNode, at map[string][]int) (owned []int, matched []bool) {
	owned, matched = make([]int, len(nodes)), make([]bool, len(members))
	order := make([]int, len(nodes))

	for i := range nodes {
		owned[i], order[i] = -1, i
	}

	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(readyRank(nodes[a]), readyRank(nodes[b])), cmp.Compare(nodes[a].Name, nodes[b].Name))
	})

	for _, named := range []bool{true, false} {
		for _, i := range order {
			if owned[i] >= 0 {
				continue
			}

			free := func(index int) bool {
				return !matched[index] && (!named || shortName(members[index].Hostname) == shortName(nodes[i].Name))
			}

			if owned[i] = memberOf(&nodes[i], at, free); owned[i] >= 0 {
				matched[owned[i]] = true
			}
		}
	}

	return owned, matched
}

// memberOf returns the index of the first free member that has an address of the node; negative if there is none.
func memberOf(kube *cluster.KubeNode, at map[string][]int, free func(int) bool) int {
	first := -1

	for _, address := range kube.Addresses {
		for _, index := range at[address] {
			if free(index) && (first < 0 || index < first) {
				first = index
			}
		}
	}

	return first
}

// lastAddress returns the address at which the machine of a node without a member is asked: the first one or, if
// the node is not Ready, the first one that discovery knows, because it may belong to another machine by now.
func lastAddress(kube *cluster.KubeNode, at map[string][]int) string {
	for _, address := range kube.Addresses {
		if kube.Ready || len(at[address]) > 0 {
			return address
		}
	}

	if len(kube.Addresses) > 0 {
		return kube.Addresses[0]
	}

	return ""
}

func readyRank(node cluster.KubeNode) int {
	if node.Ready {
		return 0
	}

	return 1
}

// shortName returns a hostname without its domain, because discovery and the kubelet may differ in whether they
// include it.
func shortName(name string) string {
	short, _, _ := strings.Cut(name, ".")

	return strings.ToLower(short)
}

func kubeRole(kube cluster.KubeNode) cluster.Role {
	if kube.ControlPlane {
		return cluster.ControlPlane
	}

	return cluster.Worker
}

// commonAddress returns the first of the node's addresses that the member has too.
func commonAddress(member, node []string) string {
	for _, address := range node {
		if slices.Contains(member, address) {
			return address
		}
	}

	return ""
}

// SharedAddresses returns the addresses that several Node objects have.
func SharedAddresses(nodes []cluster.Node) map[string]bool {
	seen, shared := make(map[string]bool, len(nodes)), map[string]bool{}

	for index := range nodes {
		node := &nodes[index]
		if node.Kube == nil || node.Gone || node.Address == "" {
			continue
		}

		if seen[node.Address] {
			shared[node.Address] = true
		}

		seen[node.Address] = true
	}

	return shared
}

// SetStaleAside separates the stale Node objects from the nodes. A Node object is stale if it is not Ready and
// the machine at its address says that it is registered under the name of another Node object of the same
// machine. The Node object of a node that is being upgraded is never stale, so that its upgrade does not lose it.
func SetStaleAside(nodes []cluster.Node, moves func(string) bool) (current []cluster.Node, stale []cluster.StaleNode) {
	byName := make(map[string]*cluster.Node, len(nodes))

	for index := range nodes {
		if nodes[index].Kube != nil {
			byName[nodes[index].Name] = &nodes[index]
		}
	}

	isStale := make([]bool, len(nodes))

	for index := range nodes {
		node := &nodes[index]
		if node.Kube == nil || node.Kube.Ready || node.Gone || node.Machine == nil || node.Machine.NodeName == node.Name || moves(node.Name) {
			continue
		}

		own, found := byName[node.Machine.NodeName]
		if !found || own.Gone || !sameMachine(*node, *own) {
			continue
		}

		isStale[index], own.Member = true, own.Member || node.Member
		stale = append(stale, cluster.StaleNode{Name: node.Name, Address: node.Address, Registered: own.Name})
	}

	if len(stale) == 0 {
		return nodes, nil
	}

	for index := range nodes {
		if !isStale[index] {
			current = append(current, nodes[index])
		}
	}

	slices.SortFunc(stale, func(a, b cluster.StaleNode) int { return cmp.Compare(a.Name, b.Name) })

	return current, stale
}

// sameMachine reports whether two nodes are one machine, which may have two addresses.
func sameMachine(a, b cluster.Node) bool {
	if a.Address == b.Address {
		return true
	}

	return a.Machine != nil && b.Machine != nil && a.Machine.BootID != "" && a.Machine.BootID == b.Machine.BootID && a.Machine.MachineID == b.Machine.MachineID
}

// KeepUnfinished unmarks gone nodes whose upgrade is unfinished: continuing without them could take down one node
// after the other with an image that does not boot.
func KeepUnfinished(nodes []cluster.Node, journal cluster.Journal) {
	for index := range nodes {
		if !nodes[index].Gone {
			continue
		}

		if _, entry, found := journal.Of(nodes[index]); found && entry.Awaited() {
			nodes[index].Gone = false
		}
	}
}

// unfinished reports whether the journal has an awaited entry for a machine that does not answer.
func unfinished(journal cluster.Journal, name string) bool {
	for _, entry := range journal.Entries {
		if shortName(entry.Node) == shortName(name) && entry.Awaited() {
			return true
		}
	}

	return false
}

// Sort sorts workers first and by name within a role, so that every table and every message lists nodes the same
// way.
func Sort(nodes []cluster.Node) {
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
