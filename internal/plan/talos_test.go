// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestTalos_TargetBelowWhatANodeMayBootIsRefused: the node's next boot would take it past the target, and nothing
// brings it back.
func TestTalos_TargetBelowWhatANodeMayBootIsRefused(t *testing.T) {
	t.Parallel()

	for title, test := range map[string]struct {
		target string
		phase  cluster.Phase
		want   bool
	}{
		"reverted after an install":   {"1.12.9", cluster.PhaseInstalled, true},
		"reverted after an intent":    {"1.12.9", cluster.PhaseIntent, true},
		"reverted to what it runs":    {"1.12.6", cluster.PhaseRebooting, true},
		"reverted after its reboot":   {"1.12.9", cluster.PhaseRebooting, false},
		"the same target":             {"1.13.4", cluster.PhaseInstalled, false},
		"a newer target":              {"1.13.5", cluster.PhaseInstalled, false},
		"reverted after it fell back": {"1.12.9", cluster.PhaseFallback, false},
	} {
		s := newScene(3, 2).entry("worker-1", test.phase, "boot-worker-1")
		if title == "reverted after its reboot" {
			s.node("worker-1").Machine.BootID = "boot-after"
		}

		s.target.Talos = version.MustParse(test.target)

		made := s.said(t)

		var refused bool

		for _, finding := range made.Findings {
			refused = refused || (finding.Severity == cluster.Permanent && finding.Node == "worker-1" && finding.Check == "pending-install")
		}

		if refused != test.want {
			t.Errorf("%s: refused %t, want %t\n%s", title, refused, test.want, render(made))
		}
	}
}

// TestTalos_KubernetesAloneWaitsForAnUnfinishedUpgrade: anything that reboots the node would start another Talos in
// the middle of it.
func TestTalos_KubernetesAloneWaitsForAnUnfinishedUpgrade(t *testing.T) {
	t.Parallel()

	alone := func(phase cluster.Phase) *scene {
		return newScene(3, 2).entry("worker-1", phase, "boot-worker-1").unmanaged().asserts("1.35.0")
	}

	unnamed := alone(cluster.PhaseIntent)
	entry := unnamed.snapshot.Journal.Entries["id-worker-1"]
	entry.Target = version.Version{}
	unnamed.snapshot.Journal.Entries["id-worker-1"] = entry

	asked := func(s *scene) *scene {
		entry := s.snapshot.Journal.Entries["id-worker-1"]
		entry.Asked, entry.Reason = "run-1 (talosupgrade_rollback)", "its storage\x1b is slow"
		s.snapshot.Journal.Entries["id-worker-1"] = entry

		return s
	}
	retried := newScene(3, 2).entry("worker-1", cluster.PhaseRolledBack, "boot-worker-1")
	again := retried.snapshot.Journal.Entries["id-worker-1"]
	again.Retry = true
	retried.snapshot.Journal.Entries["id-worker-1"] = again

	runFindings(t, map[string]findingCase{
		"where a person sends it back": {
			scene: asked(alone(cluster.PhaseRollingBack)), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{"it is being rolled back to Talos 1.12.6, as run-1 (talosupgrade_rollback) asked at ", `(its storage\x1b is slow)`, "Roll it back again, or set talos_version to 1.12.6"},
		},
		"where a person sent it back": {
			scene: asked(newScene(3, 2).entry("worker-1", cluster.PhaseRolledBack, "boot-worker-1")), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{"and was rolled back to Talos 1.12.6, as run-1 (talosupgrade_rollback) asked at ", "Choose another talos_version", "talosupgrade_retry_node"},
		},
		"it names the way out": {
			scene: alone(cluster.PhaseInstalled), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{"an earlier upgrade to Talos 1.13.4 is unfinished on this node", "Set talos_version to 1.13.4 and apply"},
		},
		"where it is being sent back": {
			scene: alone(cluster.PhaseRollingBack), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{"an earlier upgrade to Talos 1.13.4 failed on this node, and it is being rolled back", "Set talos_version to 1.12.6, or to a version that works there"},
		},
		"where it was sent back": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseRolledBack, "boot-worker-1"), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{"did not become healthy with it and was rolled back to Talos 1.12.6", "Find out why"},
		},
		"as far as it is known": {
			scene: unnamed, check: "pending-install", severity: cluster.Observed, node: "worker-1", says: []string{"an earlier upgrade of Talos is unfinished", "Set talos_version"},
		},
		"a sync alone waits as well": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseInstalled, "b").unmanaged().asserts("1.34.2").due(),
			check: "pending-install", severity: cluster.Observed, node: "worker-1",
		},
	})

	for behaviour, s := range map[string]*scene{
		"a fallback is finished":         alone(cluster.PhaseFallback),
		"it may be tried again":          retried,
		"nothing is to be done":          alone(cluster.PhaseInstalled).kubernetes("1.35.0"),
		"Talos is ours, and is finished": newScene(3, 2).entry("worker-1", cluster.PhaseInstalled, "b").asserts("1.35.0"),
	} {
		if finding, found := find(s.said(t).Findings, "pending-install"); found {
			t.Errorf("%s: %s", behaviour, finding)
		}
	}
}

// TestTalos_OneDeadUnfinishedNodeDoesNotBlockTheOthers: nodes that answer and are out of service are brought back
// first, whatever their name, role or canary says.
func TestTalos_OneDeadUnfinishedNodeDoesNotBlockTheOthers(t *testing.T) {
	t.Parallel()

	s := newScene(3, 4).
		silent("worker-1").entry("worker-1", cluster.PhaseRebooting, "b").
		entry("worker-2", cluster.PhaseIntent, "boot-worker-2").
		cordoned("worker-3", "run-1").entry("worker-3", cluster.PhaseInstalled, "boot-worker-3")
	s.policy.Canary = []string{"worker-2"}
	s.policy.MaxUnavailable, _ = cluster.ParseShare("4")

	wantOrder(t, s.said(t), "worker-3 worker-2 worker-1 worker-4 cp-1 cp-2 cp-3", "")
}
