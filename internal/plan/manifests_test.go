// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestManifests_SyncTakesNothingBack is about the version of kube-proxy that control planes name if no step raises
// it before the manifests are synced.
func TestManifests_SyncTakesNothingBack(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"some control planes have no kube-proxy": {
			scene: newScene(3, 1).withoutProxy("cp-1"), check: "component-images", severity: cluster.Observed,
			says: []string{"disabled in the machine configuration of cp-1 and not in that of cp-2, cp-3", "cluster.proxy.disabled", "kubernetes.manifests.sync = false"},
		},
		"one names an older kube-proxy than runs": {
			scene: newScene(3, 1).namesComponent("cp-1", cluster.Proxy, oldProxy), check: "component-images", severity: cluster.Observed, node: "cp-1",
			says: []string{
				"names kube-proxy 1.33.0 while 1.34.2 runs", "take it back", "kubernetes.manifests.sync = false",
				`talosctl -n 10.0.0.1 patch machineconfig --patch '{"cluster":{"proxy":{"image":"mirror.example.com:5000/kube-proxy:v1.34.2"}}}'`,
			},
		},
		"one names an older kube-proxy than the others": {
			scene: func() *scene {
				s := newScene(2, 0).runs("1.13.4").due().namesComponent("cp-2", cluster.Proxy, "registry.k8s.io/kube-proxy:v1.34.5")
				delete(s.node("cp-1").Versions, cluster.Proxy)
				delete(s.node("cp-2").Versions, cluster.Proxy)

				return s
			}(), check: "component-images", severity: cluster.Observed, node: "cp-1",
			says: []string{"names kube-proxy 1.34.2 while other control planes name 1.34.5", "kube-proxy:v1.34.5"},
		},
		"one names none, and Talos brings an older one": {
			scene: newScene(1, 0).runs("1.12.6").kubernetes("1.36.0").due().unmanaged().asserts("1.36.0").namesComponent("cp-1", cluster.Proxy, ""),
			check: "component-images", severity: cluster.Observed, node: "cp-1",
			says: []string{"names no image for kube-proxy", "default of Talos 1.12.6, which is of Kubernetes 1.35, in place of 1.36.0", "kube-proxy:v1.36.0"},
		},
		"one names none, and Talos brings a newer one than the API server": {
			scene: newScene(1, 0).runs("1.13.4").due().namesComponent("cp-1", cluster.Proxy, ""),
			check: "component-images", severity: cluster.Observed, node: "cp-1", says: []string{"of Kubernetes 1.36, in place of 1.34.2"},
		},
	})

	// An image that Talos would move along is one finding, not two.
	if said := cluster.Blocking(newScene(1, 1).namesComponent("cp-1", cluster.Proxy, "").said(t).Findings); len(said) != 1 || !strings.Contains(said[0].Found, "does not pin") {
		t.Errorf("findings: %v", said)
	}
}

func TestManifests_MissedSyncsAreMentioned(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"every control plane is held": {
			scene: newScene(1, 1).holds("cp-1"), check: "bootstrap-manifests", severity: cluster.Advice, says: []string{"every control plane is held", "Take the hold"},
		},
		"pods that nobody waits for are behind": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").asserts("1.35.0").runsComponent("worker-1", cluster.Proxy, "1.34.2").unhurried(),
			check: "bootstrap-manifests", severity: cluster.Advice, says: []string{"behind 1.35.0 on worker-1", "rollout status"},
		},
	})

	for behaviour, s := range map[string]*scene{
		"nothing is missed":             newScene(1, 1).runs("1.13.4").holds("cp-1"),
		"no sync is wanted":             newScene(1, 1).holds("cp-1").unsynced(),
		"pods that are at the target":   newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").asserts("1.35.0").unhurried(),
		"pods that a sync brings along": newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").asserts("1.35.0").pods("1.34.2"),
	} {
		for _, check := range []string{"bootstrap-manifests", "control-plane-components"} {
			if finding, found := find(s.said(t).Findings, check); found {
				t.Errorf("%s: %s", behaviour, finding)
			}
		}
	}
}

// TestManifests_PodsThatNobodyWaitsForDoNotLengthenTheWay: otherwise a plan that walks through a single minor version
// would be refused.
func TestManifests_PodsThatNobodyWaitsForDoNotLengthenTheWay(t *testing.T) {
	t.Parallel()

	s := newScene(1, 1).runs("1.13.4").pods("1.33.7").asserts("1.35.0")

	if _, refused := find(s.said(t).Findings, "versions"); !refused {
		t.Errorf("waiting for the pods, the way is no longer:\n%s", render(s.said(t)))
	}

	if finding, refused := find(s.unhurried().said(t).Findings, "versions"); refused {
		t.Errorf("finding: %s", finding)
	}
}

// TestManifests_NothingOvertakesAnUnknownVersion is about components whose version is known neither from what runs
// nor from what is named.
func TestManifests_NothingOvertakesAnUnknownVersion(t *testing.T) {
	t.Parallel()

	digest := "@sha256:" + strings.Repeat("c", 64)
	unknown := func(node string, component cluster.Component, reference string) *scene {
		s := newScene(3, 1).runs("1.13.4").asserts("1.35.0").namesComponent(node, component, reference)
		delete(s.node(node).Versions, component)

		return s
	}

	runFindings(t, map[string]findingCase{
		"a digest alone": {
			scene: unknown("cp-1", cluster.APIServer, "registry.k8s.io/kube-apiserver"+digest), check: "component-images", severity: cluster.Observed, node: "cp-1",
			says: []string{"the version of kube-apiserver (image registry.k8s.io/kube-apiserver" + digest + ") cannot be told", "cluster.apiServer.image", "10.0.0.1"},
		},
		"a tag that is no version": {
			scene: unknown("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:stable"), check: "component-images", severity: cluster.Observed, node: "worker-1",
			says: []string{"kubelet (image ghcr.io/siderolabs/kubelet:stable)", "machine.kubelet.image"},
		},
		"no image and no pod": {
			scene: unknown("cp-2", cluster.Scheduler, ""), check: "component-images", severity: cluster.Observed, node: "cp-2", says: []string{"kube-scheduler (no image is named)"},
		},
	})

	held := unknown("cp-1", cluster.Scheduler, "").holds("cp-1").holds("cp-2").holds("cp-3")
	silent := unknown("cp-1", cluster.Scheduler, "").silent("cp-1")
	unset := unknown("cp-1", cluster.Scheduler, "")
	unset.target.Kubernetes = unset.snapshot.Nodes[0].Versions[cluster.APIServer]

	for behaviour, s := range map[string]*scene{
		"what runs tells":               newScene(3, 1).runs("1.13.4").asserts("1.35.0").namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet"+digest),
		"what is named tells":           unknown("cp-1", cluster.Scheduler, "registry.k8s.io/kube-scheduler:v1.34.2"),
		"what is switched off":          unknown("cp-1", cluster.Scheduler, "").disabled("cp-1", cluster.Scheduler),
		"a node that is left alone":     held,
		"a node that does not answer":   silent,
		"Kubernetes is not ours":        unset,
		"kube-proxy of a secret config": unknown("cp-1", cluster.Proxy, "").unreadable("cp-1"),
	} {
		for _, finding := range s.said(t).Findings {
			if strings.Contains(finding.Found, "cannot be told") {
				t.Errorf("%s: %s", behaviour, finding)
			}
		}
	}

	// A component that is not known to be at the target is not claimed to be.
	met := unknown("cp-1", cluster.Scheduler, "").kubernetes("1.35.0")
	if made := met.said(t); strings.Join(made.Elsewhere, " ") != "cp-1" || made.Kubernetes.Done != 3 {
		t.Errorf("plan:\n%s", render(made))
	}
}
