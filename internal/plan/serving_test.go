// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestWhatIsAtTheTargetAndDoesNotServeIsMentioned: no step is left that would find
// out.
func TestWhatIsAtTheTargetAndDoesNotServeIsMentioned(t *testing.T) {
	t.Parallel()

	met := func() *scene { return newScene(3, 2).runs("1.13.4").kubernetes("1.35.0").asserts("1.35.0") }

	runFindings(t, map[string]findingCase{
		"a static pod": {
			scene: met().ailing("cp-2", cluster.Scheduler, "CrashLoopBackOff: back-off 5m0s"), check: "control-plane-components", severity: cluster.Advice,
			says: []string{"at Kubernetes 1.35.0 and not Ready: kube-scheduler on cp-2 (CrashLoopBackOff: back-off 5m0s)", "kubectl"},
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
