// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// large is a cluster of so many nodes, five of them control planes, with every
// part of the policy in use.
func large(nodes int) *scene {
	s := newScene(0, 0)

	for i := range nodes - 5 {
		s.add(cluster.Worker, fmt.Sprintf("worker-%05d", i), fmt.Sprintf("10.%d.%d.%d", 1+i/62_500, i/250%250, i%250))
	}

	for i := range 5 {
		s.add(cluster.ControlPlane, fmt.Sprintf("cp-%d", i), fmt.Sprintf("10.0.0.%d", i))
	}

	s.policy.MaxUnavailable = share("10%")

	return s.elect().canary("worker-00000", "worker-00001").holds("worker-00002").gets("worker-00003", generic)
}

// BenchmarkPlanOf1000Nodes is a part of the bar for refresh and plan: 3 seconds
// for all of it, of which planning may take 50 ms. The engine plans again
// before every node.
func BenchmarkPlanOf1000Nodes(b *testing.B) {
	b.Run("one hop", func(b *testing.B) { benchmark(b, large(1000), 999+1) })
	b.Run("two hops", func(b *testing.B) { benchmark(b, large(1000).walks().runs("1.11.2"), 2*999+1) })
	b.Run("both halves", func(b *testing.B) {
		s := large(1000).asserts("1.35.0")
		benchmark(b, s, 999+999+4*5+1)
	})
	b.Run("99 on their way", func(b *testing.B) { benchmark(b, underway(large(1000), 99), 999+1) })
}

// underway has so many workers in the middle of their upgrade.
func underway(s *scene, workers int) *scene {
	s.snapshot.Journal = &cluster.Journal{Entries: map[string]cluster.Entry{}}

	for i := range workers {
		node := s.node(fmt.Sprintf("worker-%05d", 10+i))
		s.snapshot.Journal.Entries[node.MachineID()] = cluster.Entry{Node: node.Name, Phase: cluster.PhaseIntent, BootID: node.Machine.BootID, Previous: node.Machine.Talos}
	}

	return s
}

func benchmark(b *testing.B, s *scene, steps int) {
	b.Helper()
	b.ReportAllocs()

	for b.Loop() {
		made := s.make()
		if len(made.Steps) != steps || len(cluster.Blocking(made.Findings)) > 0 {
			b.Fatalf("%d steps, want %d; findings %v", len(made.Steps), steps, made.Findings)
		}

		if started := made.Startable(s.snapshot, nil); len(started) == 0 {
			b.Fatal("nothing may start")
		}
	}
}

// BenchmarkAllocationGrowth plans for ten times as many nodes: the allocations
// should be ten times as many, or fewer.
func BenchmarkAllocationGrowth(b *testing.B) {
	small, big := large(1000), large(10_000)

	for b.Loop() {
		b.ReportMetric(growth(small, big), "x-allocs")
	}
}

func growth(small, big *scene) float64 {
	allocs := func(s *scene) float64 { return testing.AllocsPerRun(1, func() { s.make() }) }

	return allocs(big) / allocs(small)
}

// TestAllocationsGrowLinearly leaves some room above ten for maps that double.
func TestAllocationsGrowLinearly(t *testing.T) {
	if got := growth(large(1000), large(10_000)); got > 11 {
		t.Errorf("ten times the nodes take %.1f times the allocations", got)
	}
}
