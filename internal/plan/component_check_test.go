// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func imageOf(field cluster.Field) []cluster.Within {
	return []cluster.Within{cluster.Field("images"), field}
}

func TestImagesOfComponentsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()

	rolls := func() *scene { return newScene(3, 2).runs("1.13.4").asserts("1.35.0") }

	runPaths(t, map[string]pathCase{
		"an image for kube-proxy that Talos does not manage": {
			scene: rolls().proxyless().wants(cluster.Proxy, "mirror.example.com/kube-proxy"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_proxy"), says: []string{"disabled in the machine configuration of every control plane", "cluster.proxy.disabled"},
		},
		"held control planes have no say in that": {
			scene: rolls().proxyless().holds("cp-1").kubernetes("1.35.0").wants(cluster.Proxy, "mirror.example.com/kube-proxy"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_proxy"), says: []string{"of every control plane that is not held, so"},
		},
		"and that is known before anything is to be done": {
			scene: rolls().proxyless().kubernetes("1.35.0").wants(cluster.Proxy, "mirror.example.com/kube-proxy"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_proxy"),
		},
		"what a node names is no image": {
			scene: rolls().namesComponent("cp-2", cluster.ControllerManager, "Not An Image"), severity: cluster.Permanent, node: "cp-2",
			attribute: "kubernetes", within: imageOf("kube_controller_manager"),
			says: []string{"cluster.controllerManager.image in the machine configuration", `"Not An Image"`, "talosctl -n 10.0.0.2 edit machineconfig"},
		},
		"and that is said once, however many hops there are": {
			scene: rolls().asserts("1.36.0").walks().namesComponent("cp-2", cluster.ControllerManager, "Not An Image"), severity: cluster.Permanent, node: "cp-2",
			attribute: "kubernetes", within: imageOf("kube_controller_manager"),
		},
		"an override that is none is said once": {
			scene: rolls().wants(cluster.Scheduler, "mirror.example.com/scheduler:v1.35.0"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_scheduler"), says: []string{"give the repository alone"},
		},
		"what a machine configuration names may be ahead": {
			scene: rolls().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.36.0"), severity: cluster.Permanent, node: "worker-1",
			attribute: "kubernetes_version", says: []string{"the machine configuration names kubelet 1.36.0, newer than the target 1.35.0", "or correct the machine configuration"},
		},
		"on some nodes it runs, on others it is named": {
			scene:    rolls().component("worker-1", cluster.Kubelet, "1.35.1").namesComponent("worker-2", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.36.0"),
			severity: cluster.Permanent, attribute: "kubernetes_version",
			says: []string{"Kubernetes up to 1.35.1 runs on worker-1, and the machine configuration names Kubernetes up to 1.36.0 on worker-2, newer than the target 1.35.0"},
		},
		"pods of kube-proxy may be ahead": {
			scene: rolls().runsComponent("worker-1", cluster.Proxy, "1.36.0"), severity: cluster.Permanent, node: "worker-1", attribute: "kubernetes_version",
			says: []string{"runs kube-proxy 1.36.0"},
		},
		"a configuration that may not be read": {
			scene: rolls().unreadable("worker-2"), severity: cluster.Observed, says: []string{"cannot be read", "worker-2", "os:admin"},
		},
		"a held node whose configuration would start what Talos does not run": {
			scene: newScene(3, 2).walks().kubernetes("1.32.0").aims("1.14.0").holds("worker-1").
				namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.31.0"),
			severity: cluster.Permanent, node: "worker-1", attribute: "node_overrides", within: []cluster.Within{cluster.Key("worker-1"), cluster.Field("hold")},
			says: []string{"Talos 1.14.0 needs Kubernetes 1.32 or newer, and its kubelet is 1.31.0"},
		},
		"a held API server that is older once it restarts": {
			scene: rolls().kubernetes("1.35.0").asserts("1.35.1").walks().holds("cp-1").
				namesComponent("cp-1", cluster.APIServer, "registry.k8s.io/kube-apiserver:v1.34.0"),
			severity: cluster.Permanent, node: "cp-1", attribute: "node_overrides", within: []cluster.Within{cluster.Key("cp-1"), cluster.Field("hold")},
			says: []string{"kubelets on 1.35.1 would be newer than its kube-apiserver 1.34.0"},
		},
	})
}

// TestImagesThatAHopPinsAreNotMissed: they are unset now, and not any more when
// Talos moves.
func TestImagesThatAHopPinsAreNotMissed(t *testing.T) {
	t.Parallel()

	s := newScene(3, 1).runs("1.13.5").kubernetes("1.31.5").aims("1.14.0").asserts("1.32.4").unpinned("worker-1").unpinned("cp-1")

	made := s.said(t)
	if finding, found := find(made.Findings, "component-images"); found || made.Hops[0].Product != "kubernetes" {
		t.Errorf("finding: %s, of\n%s", finding, render(made))
	}
}

// TestUnpinnedImagesOfWhatDoesNotRunNameTheirPlace: there is no version to pin.
func TestUnpinnedImagesOfWhatDoesNotRunNameTheirPlace(t *testing.T) {
	t.Parallel()

	s := newScene(1, 1).namesComponent("cp-1", cluster.Scheduler, "")
	delete(s.node("cp-1").Versions, cluster.Scheduler)

	finding, found := find(s.said(t).Findings, "component-images")
	if !found || !strings.Contains(finding.Remedy, "(cluster.scheduler.image), with talosctl -n 10.0.0.1 patch machineconfig") {
		t.Errorf("finding: %s", finding)
	}
}

func TestAdviceAboutImages(t *testing.T) {
	t.Parallel()

	rolls := func() *scene { return newScene(3, 3).runs("1.13.4").asserts("1.35.0") }
	pinned := "ghcr.io/siderolabs/kubelet:v1.34.2@sha256:" + strings.Repeat("c", 64)

	runFindings(t, map[string]findingCase{
		"a node that names something else than it runs": {
			scene: rolls().runsComponent("worker-1", cluster.Kubelet, "1.34.1").namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.35.0"),
			check: "component-images", severity: cluster.Advice, node: "worker-1",
			says: []string{"kubelet runs 1.34.1 while the machine configuration names 1.35.0;", "An apply brings both to 1.35.0"},
		},
		"several of them are one finding": {
			scene: rolls().runsComponent("worker-1", cluster.Kubelet, "1.34.1").runsComponent("cp-2", cluster.Scheduler, "1.34.0"),
			check: "component-images", severity: cluster.Advice, says: []string{"on worker-1, cp-2;"},
		},
		"without a target of Kubernetes": {
			scene: newScene(3, 3).runsComponent("worker-1", cluster.Kubelet, "1.34.1"), check: "component-images", severity: cluster.Advice, node: "worker-1",
			says: []string{"a reboot starts what it names"},
		},
		"a digest that is left out": {
			scene: rolls().namesComponent("worker-1", cluster.Kubelet, pinned), check: "component-images", severity: cluster.Advice, node: "worker-1",
			says: []string{"names the image of kubelet with a digest"},
		},
		"digests on several nodes are one finding": {
			scene: rolls().namesComponent("worker-1", cluster.Kubelet, pinned).namesComponent("cp-1", cluster.Kubelet, pinned),
			check: "component-images", severity: cluster.Advice, says: []string{"with a digest on worker-1, cp-1,"},
		},
	})

	for behaviour, s := range map[string]*scene{
		"a digest that stays":                      newScene(3, 1).runs("1.13.4").asserts("1.34.2").namesComponent("worker-1", cluster.Kubelet, pinned),
		"pods of kube-proxy that are still behind": rolls().kubernetes("1.35.0").pods("1.34.2"),
		"a held node that disagrees":               rolls().holds("worker-1").runsComponent("worker-1", cluster.Kubelet, "1.34.1"),
		"a tag that says nothing":                  rolls().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:stable"),
	} {
		if finding, found := find(s.said(t).Findings, "component-images"); found {
			t.Errorf("%s: %s", behaviour, finding)
		}
	}
}
