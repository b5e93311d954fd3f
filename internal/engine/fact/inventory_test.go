// SPDX-License-Identifier: MPL-2.0

package fact_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
)

// TestInventory_StaleNodeObjectTakesNoMember: whichever of two Node objects with one address
// is listed first, the member is the one's that has its name.
func TestInventory_StaleNodeObjectTakesNoMember(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	long := now.Add(-time.Hour)
	node := func(name string, ready bool, addresses ...string) cluster.KubeNode {
		return cluster.KubeNode{Name: name, Addresses: addresses, Ready: ready, ReadySince: long, Talos: true}
	}

	for title, test := range map[string]struct {
		hostname    string
		real, ghost cluster.KubeNode
	}{
		"by the hostname":             {"worker-1", node("worker-1", false, "10.0.1.1"), node("ghost", true, "10.0.1.1")},
		"by the hostname with domain": {"worker-1.example.com", node("worker-1", false, "10.0.1.1"), node("ghost", true, "10.0.1.1")},
		"by being Ready":              {"other", node("worker-1", true, "10.0.1.1"), node("ghost", false, "10.0.1.1")},
		"at the second address":       {"worker-1", node("worker-1", true, "10.0.1.1"), node("ghost", false, "203.0.113.1", "10.0.1.1")},
	} {
		members := []cluster.Member{
			{Hostname: "worker-2", Role: cluster.Worker, Addresses: []string{"10.0.1.2"}},
			{Hostname: test.hostname, Role: cluster.Worker, Addresses: []string{"10.0.1.1"}},
		}

		for _, nodes := range [][]cluster.KubeNode{
			{test.ghost, test.real, node("worker-2", true, "10.0.1.2")},
			{node("worker-2", true, "10.0.1.2"), test.real, test.ghost},
		} {
			known, _ := fact.Inventory(members, nodes, now)
			if len(known) != len(nodes) {
				t.Fatalf("%s: %d nodes, want %d", title, len(known), len(nodes))
			}

			for _, found := range known {
				address := map[string]string{"worker-2": "10.0.1.2"}[found.Name]
				if address == "" {
					address = "10.0.1.1"
				}

				if found.Member == (found.Name == "ghost") || found.Address != address {
					t.Errorf("%s: %s is a member: %v, and at %s", title, found.Name, found.Member, found.Address)
				}

				// One that is Ready is not gone; the member keeps the other one from being so.
				if found.Gone != (found.Name == "ghost" && !found.Kube.Ready) {
					t.Errorf("%s: %s is gone: %v", title, found.Name, found.Gone)
				}
			}
		}
	}
}

// TestInventory_DiscoveryThatMissesReadyNodesProvesNothing: without its service it lists the machine that is asked, alone.
func TestInventory_DiscoveryThatMissesReadyNodesProvesNothing(t *testing.T) {
	t.Parallel()

	now := time.Now()
	node := func(name string, address string, ready, talos bool) cluster.KubeNode {
		return cluster.KubeNode{Name: name, Addresses: []string{address}, Ready: ready, ReadySince: now.Add(-cluster.GoneAfter - time.Second), Talos: talos}
	}

	for title, test := range map[string]struct {
		listed []string
		gone   bool
	}{
		"every node that is Ready": {[]string{"10.0.1.1", "10.0.1.2"}, true},
		"only one of them":         {[]string{"10.0.1.1"}, false},
		"none":                     {nil, false},
	} {
		var members []cluster.Member
		for _, address := range test.listed {
			members = append(members, cluster.Member{Hostname: address, Role: cluster.Worker, Addresses: []string{address}})
		}

		known, _ := fact.Inventory(members, []cluster.KubeNode{
			node("cp-0", "10.0.1.1", true, true), node("worker-0", "10.0.1.2", true, true),
			node("worker-1", "10.0.1.3", false, true), node("other", "10.0.1.4", true, false),
		}, now)

		for _, found := range known {
			if found.Gone != (test.gone && found.Name == "worker-1") {
				t.Errorf("%s: %s is gone: %v", title, found.Name, found.Gone)
			}
		}
	}
}

// TestInventory_SetsAsideWhatIsStale, and nothing that may be a machine of its own.
func TestInventory_SetsAsideWhatIsStale(t *testing.T) {
	t.Parallel()

	registersAs := func(name string) *cluster.Machine {
		return &cluster.Machine{NodeName: name, BootID: "b", MachineID: "m"}
	}
	node := func(name, address string, ready bool, machine *cluster.Machine) cluster.Node {
		return cluster.Node{Name: name, Address: address, Machine: machine, Kube: &cluster.KubeNode{Name: name, Ready: ready}}
	}

	for title, test := range map[string]struct {
		other  cluster.Node
		moving string
		stale  bool
	}{
		"the same address":                   {other: node("old", "10.0.1.1", false, registersAs("worker-1")), stale: true},
		"another address of the machine":     {other: node("old", "10.0.1.9", false, registersAs("worker-1")), stale: true},
		"one that is Ready":                  {other: node("old", "10.0.1.1", true, registersAs("worker-1"))},
		"one that is being upgraded":         {other: node("old", "10.0.1.1", false, registersAs("worker-1")), moving: "old"},
		"a machine that nobody has asked":    {other: node("old", "10.0.1.1", false, nil)},
		"a machine of a third name":          {other: node("old", "10.0.1.1", false, registersAs("third"))},
		"a machine in another boot":          {other: node("old", "10.0.1.9", false, &cluster.Machine{NodeName: "worker-1", BootID: "c", MachineID: "m"})},
		"a machine that says its own name":   {other: node("old", "10.0.1.9", false, registersAs("old"))},
		"a machine that registers with none": {other: node("old", "10.0.1.1", false, registersAs(""))},
	} {
		nodes := []cluster.Node{node("worker-1", "10.0.1.1", true, registersAs("worker-1")), test.other}

		current, stale := fact.SetStaleAside(nodes, func(name string) bool { return name == test.moving })
		if (len(stale) == 1) != test.stale || len(current)+len(stale) != len(nodes) {
			t.Errorf("%s: %v are stale, and %d are left", title, stale, len(current))
		}
	}
}

// TestInventory_AsksAReadyNodeAtItsOwnAddress: a virtual address may stand in the Node object
// of a control plane that had it before.
func TestInventory_AsksAReadyNodeAtItsOwnAddress(t *testing.T) {
	t.Parallel()

	members := []cluster.Member{{Hostname: "cp-1", Role: cluster.ControlPlane, Addresses: []string{"10.0.0.1", "10.0.0.100"}}}

	for ready, want := range map[bool]string{true: "10.0.0.2", false: "10.0.0.100"} {
		known, _ := fact.Inventory(members, []cluster.KubeNode{
			{Name: "cp-1", Addresses: []string{"10.0.0.1"}, Ready: true, Talos: true},
			{Name: "cp-2", Addresses: []string{"10.0.0.2", "10.0.0.100"}, Ready: ready, Talos: true},
		}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

		if len(known) != 2 || known[1].Address != want {
			t.Errorf("Ready %t: %+v, want cp-2 at %s", ready, known, want)
		}
	}
}
