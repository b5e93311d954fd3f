// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestOrder_StepsComeInTheOrderThatCostsLeast(t *testing.T) {
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
		"an unfinished node that runs the new version returns before another one is drained": {
			scene: newScene(3, 2).cordoned("worker-1", "run-1").runs("1.13.4", "worker-2").cordoned("worker-2", "run-1").entry("worker-2", cluster.PhaseRebooting, "b"),
			steps: "worker-2 worker-1 cp-1 cp-2 cp-3",
		},
		"of two nodes that are only cordoned, the second returns to service before the first is drained": {
			scene: newScene(1, 3).cordoned("worker-1", "run-1").cordoned("worker-2", "run-1"),
			steps: "worker-2 worker-1 worker-2 worker-3 cp-1",
		},
		"a node that is only cordoned returns to service before an install is finished": {
			scene: newScene(1, 3).cordoned("worker-1", "run-1").cordoned("worker-2", "run-1").entry("worker-2", cluster.PhaseIntent, "b"),
			steps: "worker-1 worker-2 worker-1 worker-3 cp-1",
		},
		"a node that is only cordoned moves at once if the other unfinished one does not answer": {
			scene: newScene(1, 3).cordoned("worker-2", "run-1").silent("worker-1").entry("worker-1", cluster.PhaseRebooting, "b"),
			steps: "worker-2 worker-1 worker-3 cp-1",
		},
		"a worker that an earlier run only cordoned waits for one whose place it needs": {
			scene: newScene(1, 3).cordoned("worker-1", "run-1").notReady("worker-2"),
			steps: "worker-1 worker-2 worker-1 worker-3 cp-1",
		},
		"control planes are not returned to service first": {
			scene: newScene(3, 1).cordoned("cp-1", "run-1").cordoned("cp-2", "run-1"), steps: "cp-1 cp-2 worker-1 cp-3",
		},
		"what this run has cordoned is under way": {
			scene: func() *scene {
				s := newScene(1, 3).cordoned("worker-1", "run-1").cordoned("worker-2", "run-1")
				s.policy.Run = "run-1"

				return s
			}(), steps: "worker-1 worker-2 worker-3 cp-1",
		},
		"a cordoned node that is not Ready is not returned to service": {
			scene: newScene(1, 3).cordoned("worker-1", "run-1").notReady("worker-1").cordoned("worker-2", "run-1").notReady("worker-2"),
			steps: "worker-1 worker-2 worker-3 cp-1",
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

func TestOrder_TalosStaysWithoutATarget(t *testing.T) {
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

func TestOrder_StepsSayHowTheirNodeMoves(t *testing.T) {
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

func TestOrder_UnfinishedNodesKeepWhatTheJournalKnows(t *testing.T) {
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

func TestOrder_DemandedSchematicMovesNodesOfTheRightVersion(t *testing.T) {
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

func TestStartable_FillsTheBudgetAndNoMore(t *testing.T) {
	t.Parallel()

	budget := func(s *scene, text string) *scene {
		s.policy.MaxUnavailable = share(text)

		return s
	}

	cpsFirst := func(s *scene) *scene {
		s.policy.Order = cluster.ControlPlanesFirst

		return s
	}

	for behaviour, test := range map[string]struct {
		scene *scene
		// busy are the nodes whose turn of the plan has begun.
		busy string
		want string
	}{
		"one worker by default":                             {scene: newScene(3, 3), want: "worker-1"},
		"nothing beside it by default":                      {scene: newScene(3, 3), busy: "worker-1"},
		"as many workers as the budget allows":              {scene: budget(newScene(3, 3), "2"), want: "worker-1 worker-2"},
		"a slot is refilled":                                {scene: budget(newScene(3, 3), "2"), busy: "worker-1", want: "worker-2"},
		"all workers, but no control plane beside them":     {scene: budget(newScene(3, 3), "100%"), want: "worker-1 worker-2 worker-3"},
		"no control plane while a worker is busy":           {scene: budget(newScene(3, 1), "3"), busy: "worker-1"},
		"one control plane at a time":                       {scene: budget(newScene(3, 0), "3"), want: "cp-1"},
		"no second control plane":                           {scene: budget(newScene(3, 0), "3"), busy: "cp-1"},
		"no worker beside a control plane":                  {scene: budget(cpsFirst(newScene(3, 3)), "3"), busy: "cp-1"},
		"control planes first, and nothing beside":          {scene: budget(cpsFirst(newScene(3, 3)), "3"), want: "cp-1"},
		"an unavailable worker costs nothing":               {scene: budget(newScene(3, 3).notReady("worker-3"), "2"), want: "worker-3 worker-1"},
		"an unavailable worker is busy all the same":        {scene: newScene(3, 3).notReady("worker-3"), want: "worker-3"},
		"half of six with one away":                         {scene: budget(newScene(3, 6).notReady("worker-6"), "50%"), want: "worker-6 worker-1 worker-2"},
		"a foreign cordon takes a slot":                     {scene: budget(newScene(3, 3).runs("1.13.4", "worker-3").cordoned("worker-3", ""), "2"), want: "worker-1"},
		"a held worker that is away takes a slot":           {scene: budget(newScene(3, 3).holds("worker-3").notReady("worker-3"), "2"), want: "worker-1"},
		"a worker that is gone takes none":                  {scene: budget(newScene(3, 3).gone("worker-3"), "2"), want: "worker-1 worker-2"},
		"canaries alone":                                    {scene: budget(newScene(3, 3).canary("worker-3"), "3"), want: "worker-3"},
		"canaries beside each other":                        {scene: budget(newScene(3, 4).canary("worker-3", "worker-4"), "3"), want: "worker-3 worker-4"},
		"nothing else while a canary is busy":               {scene: budget(newScene(3, 3).canary("worker-3"), "3"), busy: "worker-3"},
		"what an earlier run left goes alone":               {scene: budget(newScene(3, 3).cordoned("worker-2", "run-1"), "3"), want: "worker-2"},
		"a control plane that an earlier run left is first": {scene: budget(newScene(3, 3).entry("cp-1", cluster.PhaseInstalled, "b"), "3"), want: "cp-1"},
		"nothing beside what is being finished":             {scene: budget(newScene(3, 3).cordoned("worker-2", "run-1"), "3"), busy: "worker-2"},
		"only the first hop":                                {scene: budget(newScene(0, 3).walks().runs("1.11.2", "worker-2"), "3"), want: "worker-2"},
		"no second hop before the first is done":            {scene: budget(newScene(0, 3).walks().runs("1.11.2", "worker-2"), "3"), busy: "worker-2"},
		"a component, and nothing beside it":                {scene: budget(newScene(3, 3).runs("1.13.4").asserts("1.35.0"), "3"), want: "cp-1"},
		"nothing beside a component":                        {scene: budget(newScene(3, 3).runs("1.13.4").asserts("1.35.0"), "3"), busy: "cp-1"},
		"nothing where there is nothing to do":              {scene: newScene(3, 3).runs("1.13.4")},
		"no control plane goes before a worker without a slot": {
			scene: newScene(3, 3).runs("1.13.4", "worker-3").notReady("worker-3"),
		},
		"a worker that costs nothing does": {
			scene: newScene(3, 3).notReady("worker-3").canary("worker-1").cordoned("worker-1", ""), want: "worker-1",
		},
		"an unavailable worker is bounded by its turn alone": {scene: budget(newScene(3, 3).notReady("worker-1").notReady("worker-2").notReady("worker-3"), "2"), want: "worker-1 worker-2"},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			made := test.scene.said(t)

			var busy []plan.Step

			for _, name := range strings.Fields(test.busy) {
				index := slices.IndexFunc(made.Steps, func(s plan.Step) bool { return s.Node == name })
				busy = append(busy, made.Steps[index])
			}

			if got := stepNames(plan.Plan{Steps: made.Startable(test.scene.snapshot, busy)}); got != test.want {
				t.Errorf("startable: %q, want %q, of\n%s", got, test.want, render(made))
			}
		})
	}
}

// TestStartable_KnowsTheBusyInALaterPlan plans again while turns are going on: their nodes show as unfinished, not
// at all, or in the next hop.
func TestStartable_KnowsTheBusyInALaterPlan(t *testing.T) {
	t.Parallel()

	begun := func(s *scene) []plan.Step { return s.said(t).Steps[:1] }
	wide := func(s *scene) *scene {
		s.policy.MaxUnavailable = share("3")

		return s
	}

	walk := wide(newScene(0, 3).walks().runs("1.11.2", "worker-1").runs("1.12.9", "worker-2", "worker-3"))

	for behaviour, test := range map[string]struct {
		busy  []plan.Step
		later *scene
		want  string
	}{
		"cordoned by us, it looks unfinished": {
			busy: begun(newScene(3, 4)), later: wide(newScene(3, 4).cordoned("worker-1", "run-1")), want: "worker-2 worker-3",
		},
		"away, it looks unfinished": {
			busy: begun(newScene(3, 4)), later: wide(newScene(3, 4).silent("worker-1").notReady("worker-1").entry("worker-1", cluster.PhaseRebooting, "b")),
			want: "worker-2 worker-3",
		},
		"back in the cluster, it is not in the plan any more": {
			busy: begun(newScene(3, 4)), later: wide(newScene(3, 4).runs("1.13.4", "worker-1")), want: "worker-2 worker-3",
		},
		"at the end of its hop, the next hop has to wait to end": {
			busy: begun(walk), later: wide(newScene(0, 3).walks().runs("1.12.9")),
		},
		"another unfinished node waits for it": {
			busy: begun(newScene(3, 4)), later: wide(newScene(3, 4).cordoned("worker-1", "run-1").cordoned("worker-2", "run-0")),
		},
		"a busy canary holds back the others when it is not in the plan any more": {
			busy: begun(newScene(3, 4).canary("worker-1")), later: wide(newScene(3, 4).canary("worker-1").runs("1.13.4", "worker-1")),
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if got := stepNames(plan.Plan{Steps: test.later.said(t).Startable(test.later.snapshot, test.busy)}); got != test.want {
				t.Errorf("startable: %q, want %q, of\n%s", got, test.want, render(test.later.said(t)))
			}
		})
	}
}

func TestOrder_ComponentsMoveInTheOrderOfTheSkewPolicy(t *testing.T) {
	t.Parallel()

	made := newScene(2, 2).runs("1.13.4").canary("worker-2").asserts("1.35.0").said(t)

	var got []string

	for _, step := range made.Steps {
		if step.From.String() != "1.34.2" || step.To.String() != "1.35.0" {
			t.Errorf("step: %+v", step)
		}

		got = append(got, string(step.Component)+" "+step.Node)
	}

	want := []string{
		"kube-apiserver cp-1", "kube-apiserver cp-2", "kube-controller-manager cp-1", "kube-controller-manager cp-2", "kube-scheduler cp-1", "kube-scheduler cp-2",
		"kube-proxy cp-1", "kube-proxy cp-2",
		"kubelet worker-2", "kubelet cp-1", "kubelet cp-2", "kubelet worker-1", "manifests ",
	}

	if !slices.Equal(got, want) {
		t.Errorf("order:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A node that a hop only passes through its minor version is not rebooted.
func TestOrder_NodesAheadOfAHopAreSparedIt(t *testing.T) {
	t.Parallel()

	made := newScene(0, 3).walks().runs("1.11.2", "worker-1").runs("1.12.0", "worker-2").runs("1.13.0", "worker-3").said(t)

	hops := map[string]int{}
	for _, step := range made.Steps {
		hops[step.Node]++
	}

	if len(made.Hops) != 2 || hops["worker-1"] != 2 || hops["worker-2"] != 1 || hops["worker-3"] != 1 || made.Total() != 3 {
		t.Errorf("plan:\n%s", render(made))
	}
}

func TestOrder_AnotherSchematicComesBeforeKubernetes(t *testing.T) {
	t.Parallel()

	made := newScene(3, 1).runs("1.13.4").gets("worker-1", overrideB).asserts("1.35.0").said(t)
	if first := made.Steps[0]; len(made.Hops) != 2 || made.Hops[0].Product != version.Talos || first.Node != "worker-1" || first.Component != "" {
		t.Errorf("plan:\n%s", render(made))
	}
}

func TestOrder_UnfinishedNodesComeBeforeKubernetes(t *testing.T) {
	t.Parallel()

	s := newScene(1, 2).runs("1.13.5").kubernetes("1.31.5").aims("1.14.0").asserts("1.32.4").cordoned("worker-2", "run-1")
	made := s.said(t)

	if made.Hops[0].Product != version.Kubernetes {
		t.Fatalf("Kubernetes does not move first:\n%s", render(made))
	}

	if first := made.Steps[0]; first.Node != "worker-2" || !first.Finish || !first.Done || first.Hop != 0 {
		t.Errorf("plan:\n%s", render(made))
	}
}

func settling(s *scene) *scene {
	s.policy.Settle = time.Minute

	return s
}

// behind puts the kubelets of all workers a minor version behind, and sets how many of them may restart at a time.
func behind(s *scene, kubelets string) *scene {
	s.kubernetes("1.35.0").asserts("1.35.0").runs("1.13.4").policy.Kubernetes.MaxUnavailableKubelets = share(kubelets)

	for _, node := range s.snapshot.Workers() {
		s.component(node.Name, cluster.Kubelet, "1.34.2")
	}

	return s
}

func TestBudget_IsAShareOfAllWorkers(t *testing.T) {
	t.Parallel()

	budget := func(s *scene, text string) *scene {
		s.policy.MaxUnavailable = share(text)

		return s
	}

	for text, want := range map[string]int{"1": 1, "3": 3, "25%": 1, "50%": 3, "100%": 6} {
		if got := budget(newScene(3, 6).holds("worker-6"), text).said(t).Budget; got != want {
			t.Errorf("%s of 6 workers is %d, want %d", text, got, want)
		}
	}

	unset := newScene(3, 6)
	unset.policy.MaxUnavailable = cluster.Share{}

	if got := unset.said(t).Budget; got != 1 {
		t.Errorf("without a policy the budget is %d, want 1", got)
	}

	runPaths(t, map[string]pathCase{
		"taken up to the last": {
			scene: budget(newScene(3, 6).cordoned("worker-1", "").cordoned("worker-2", "").cordoned("worker-3", ""), "50%"), severity: cluster.Observed,
			says: []string{"max_unavailable = 50% of 6 workers is 3", "worker-1 (cordoned), worker-2 (cordoned), worker-3 (cordoned)"},
		},
		"taken up by a worker whose turn comes after the canary's": {
			scene: newScene(3, 3).canary("worker-1").notReady("worker-2"), severity: cluster.Observed, says: []string{"worker-2 (not ready)"},
		},
		"taken up by a worker whose turn comes in a later hop": {
			scene: newScene(3, 3).walks().runs("1.11.2").runs("1.12.0", "worker-3").notReady("worker-3"), severity: cluster.Observed, says: []string{"worker-3 (not ready)"},
		},
		"taken up before a worker that an earlier run only cordoned is drained": {
			scene: newScene(3, 3).cordoned("worker-1", "run-1").cordoned("worker-2", "").runs("1.13.4", "worker-2", "worker-3"), severity: cluster.Observed,
			says: []string{"max_unavailable = 1 of 3 workers is 1, and that is taken up by worker-2 (cordoned)"},
		},
		"without a policy": {
			scene: func() *scene {
				s := newScene(3, 2).cordoned("worker-1", "")
				s.policy.MaxUnavailable = cluster.Share{}

				return s
			}(), severity: cluster.Observed, says: []string{"max_unavailable = 1 of 2 workers is 1"},
		},
	})

	crowd := budget(newScene(3, 30), "15")
	for _, node := range crowd.snapshot.Workers()[:15] {
		crowd.cordoned(node.Name, "").runs("1.13.4", node.Name)
	}

	runPaths(t, map[string]pathCase{
		"cordoned": {
			scene: newScene(3, 2).runs("1.13.4", "worker-1").cordoned("worker-1", ""), severity: cluster.Observed,
			says: []string{"taken up by worker-1 (cordoned) (check nodes-ready). Take their cordons away (kubectl uncordon), or set max_unavailable = \"2\", which lets the others go one after the other."},
		},
		"not ready": {
			scene: newScene(3, 2).runs("1.13.4", "worker-1").notReady("worker-1"), severity: cluster.Observed,
			says: []string{"worker-1 (not ready) (check nodes-ready). Bring back those that are not ready (kubectl describe node) or remove them from the cluster, or set max_unavailable = \"2\", which lets the others go one after the other."},
		},
		"some of each": {
			scene: budget(newScene(3, 4).runs("1.13.4", "worker-1").cordoned("worker-1", "").runs("1.13.4", "worker-2").notReady("worker-2"), "2"), severity: cluster.Observed,
			says: []string{"Take their cordons away (kubectl uncordon), bring back those that are not ready (kubectl describe node) or remove them from the cluster, or set max_unavailable = \"3\", which lets the others go one after the other."},
		},
		"of a pool as well, by a worker that is held": {
			scene: func() *scene {
				s := newScene(3, 4).holds("worker-1").notReady("worker-1")
				s.policy.Pools = []cluster.Pool{pool("storage", has("storage"))}

				for _, name := range []string{"worker-1", "worker-2"} {
					s.node(name).Kube.Labels = map[string]string{"storage": "yes"}
				}

				return s
			}(), severity: cluster.Observed,
			says: []string{"or set max_unavailable = \"2\" and pools[\"storage\"].max_unavailable = \"2\", which lets the others go one after the other."},
		},
		"more than anybody reads": {
			scene: crowd, severity: cluster.Observed, says: []string{"worker-10 (cordoned) and 5 more"},
		},
	})

	for behaviour, s := range map[string]*scene{
		"a worker that an earlier run only cordoned, beside another":    newScene(3, 3).cordoned("worker-1", "run-1").cordoned("worker-2", "run-1").runs("1.13.4", "worker-3"),
		"a worker that an earlier run was installing":                   newScene(3, 3).cordoned("worker-1", "run-1").entry("worker-1", cluster.PhaseIntent, "b").cordoned("worker-2", "").runs("1.13.4", "worker-2", "worker-3"),
		"a worker that an earlier run cordoned, after one that is away": newScene(3, 3).cordoned("worker-1", "run-1").notReady("worker-2"),
		"a worker that this run has cordoned": func() *scene {
			s := newScene(3, 3).cordoned("worker-1", "run-1").cordoned("worker-2", "").runs("1.13.4", "worker-2", "worker-3")
			s.policy.Run = "run-1"

			return s
		}(),
		"one slot is left":                       budget(newScene(3, 6).cordoned("worker-1", "").cordoned("worker-2", ""), "50%"),
		"the canary itself is the one away":      newScene(3, 3).canary("worker-2").notReady("worker-2"),
		"the worker away has its turn first":     newScene(3, 3).notReady("worker-3"),
		"a worker that is gone takes up nothing": newScene(3, 3).gone("worker-3"),
		"a worker that has left does neither":    newScene(3, 3).left("worker-3"),
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if blocking := cluster.Blocking(s.said(t).Findings); len(blocking) > 0 {
				t.Errorf("findings: %v", blocking)
			}
		})
	}
}

// TestBudget_LastNodeThatTakesPodsStays: somebody has cordoned the others, and the pods of the last node would have
// nowhere to go. No step leads there either.
func TestBudget_LastNodeThatTakesPodsStays(t *testing.T) {
	t.Parallel()

	const drained = true

	two := func(most string, drains bool, change func(*scene)) *scene {
		s := newScene(3, 2)
		s.policy.MaxUnavailable, s.policy.Drain.Enabled = share(most), drains

		for index := range s.snapshot.Nodes {
			if node := &s.snapshot.Nodes[index]; node.Role == cluster.ControlPlane {
				node.Kube.ExcludesWorkloads = true
			}
		}

		change(s)

		return s
	}

	cordoned := func(s *scene) { s.cordoned("worker-1", "") }

	runPaths(t, map[string]pathCase{
		"as many may be unavailable as there are": {
			scene: two("2", drained, cordoned), severity: cluster.Observed, node: "worker-2",
			says: []string{
				"it is the only node that takes pods", "cordoned by somebody else: worker-1 (check drain). Take a cordon away (kubectl uncordon), or add a node that takes pods.",
			},
		},
		"it is not ready, and back before it moves once more": {
			scene: two("2", drained, func(s *scene) {
				s.policy.AllowIntermediate = true
				s.runs("1.11.3").cordoned("worker-1", "").notReady("worker-2")
			}), severity: cluster.Observed, node: "worker-2",
			says: []string{"it is the only node that takes pods", "cordoned by somebody else: worker-1 (check drain)."},
		},
		"fewer may be": {
			scene: two("1", drained, cordoned), severity: cluster.Observed,
			says: []string{"taken up by worker-1 (cordoned) (check nodes-ready). Take their cordons away (kubectl uncordon)."},
		},
		"fewer may be, and one is not ready": {
			scene: two("1", drained, func(s *scene) { s.cordoned("worker-1", "").notReady("worker-1") }), severity: cluster.Observed,
			says: []string{"Take their cordons away (kubectl uncordon), or bring back those that are not ready (kubectl describe node) or remove them from the cluster."},
		},
	})

	for behaviour, s := range map[string]*scene{
		"nothing is drained":                two("2", !drained, func(s *scene) { s.runs("1.13.0").cordoned("worker-1", "") }),
		"an earlier run cordoned the other": two("2", drained, func(s *scene) { s.cordoned("worker-1", "run-0") }),
		"the other is not ready":            two("2", drained, func(s *scene) { s.notReady("worker-1") }),
		"it stays as it is":                 two("2", drained, func(s *scene) { s.cordoned("worker-1", "").runs("1.13.4", "worker-2") }),
		"it is not ready and moves once":    two("2", drained, func(s *scene) { s.cordoned("worker-1", "").notReady("worker-2") }),
		"there is no other":                 two("2", drained, func(s *scene) { s.gone("worker-1") }),
		"the cordoned one is not ready":     two("2", drained, func(s *scene) { s.cordoned("worker-1", "").notReady("worker-1") }),
		"the cordoned one takes no pods": two("2", drained, func(s *scene) {
			s.cordoned("worker-1", "").node("worker-1").Kube.ExcludesWorkloads = true
		}),
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if blocking := cluster.Blocking(s.said(t).Findings); len(blocking) > 0 {
				t.Errorf("findings: %v", blocking)
			}
		})
	}
}
