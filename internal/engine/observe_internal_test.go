// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
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
			known, _ := inventory(members, nodes, now)
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
