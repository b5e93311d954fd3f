// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// documented gives a node the configuration of one that Talos 1.14 generated, with
// a document for each component and for what it is installed from.
func (s *scene) documented(name string) *scene {
	s.node(name).Machine.Config.Documents = map[cluster.Component]string{
		cluster.Kubelet: "KubeletConfig", cluster.APIServer: "KubeAPIServerConfig", cluster.ControllerManager: "KubeControllerManagerConfig",
		cluster.Scheduler: "KubeSchedulerConfig", cluster.Proxy: "KubeProxyConfig", cluster.Installer: "UnattendedInstallConfig",
	}

	return s
}

// TestRemediesNameWhatTheConfigurationHas: a patch of v1alpha1 would be refused
// where a document is there for the same.
func TestRemediesNameWhatTheConfigurationHas(t *testing.T) {
	t.Parallel()

	rolls := func() *scene { return newScene(3, 1).runs("1.13.4").asserts("1.35.0") }
	unknown := func() *scene {
		s := rolls().namesComponent("cp-1", cluster.APIServer, "registry.k8s.io/kube-apiserver:stable")
		delete(s.node("cp-1").Versions, cluster.APIServer)

		return s
	}
	unpinned := func(s *scene) *scene {
		for _, component := range []cluster.Component{cluster.Kubelet, cluster.Scheduler} {
			delete(s.node("cp-1").Machine.Config.Images, component)
		}

		return s
	}
	without := func(s *scene, nodes ...string) *scene {
		for _, name := range nodes {
			s.node(name).Machine.Config.Disabled = map[cluster.Component]bool{cluster.Proxy: true}
		}

		return s
	}
	named := func(s *scene, node string) *scene {
		s.node(node).Machine.Config.InstallImage = "Not An Image"

		return s
	}

	for name, test := range map[string]struct {
		scene *scene
		check string
		want  string
	}{
		"images that are not pinned": {
			unpinned(newScene(3, 2).documented("cp-1")), "component-images",
			`Pin what runs: talosctl -n 10.0.0.1 patch machineconfig --patch '{"apiVersion":"v1alpha1","kind":"KubeletConfig","image":"ghcr.io/siderolabs/kubelet:v1.34.2"}' ` +
				`--patch '{"apiVersion":"v1alpha1","kind":"KubeSchedulerConfig","image":"registry.k8s.io/kube-scheduler:v1.34.2"}'. ` +
				"It restarts nothing that runs these images already; each node named by this check needs a command of its own.",
		},
		"images that are not pinned in v1alpha1": {
			unpinned(newScene(3, 2)), "component-images",
			`Pin what runs: talosctl -n 10.0.0.1 patch machineconfig --patch '{"machine":{"kubelet":{"image":"ghcr.io/siderolabs/kubelet:v1.34.2"}},` +
				`"cluster":{"scheduler":{"image":"registry.k8s.io/kube-scheduler:v1.34.2"}}}'. ` +
				"It restarts nothing that runs these images already; each node named by this check needs a command of its own.",
		},
		"a version that nobody can tell": {
			unknown().documented("cp-1"), "component-images",
			"Name an image with a version tag in KubeAPIServerConfig.image (talosctl -n 10.0.0.1 edit machineconfig), or wait until it runs.",
		},
		"what a node names is no image": {
			rolls().documented("cp-2").namesComponent("cp-2", cluster.ControllerManager, "Not An Image"), "component-images",
			"Correct KubeControllerManagerConfig.image of this node (talosctl -n 10.0.0.2 edit machineconfig), or set the repository here.",
		},
		"what a node names is no installer": {
			named(newScene(3, 1).documented("cp-1"), "cp-1"), "installer-image",
			"Correct UnattendedInstallConfig.installer.image in the machine configuration, or set installer_image.",
		},
		"a kube-proxy that is there and is not": {
			without(rolls().documented("cp-1").documented("cp-2"), "cp-1"), "component-images",
			"Make the configurations agree (KubeProxyConfig.enabled, cluster.proxy.disabled), or set kubernetes.manifests.sync = false.",
		},
	} {
		finding, found := find(test.scene.said(t).Findings, test.check)
		if !found || finding.Remedy != test.want {
			t.Errorf("%s: %s\nwant the remedy\n%s", name, finding, test.want)
		}
	}
}
