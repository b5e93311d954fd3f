// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// wide allows two workers to be unavailable, so that the budget alone stops nothing.
func (s *scene) wide() *scene {
	s.policy.MaxUnavailable = share("2")

	return s
}

// TestCanary_ThatFaltersStopsTheOthers is about canaries that had their turn, or need none: the other nodes may move
// only if those are healthy.
func TestCanary_ThatFaltersStopsTheOthers(t *testing.T) {
	t.Parallel()

	at := func(i int) []cluster.Within { return []cluster.Within{cluster.Index(i)} }
	moved := func(names ...string) *scene {
		return newScene(3, 4).wide().canary(names...).runs("1.13.4", names...)
	}

	runPaths(t, map[string]pathCase{
		"not ready": {
			scene: moved("worker-1").notReady("worker-1"), severity: cluster.Observed, node: "worker-1", attribute: "canary", within: at(0),
			says: []string{"is not Ready", "runs Talos 1.13.4", "kubectl describe node worker-1", "remove it from canary"},
		},
		"cordoned by somebody": {
			scene: moved("worker-1", "worker-2").cordoned("worker-2", ""), severity: cluster.Observed, node: "worker-2", attribute: "canary", within: at(1),
			says: []string{"is cordoned", "kubectl uncordon worker-2"},
		},
		"both": {
			scene: moved("worker-1").cordoned("worker-1", "").notReady("worker-1"), severity: cluster.Observed, node: "worker-1", attribute: "canary", within: at(0),
			says: []string{"is not Ready and cordoned", "kubectl describe node worker-1", "kubectl uncordon worker-1"},
		},
		"while only control planes are left": {
			scene:    moved("worker-1").runs("1.13.4", "worker-2", "worker-3", "worker-4").notReady("worker-1"),
			severity: cluster.Observed, node: "worker-1", attribute: "canary", within: at(0),
		},
		"past the hop of the others, though it has another to go": {
			scene:    newScene(3, 3).wide().walks().canary("worker-1").runs("1.11.2").runs("1.12.9", "worker-1").notReady("worker-1"),
			severity: cluster.Observed, node: "worker-1", attribute: "canary", within: at(0),
		},
		"one of two": {
			scene:    newScene(3, 4).wide().canary("worker-1", "worker-2").runs("1.13.4", "worker-1").notReady("worker-1"),
			severity: cluster.Observed, node: "worker-1", attribute: "canary", within: at(0),
		},
		"gone": {
			scene: newScene(3, 4).wide().canary("worker-2", "worker-3").gone("worker-3"), severity: cluster.Observed, node: "worker-3", attribute: "canary", within: at(1),
			says: []string{"worker-3", "registered but gone", "remove it from canary"},
		},
		"left": {
			scene: newScene(3, 4).wide().canary("worker-2", "worker-3").left("worker-3"), severity: cluster.Observed, node: "worker-3", attribute: "canary", within: at(1),
			says: []string{"worker-3", "has left the cluster", "Remove it from canary"},
		},
	})
}

func TestCanary_ToMoveOrWellStopsNothing(t *testing.T) {
	t.Parallel()

	kubernetesAlone := newScene(3, 3).wide().canary("worker-1").runs("1.13.4").asserts("1.35.0").notReady("worker-1")

	for behaviour, s := range map[string]*scene{
		"well":                              newScene(3, 4).wide().canary("worker-1").runs("1.13.4", "worker-1"),
		"its turn is to come":               newScene(3, 4).wide().canary("worker-1").notReady("worker-1"),
		"its turn is to be finished":        newScene(3, 4).wide().canary("worker-1").runs("1.13.4", "worker-1").cordoned("worker-1", "run-1").notReady("worker-1"),
		"away in the middle of its turn":    newScene(3, 4).wide().canary("worker-1").silent("worker-1").notReady("worker-1").entry("worker-1", cluster.PhaseRebooting, "b"),
		"its next hop comes before others'": newScene(3, 3).wide().walks().canary("worker-1").runs("1.11.2").runs("1.12.9", "worker-1", "worker-2", "worker-3", "cp-1", "cp-2", "cp-3").notReady("worker-1"),
		"nothing is left to do":             newScene(3, 2).wide().canary("worker-1").runs("1.13.4").notReady("worker-1"),
		"only canaries are left":            newScene(0, 2).wide().canary("worker-1", "worker-2").runs("1.13.4", "worker-1").notReady("worker-1"),
		"another node is only to be finished": newScene(3, 2).wide().canary("worker-1").runs("1.13.4").notReady("worker-1").
			cordoned("worker-2", "run-1"),
		"gone with nothing left to do": newScene(3, 2).wide().canary("worker-1").runs("1.13.4").gone("worker-1"),
		"Talos stays":                  kubernetesAlone,
	} {
		if got, found := find(s.said(t).Findings, "canary"); found {
			t.Errorf("%s: %s", behaviour, got)
		}
	}
}

// TestCanary_CordonThatOutlastsItsTurnIsToldBefore: the run would upgrade the canary and then stop.
func TestCanary_CordonThatOutlastsItsTurnIsToldBefore(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"cordoned by somebody": {
			scene: newScene(3, 4).wide().canary("worker-1", "worker-2").cordoned("worker-2", ""), check: "canary", severity: cluster.Advice, node: "worker-2",
			says: []string{"is cordoned", "stays so after its upgrade", "kubectl uncordon worker-2"},
		},
	})

	if got, found := find(newScene(3, 4).wide().canary("worker-1").cordoned("worker-1", "run-1").said(t).Findings, "canary"); found {
		t.Errorf("our own cordon is taken away: %s", got)
	}
}

func TestCanary_NothingStartsBehindOneThatFalters(t *testing.T) {
	t.Parallel()

	ill := func() *scene { return newScene(3, 4).wide().canary("worker-1", "worker-2").notReady("worker-1") }

	for behaviour, test := range map[string]struct {
		scene *scene
		busy  []plan.Step
		want  string
	}{
		"no worker": {scene: ill().runs("1.13.4", "worker-1", "worker-2")},
		"no control plane": {
			scene: ill().runs("1.13.4", "worker-1", "worker-2", "worker-3", "worker-4"),
		},
		"another canary does":                    {scene: ill().runs("1.13.4", "worker-1"), want: "worker-2"},
		"it does itself, when its turn comes":    {scene: ill(), want: "worker-1 worker-2"},
		"what an earlier run began is finished":  {scene: ill().runs("1.13.4", "worker-1", "worker-2").cordoned("worker-4", "run-1"), want: "worker-4"},
		"nothing beside a worker already moving": {scene: ill().runs("1.13.4", "worker-1", "worker-2"), busy: []plan.Step{newScene(3, 4).said(t).Steps[2]}},
	} {
		if got := stepNames(plan.Plan{Steps: test.scene.said(t).Startable(test.scene.snapshot, test.busy)}); got != test.want {
			t.Errorf("%s: startable %q, want %q, of\n%s", behaviour, got, test.want, render(test.scene.said(t)))
		}
	}
}

// TestCanary_KeepsAStepFromBeingTaken is about what is seen of a canary right before
// another node is disturbed.
func TestCanary_KeepsAStepFromBeingTaken(t *testing.T) {
	t.Parallel()

	step := plan.Step{Node: "worker-1", From: version.MustParse("1.13.2"), To: version.MustParse("1.13.4")}
	ready := &cluster.KubeNode{Ready: true}
	runs := func(talos string) *cluster.Machine { return &cluster.Machine{Talos: version.MustParse(talos)} }

	for name, given := range map[string]struct {
		canary cluster.Node
		says   string
	}{
		"in service":        {canary: cluster.Node{Kube: ready, Machine: runs("1.13.4")}},
		"silent":            {canary: cluster.Node{Kube: ready, Unreachable: errors.New("connection refused")}, says: "does not answer: connection refused"},
		"not in Kubernetes": {canary: cluster.Node{Machine: runs("1.13.4")}, says: "no Node object"},
		"changed since":     {canary: cluster.Node{Kube: ready, Machine: runs("1.13.2")}, says: "runs Talos 1.13.2, and the other nodes move to 1.13.4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			given.canary.Name = "worker-0"

			findings := plan.Faltering(cluster.Policy{Canary: []string{given.canary.Name}}, given.canary, step)
			wording.NoteFindings(t, findings)

			if len(findings) > 0 != (given.says != "") || len(findings) > 0 && !strings.Contains(findings[0].String(), given.says) {
				t.Errorf("got %+v, want %q", findings, given.says)
			}
		})
	}
}
