// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestStatusFollowsFromObservationAndDesire(t *testing.T) {
	journal := func(phase cluster.Phase) cluster.Journal {
		return cluster.Journal{Entries: map[string]cluster.Entry{"uuid-worker-0": {Node: "worker-0", Phase: phase}}}
	}

	stale := func(phase cluster.Phase) cluster.Journal {
		return cluster.Journal{Entries: map[string]cluster.Entry{"uuid-of-a-machine-that-left": {Node: "worker-0", Phase: phase}}}
	}

	for name, test := range map[string]struct {
		talos, kubernetes           types.String
		change                      func(*fakeCluster)
		phase, talosHalf, otherHalf string
	}{
		"at the target":       {types.StringValue("v1.13.4"), types.StringNull(), nil, phaseReady, statusCompleted, statusIdle},
		"both halves managed": {types.StringValue("1.13.4"), types.StringValue("v1.34.2"), nil, phaseReady, statusCompleted, statusCompleted},
		"nothing of Talos":    {types.StringNull(), types.StringValue("1.34.2"), nil, phaseReady, statusIdle, statusCompleted},
		"behind the target":   {types.StringValue("1.13.5"), types.StringNull(), nil, phaseReady, statusPending, statusIdle},
		"one node behind": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.nodes[2].talos = "1.13.0"
		}, phaseReady, statusPending, statusIdle},
		"a node in mid-upgrade": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = journal(cluster.PhaseInstalled)
		}, phaseUpgrading, statusInProgress, statusIdle},
		"a node fell back": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = journal(cluster.PhaseFallback)
		}, phaseFailed, statusFailed, statusIdle},
		"a machine that left in mid-upgrade": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = stale(cluster.PhaseInstalled)
		}, phaseReady, statusCompleted, statusIdle},
		"a machine that left after it fell back": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = stale(cluster.PhaseFallback)
		}, phaseReady, statusCompleted, statusIdle},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			if test.change != nil {
				test.change(fake)
			}

			seen, err := fake.clusters(t).observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			model := newClusterModel(version.Version{}, version.Version{})
			model.TalosVersion, model.KubernetesVersion = test.talos, test.kubernetes

			got := newStatus(seen.Snapshot, model)
			if got.Phase != test.phase || got.Talos.Status != test.talosHalf || got.Kubernetes.Status != test.otherHalf {
				t.Errorf("phase %s, talos %s, kubernetes %s; message %q", got.Phase, got.Talos.Status, got.Kubernetes.Status, got.Message)
			}
		})
	}
}

func TestHeldNodesDoNotCount(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*fakeCluster)
		phase   string
		half    string
		highest string
	}{
		"one behind":    {func(f *fakeCluster) { f.nodes[2].talos = "1.12.6" }, phaseReady, statusCompleted, "1.13.4"},
		"one ahead":     {func(f *fakeCluster) { f.nodes[2].talos = "1.14.0" }, phaseReady, statusCompleted, "1.13.4"},
		"another is it": {func(f *fakeCluster) { f.nodes[1].talos = "1.12.6" }, phaseReady, statusPending, "1.13.4"},
		"one fell back, which was decided about": {func(f *fakeCluster) {
			f.journal = cluster.Journal{Entries: map[string]cluster.Entry{"uuid-worker-1": {Node: "worker-1", Phase: cluster.PhaseFallback}}}
		}, phaseReady, statusCompleted, "1.13.4"},
		"one is armed, which no decision changes": {func(f *fakeCluster) {
			f.journal = cluster.Journal{Entries: map[string]cluster.Entry{"uuid-worker-1": {Node: "worker-1", Phase: cluster.PhaseInstalled}}}
		}, phaseUpgrading, statusInProgress, "1.13.4"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			test.change(fake)

			seen, err := fake.clusters(t).observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			model := desired("1.13.4", "")
			model.NodeOverrides = holding(t, "worker-1")

			got := newStatus(seen.Snapshot, *model)
			if got.Phase != test.phase || got.Talos.Status != test.half || got.Talos.Highest.String() != test.highest {
				t.Errorf("phase %s, talos %s up to %s; message %q", got.Phase, got.Talos.Status, got.Talos.Highest, got.Message)
			}
		})
	}
}
