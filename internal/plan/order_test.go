// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestStepsComeInTheOrderThatCostsLeast(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene    *scene
		order    cluster.Order
		steps    string
		atTarget string
	}{
		"workers first, each role by name": {
			scene: newScene(3, 2), steps: "worker-1 worker-2 cp-1 cp-2 cp-3",
		},
		"control planes first, each role by name": {
			scene: newScene(3, 2), order: cluster.ControlPlanesFirst, steps: "cp-1 cp-2 cp-3 worker-1 worker-2",
		},
		"an unavailable worker goes first because it costs nothing": {
			scene: newScene(1, 3).notReady("worker-3"), steps: "worker-3 worker-1 worker-2 cp-1",
		},
		"a cordoned worker goes first because it costs nothing": {
			scene: newScene(1, 3).cordoned("worker-2", ""), steps: "worker-2 worker-1 worker-3 cp-1",
		},
		"an unavailable control plane waits for the workers all the same": {
			scene: newScene(3, 2).notReady("cp-2"), steps: "worker-1 worker-2 cp-2 cp-1 cp-3",
		},
		"what an earlier run left armed goes before everything": {
			scene: newScene(3, 2).notReady("worker-1").entry("cp-3", cluster.PhaseInstalled, "b"),
			steps: "cp-3 worker-1 worker-2 cp-1 cp-2",
		},
		"our own cordon of an earlier run goes before everything": {
			scene: newScene(3, 2).cordoned("cp-2", "run-1"), steps: "cp-2 worker-1 worker-2 cp-1 cp-3",
		},
		"two unfinished nodes follow the order of the roles": {
			scene: newScene(3, 2).entry("cp-1", cluster.PhaseIntent, "b").entry("worker-2", cluster.PhaseRebooting, "b"),
			steps: "worker-2 cp-1 worker-1 cp-2 cp-3",
		},
		"an unfinished node that does not answer has its turn": {
			scene: newScene(3, 2).silent("worker-2").entry("worker-2", cluster.PhaseRebooting, "b"),
			steps: "worker-2 worker-1 cp-1 cp-2 cp-3",
		},
		"nodes at the target have no turn": {
			scene: newScene(3, 2).runs("1.13.4", "worker-1", "cp-3"), steps: "worker-2 cp-1 cp-2", atTarget: "worker-1 cp-3",
		},
		"a cluster at the target has nothing to do": {
			scene: newScene(3, 1).runs("1.13.4"), atTarget: "worker-1 cp-1 cp-2 cp-3",
		},
		"a fallback is no unfinished work": {
			scene: newScene(1, 2).entry("worker-2", cluster.PhaseFallback, "b"), steps: "worker-1 worker-2 cp-1",
		},
		"gone nodes are neither moved nor counted": {
			scene: func() *scene {
				s := newScene(3, 2).silent("worker-1").notReady("worker-1")
				s.node("worker-1").Gone = true

				return s
			}(), steps: "worker-2 cp-1 cp-2 cp-3",
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if test.order != "" {
				test.scene.policy.Order = test.order
			}

			wantOrder(t, test.scene.said(t), test.steps, test.atTarget)
		})
	}
}

func TestWithoutATalosTargetTalosStays(t *testing.T) {
	t.Parallel()

	for _, running := range []string{"1.34.1", "1.34.2"} {
		s := newScene(3, 2).kubernetes(running).cordoned("worker-1", "run-1")
		s.target = cluster.Target{Kubernetes: version.MustParse("1.34.2")}

		made := s.said(t)
		if len(made.Findings) > 0 {
			t.Errorf("findings: %v", made.Findings)
		}

		for _, step := range made.Steps {
			if step.Component == "" {
				t.Errorf("a turn in Talos: %+v", step)
			}
		}

		if running == "1.34.2" {
			wantOrder(t, made, "", "worker-1 worker-2 cp-1 cp-2 cp-3")
		}
	}
}

func TestStepsSayHowTheirNodeMoves(t *testing.T) {
	t.Parallel()

	s := newScene(1, 1).runs("1.13.1", "worker-1")
	s.node("worker-1").Machine.Schematic = schematicA

	want := []plan.Step{
		{
			Node: "worker-1", Role: cluster.Worker, Address: "10.0.1.1", Key: "id-worker-1",
			From: version.MustParse("1.13.1"), To: version.MustParse("1.13.4"), API: cluster.LifecycleAPI,
			Image: "factory.talos.dev/metal-installer/" + schematicA + ":v1.13.4", Schematic: schematicA,
		},
		{
			Node: "cp-1", Role: cluster.ControlPlane, Address: "10.0.0.1", Key: "id-cp-1",
			From: version.MustParse("1.12.6"), To: version.MustParse("1.13.4"), API: cluster.LegacyAPI,
			Image: generic + ":v1.13.4",
		},
		{Component: cluster.Manifests, From: version.MustParse("1.34.2"), To: version.MustParse("1.34.2")},
	}

	got := s.said(t).Steps
	for i := range got {
		if got[i].Estimate <= 0 {
			t.Errorf("no estimate: %+v", got[i])
		}

		got[i].Estimate = 0
	}

	if !slices.Equal(got, want) {
		t.Errorf("steps:\n%+v\nwant:\n%+v", got, want)
	}
}

func TestUnfinishedNodesKeepWhatTheJournalKnows(t *testing.T) {
	t.Parallel()

	t.Run("silent after the reboot: version and image are the journal's", func(t *testing.T) {
		t.Parallel()

		got := newScene(3, 1).silent("cp-1").entry("cp-1", cluster.PhaseRebooting, "b").said(t).Steps[0]
		if got.Node != "cp-1" || !got.Finish || got.Done || got.From.String() != "1.12.6" || got.Image != generic+":v1.13.4" || got.Key != "id-cp-1" {
			t.Errorf("step: %+v", got)
		}
	})

	t.Run("at the target with an open entry: only the way back is left", func(t *testing.T) {
		t.Parallel()

		made := newScene(3, 1).runs("1.13.4").entry("cp-1", cluster.PhaseRebooting, "b").said(t)
		wantOrder(t, made, "cp-1", "worker-1 cp-2 cp-3")

		if got := made.Steps[0]; !got.Finish || !got.Done {
			t.Errorf("step: %+v, want it finished and done", got)
		}
	})

	t.Run("at the target under our cordon: only the way back is left", func(t *testing.T) {
		t.Parallel()

		made := newScene(3, 1).runs("1.13.4").cordoned("worker-1", "run-1").said(t)
		wantOrder(t, made, "worker-1", "cp-1 cp-2 cp-3")

		if got := made.Steps[0]; !got.Finish || !got.Done {
			t.Errorf("step: %+v, want it finished and done", got)
		}
	})

	t.Run("at the target under somebody else's cordon: none of our business", func(t *testing.T) {
		t.Parallel()

		wantOrder(t, newScene(3, 1).runs("1.13.4").cordoned("worker-1", "").said(t), "", "worker-1 cp-1 cp-2 cp-3")
	})
}

func TestADemandedSchematicMovesNodesOfTheRightVersion(t *testing.T) {
	t.Parallel()

	demand := func(s *scene, schematic string) *scene {
		s.target.InstallerImage = "factory.talos.dev/metal-installer/" + schematic

		return s
	}

	t.Run("another schematic runs", func(t *testing.T) {
		t.Parallel()

		s := demand(newScene(3, 1).runs("1.13.4").built(schematicA), schematicB)
		s.node("worker-1").Machine.Schematic = schematicB

		made := s.said(t)
		wantOrder(t, made, "cp-1 cp-2 cp-3", "worker-1")

		if step := made.Steps[0]; step.Schematic != schematicB || !step.Demanded || step.Done {
			t.Errorf("step: %+v", step)
		}
	})

	t.Run("own image without an override demands nothing", func(t *testing.T) {
		t.Parallel()

		s := newScene(1, 1).runs("1.13.4").built(schematicA)
		s.node("worker-1").Machine.Config.InstallImage = "factory.talos.dev/metal-installer/" + schematicB + ":v1.13.4"

		wantOrder(t, s.said(t), "", "worker-1 cp-1")
	})

	t.Run("a demand that does not suit the node is refused, not taken for met", func(t *testing.T) {
		t.Parallel()

		s := demand(newScene(3, 0).runs("1.13.4").built(schematicA), schematicB)
		s.node("cp-2").Machine.Platform = "aws"

		made := s.said(t)
		wantOrder(t, made, "cp-1 cp-2 cp-3", "")

		if finding, ok := find(made.Findings, "installer-image"); !ok || finding.Node != "cp-2" || finding.Severity != cluster.Permanent {
			t.Errorf("findings: %v; want cp-2 refused", made.Findings)
		}
	})

	t.Run("components that are not pinned stay where they are at the same version", func(t *testing.T) {
		t.Parallel()

		s := demand(newScene(3, 0).runs("1.13.4").built(schematicA), schematicB)
		s.node("cp-1").Machine.Config.Images = nil

		if finding, ok := find(s.said(t).Findings, "component-images"); ok {
			t.Errorf("finding: %v", finding)
		}
	})
}
