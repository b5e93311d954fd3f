// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

func TestStatusSaysWhatBecameOfTheNodesInTheJournal(t *testing.T) {
	for name, test := range map[string]struct {
		phases  map[string]cluster.Phase
		phase   string
		half    string
		message string
	}{
		"nobody is in it": {nil, protocol.PhaseReady, protocol.StatusCompleted, "Talos 1.13.4, Kubernetes 1.34.2."},
		"armed": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseInstalled, "worker-0": cluster.PhaseIntent},
			protocol.PhaseUpgradingTalos, protocol.StatusInProgress,
			"In the middle of an upgrade: worker-0, worker-1; the next apply continues.",
		},
		"being rolled back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRollingBack},
			protocol.PhaseUpgradingTalos, protocol.StatusInProgress,
			"In the middle of a rollback: worker-1; the next apply continues.",
		},
		"one forwards, one back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRollingBack, "worker-0": cluster.PhaseRebooting},
			protocol.PhaseUpgradingTalos, protocol.StatusInProgress,
			"In the middle of an upgrade: worker-0; the next apply continues. In the middle of a rollback: worker-1; the next apply continues.",
		},
		"fell back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseFallback},
			protocol.PhaseUpgradeFailed, protocol.StatusFailed,
			"Fell back to the old system and waits for a decision: worker-1.",
		},
		"rolled back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRolledBack, "worker-0": cluster.PhaseRolledBack},
			protocol.PhaseUpgradeFailed, protocol.StatusFailed,
			"Was rolled back to the old system and waits for a decision: worker-0, worker-1.",
		},
		"one of each, and one that is armed": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRolledBack, "worker-0": cluster.PhaseFallback, "cp-0": cluster.PhaseInstalled},
			protocol.PhaseUpgradeFailed, protocol.StatusFailed,
			"Fell back to the old system and waits for a decision: worker-0. Was rolled back to the old system and waits for a decision: worker-1.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			fake.journal = cluster.Journal{Entries: map[string]cluster.Entry{}}

			for node, phase := range test.phases {
				fake.journal.Entries["id-"+node] = cluster.Entry{Node: node, Phase: phase}
			}

			seen, err := fake.clusters(t).observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			got := statusOf(seen.Observation, *desired("1.13.4", ""))
			if got.Phase != test.phase || got.Talos.Status != test.half || got.Message != test.message {
				t.Errorf("phase %s, talos %s, message %q", got.Phase, got.Talos.Status, got.Message)
			}
		})
	}
}
