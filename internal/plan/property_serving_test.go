// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// TestWhatIsLeftAfterSkippingIsSkippedByNobody: others skip the same findings once
// more, together with their own.
func TestWhatIsLeftAfterSkippingIsSkippedByNobody(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)
		found := s.make().Findings

		if again := s.policy.Skip(found); !reflect.DeepEqual(found, again) {
			rt.Fatalf("skipped once more: %v\nwas %v", again, found)
		}

		for _, finding := range found {
			if finding.Firm && finding.Severity == cluster.Advice {
				rt.Fatalf("nobody may skip it: %s", finding)
			}
		}
	})
}

// TestNoRollBeginsBesideAControlPlaneThatDoesNotServe unless its own turn comes, or
// was the last one, whichever half moves first.
func TestNoRollBeginsBesideAControlPlaneThatDoesNotServe(t *testing.T) {
	t.Parallel()

	begun := 0

	rapid.Check(t, func(rt *rapid.T) {
		s := drawWhole(rt)
		made := s.make()

		if len(made.Steps) == 0 || made.Steps[0].Component == cluster.Manifests || len(cluster.Blocking(made.Findings)) > 0 {
			return
		}

		begun++
		first := made.Steps[0]

		// Of control planes one component had its turn last: it is waited for.
		last := 0

		for _, node := range s.snapshot.ControlPlanes() {
			whole := node.Kube.Ready || node.Name == first.Node

			for component, pod := range node.Pods {
				own := slices.ContainsFunc(made.Steps, func(step plan.Step) bool {
					return step.Hop == first.Hop && step.Node == node.Name && (step.Component == component || step.Node == first.Node && first.Component == "")
				})
				whole = whole && (pod.Ready || own)
			}

			if !whole {
				last++
			}
		}

		if last > 1 || (last > 0 && first.Component == "") {
			rt.Fatalf("%s %s begins beside %d control planes that do not serve", first.Node, first.Component, last)
		}
	})

	if begun == 0 {
		t.Error("no roll ever began, so nothing was seen")
	}
}

// drawWhole is a cluster with nothing wrong but that components lag, and that some
// do not serve.
func drawWhole(rt *rapid.T) *scene {
	s := newScene(rapid.IntRange(1, 3).Draw(rt, "control planes"), 1).asserts("1.35.0")
	if rapid.Bool().Draw(rt, "Kubernetes alone") {
		s.unmanaged()
	}

	for _, node := range s.snapshot.ControlPlanes() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet} {
			if rapid.Bool().Draw(rt, node.Name+" moved "+string(component)) {
				s.component(node.Name, component, "1.35.0")
			}

			switch ill := rapid.IntRange(0, 7).Draw(rt, node.Name+" "+string(component)) == 0; {
			case ill && component == cluster.Kubelet:
				s.notReady(node.Name)
			case ill:
				s.ailing(node.Name, component, "CrashLoopBackOff")
			}
		}
	}

	return s
}
