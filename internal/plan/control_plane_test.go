// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestControlPlane_AtTheTargetAndNotServingIsMentioned: no step is left that would notice.
func TestControlPlane_AtTheTargetAndNotServingIsMentioned(t *testing.T) {
	t.Parallel()

	met := func() *scene { return newScene(3, 2).runs("1.13.4").kubernetes("1.35.0").asserts("1.35.0") }

	runFindings(t, map[string]findingCase{
		"a static pod": {
			scene: met().ailing("cp-2", cluster.Scheduler, "CrashLoopBackOff: back-off 5m0s"), check: "control-plane-components", severity: cluster.Advice,
			says: []string{"at Kubernetes 1.35.0 and not Ready: kube-scheduler on cp-2 (CrashLoopBackOff: back-off 5m0s)", "kubectl"},
		},
		"a static pod that is missing": {
			scene: met().podless("cp-2", cluster.Scheduler), check: "control-plane-components", severity: cluster.Advice,
			says: []string{"at Kubernetes 1.35.0 and not Ready: kube-scheduler on cp-2 (it has no pod)"},
		},
		"a kubelet": {
			scene: met().notReady("worker-1"), check: "nodes-ready", severity: cluster.Advice, says: []string{"not Ready: kubelet on worker-1 (check"},
		},
		"all kubelets are one finding": {
			scene: met().notReady("worker-1").notReady("worker-2").ailing("cp-1", cluster.APIServer, ""), check: "nodes-ready", severity: cluster.Advice,
			says: []string{"kubelet on worker-1, kubelet on worker-2 (check"},
		},
		"all static pods are another": {
			scene: met().notReady("worker-1").ailing("cp-3", cluster.Scheduler, "").ailing("cp-1", cluster.APIServer, ""), check: "control-plane-components", severity: cluster.Advice,
			says: []string{"kube-apiserver on cp-1, kube-scheduler on cp-3 (check"},
		},
	})

	for behaviour, s := range map[string]*scene{
		"what has a step":                 met().component("cp-2", cluster.Scheduler, "1.34.2").ailing("cp-2", cluster.Scheduler, "CrashLoopBackOff"),
		"what is named lags":              met().namesComponent("cp-2", cluster.Scheduler, "registry.k8s.io/kube-scheduler:v1.34.2").ailing("cp-2", cluster.Scheduler, ""),
		"what is missing and lags":        met().podless("cp-2", cluster.Scheduler).namesComponent("cp-2", cluster.Scheduler, "registry.k8s.io/kube-scheduler:v1.34.2"),
		"a kubelet that has a step":       met().component("worker-1", cluster.Kubelet, "1.34.2").notReady("worker-1"),
		"a node that is left alone":       met().notReady("worker-1").holds("worker-1"),
		"what is switched off":            met().ailing("cp-2", cluster.Scheduler, "").disabled("cp-2", cluster.Scheduler),
		"a pod of kube-proxy":             met().ailing("cp-2", cluster.Proxy, "CrashLoopBackOff"),
		"Kubernetes without a target":     newScene(3, 2).runs("1.13.4").notReady("worker-1"),
		"a node that does not answer":     met().silent("worker-1").notReady("worker-1"),
		"everything at the target serves": met(),
	} {
		made := s.said(t)
		for _, check := range []string{"control-plane-components", "nodes-ready"} {
			if finding, found := find(made.Findings, check); found {
				t.Errorf("%s: %s", behaviour, finding)
			}
		}
	}

	if made := met().ailing("cp-2", cluster.Scheduler, "").said(t); len(made.Steps) > 0 || len(made.AtTarget) != 5 {
		t.Errorf("it changes the plan:\n%s", render(made))
	}
}

// kubernetesFirst returns a cluster in which only Kubernetes moves: kube-apiserver of cp-1 first.
func kubernetesFirst() *scene { return newScene(3, 2).unmanaged().asserts("1.35.0") }

// upTo puts components of the control planes past their turn.
func (s *scene) upTo(kubernetes string, components ...cluster.Component) *scene {
	for _, node := range s.snapshot.ControlPlanes() {
		for _, component := range components {
			s.component(node.Name, component, kubernetes)
		}
	}

	return s
}

// TestControlPlane_WholeBeforeRollsThatBeginWithKubernetes: the turn of a component repairs only the component that
// it replaces.
func TestControlPlane_WholeBeforeRollsThatBeginWithKubernetes(t *testing.T) {
	t.Parallel()

	const crashes = "CrashLoopBackOff"

	static := []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy}

	runFindings(t, map[string]findingCase{
		"another control plane is not Ready": {
			scene: kubernetesFirst().notReady("cp-2"), check: "nodes-ready", severity: cluster.Observed, node: "cp-2", says: []string{"not Ready in Kubernetes"},
		},
		"another control plane is not Ready, and both halves move": {
			scene: newScene(3, 2).aims("1.14.0").runs("1.13.4").kubernetes("1.31.4").asserts("1.32.0").notReady("cp-2"), check: "nodes-ready", severity: cluster.Observed, node: "cp-2",
		},
		"a held control plane is not Ready": {
			scene: kubernetesFirst().asserts("1.34.9").notReady("cp-2").holds("cp-2"), check: "nodes-ready", severity: cluster.Observed, node: "cp-2",
		},
		"a control plane is not Ready while kubelets of workers move": {
			scene: newScene(1, 2).unmanaged().asserts("1.35.0").kubernetes("1.35.0").component("worker-2", cluster.Kubelet, "1.34.2").notReady("cp-1"),
			check: "nodes-ready", severity: cluster.Observed, node: "cp-1",
		},
		"the first node is not Ready, and nothing of it that could be the reason moves": {
			scene: kubernetesFirst().upTo("1.35.0", cluster.APIServer, cluster.Kubelet).notReady("cp-1"), check: "nodes-ready", severity: cluster.Observed, node: "cp-1",
		},
		"an API server that was replaced": {
			scene: kubernetesFirst().component("cp-1", cluster.APIServer, "1.35.0").component("cp-2", cluster.APIServer, "1.35.0").ailing("cp-1", cluster.APIServer, crashes),
			check: "control-plane-components", severity: cluster.Observed, node: "cp-1", says: []string{"kube-apiserver (" + crashes + ")"},
		},
		"an API server that was replaced, of the node that goes first": {
			scene: kubernetesFirst().upTo("1.35.0", cluster.APIServer).ailing("cp-1", cluster.APIServer, crashes), check: "control-plane-components", severity: cluster.Observed, node: "cp-1",
		},
		"an API server of which no pod is known": {
			scene: kubernetesFirst().upTo("1.35.0", cluster.APIServer).missing("cp-2", cluster.APIServer), check: "control-plane-components", severity: cluster.Observed, node: "cp-2",
		},
		"a controller-manager that was replaced, of the node that goes first": {
			scene: kubernetesFirst().upTo("1.35.0", cluster.APIServer, cluster.ControllerManager).ailing("cp-1", cluster.ControllerManager, crashes),
			check: "control-plane-components", severity: cluster.Observed, node: "cp-1",
		},
		"all that an interrupted kubelet does not explain": {
			scene: kubernetesFirst().upTo("1.35.0", static...).component("cp-1", cluster.Kubelet, "1.35.0").notReady("cp-1").ailing("cp-3", cluster.APIServer, crashes),
			check: "control-plane-components", severity: cluster.Observed, node: "cp-3",
		},
		"a scheduler that was replaced, of another node": {
			scene: kubernetesFirst().upTo("1.35.0", cluster.APIServer, cluster.ControllerManager).component("cp-1", cluster.Scheduler, "1.35.0").component("cp-2", cluster.Scheduler, "1.35.0").ailing("cp-1", cluster.Scheduler, crashes),
			check: "control-plane-components", severity: cluster.Observed, node: "cp-1", says: []string{"kube-scheduler (" + crashes + ")"},
		},
		"a component whose turn is of a later leg only": {
			scene: kubernetesFirst().walks().kubernetes("1.33.4").component("cp-2", cluster.Scheduler, "1.34.2").ailing("cp-2", cluster.Scheduler, crashes),
			check: "control-plane-components", severity: cluster.Observed, node: "cp-2",
		},
	})

	named := func(s *scene, node string, component cluster.Component) *scene {
		return s.namesComponent(node, component, "registry.k8s.io/"+string(component)+":v1.35.0")
	}

	for behaviour, s := range map[string]*scene{
		"a component whose turn was interrupted": named(kubernetesFirst(), "cp-1", cluster.APIServer).ailing("cp-1", cluster.APIServer, crashes),
		"one that runs the image that its step replaces": kubernetesFirst().asserts("1.35.2").upTo("1.35.2", cluster.APIServer, cluster.ControllerManager).
			component("cp-1", cluster.Scheduler, "1.35.0").ailing("cp-1", cluster.Scheduler, crashes),
		"one whose turn is still to come":                  kubernetesFirst().ailing("cp-2", cluster.ControllerManager, crashes).ailing("cp-3", cluster.APIServer, crashes),
		"one of which no pod is known yet":                 named(kubernetesFirst(), "cp-1", cluster.APIServer).missing("cp-1", cluster.APIServer),
		"a scheduler that had its turn just now":           newScene(1, 1).unmanaged().asserts("1.35.0").upTo("1.35.0", cluster.APIServer, cluster.ControllerManager, cluster.Scheduler).ailing("cp-1", cluster.Scheduler, crashes),
		"an API server that had its turn just now":         kubernetesFirst().component("cp-1", cluster.APIServer, "1.35.0").ailing("cp-1", cluster.APIServer, ""),
		"the last API server, which had its turn just now": kubernetesFirst().upTo("1.35.0", cluster.APIServer).missing("cp-3", cluster.APIServer),
		"one before which another is switched off":         kubernetesFirst().upTo("1.35.0", cluster.APIServer).disabled("cp-1", cluster.ControllerManager).ailing("cp-3", cluster.APIServer, ""),
		"a kubelet that had its turn just now":             kubernetesFirst().upTo("1.35.0", static...).component("cp-1", cluster.Kubelet, "1.35.0").notReady("cp-1").ailing("cp-1", cluster.APIServer, ""),
		"the first node, whose kubelet has a turn":         kubernetesFirst().notReady("cp-1"),
		"the first node, whose kubelet was interrupted":    named(kubernetesFirst().upTo("1.35.0", static...), "cp-1", cluster.Kubelet).notReady("cp-1"),
		"manifests alone, which take nobody out":           newScene(3, 2).unmanaged().asserts("1.34.2").due().notReady("cp-2"),
		"an unfinished control plane that is not Ready":    newScene(3, 2).runs("1.13.4").asserts("1.35.0").entry("cp-2", cluster.PhaseRebooting, "b").notReady("cp-2"),
		"what is switched off":                             kubernetesFirst().disabled("cp-2", cluster.Scheduler).missing("cp-2", cluster.Scheduler),
		"a worker that is not Ready, whose kubelet lags":   kubernetesFirst().notReady("worker-2"),
	} {
		if got := cluster.Blocking(s.said(t).Findings); len(got) > 0 {
			t.Errorf("%s: %v", behaviour, got)
		}
	}
}

// TestControlPlane_NoAnswerOfKubernetesIsUnknown: no answer is not the same as Ready.
func TestControlPlane_NoAnswerOfKubernetesIsUnknown(t *testing.T) {
	t.Parallel()

	for behaviour, s := range map[string]*scene{"Talos moves": newScene(3, 2), "Kubernetes moves": kubernetesFirst()} {
		s.cutOff()
		s.snapshot.Journal, s.snapshot.JournalError = nil, errAway

		for _, check := range []string{"nodes-ready", "control-plane-components"} {
			if got := s.all(check); len(got) != 1 || !got[0].Unknown || got[0].Severity != cluster.Advice || got[0].Node != "" {
				t.Errorf("%s: %s: %+v", behaviour, check, got)
			}
		}

		if blocking := cluster.Blocking(s.said(t).Findings); len(blocking) != 1 || blocking[0].Check != "kubernetes-api" {
			t.Errorf("%s: %v", behaviour, blocking)
		}
	}

	idle := newScene(3, 2).runs("1.13.4")
	idle.cutOff()

	if got := idle.all("nodes-ready"); len(got) > 0 {
		t.Errorf("nothing is to be done, and it says %v", got)
	}
}

// all returns the findings of one check.
func (s *scene) all(check string) []cluster.Finding {
	var found []cluster.Finding

	for _, finding := range s.make().Findings {
		if finding.Check == check {
			found = append(found, finding)
		}
	}

	return found
}
