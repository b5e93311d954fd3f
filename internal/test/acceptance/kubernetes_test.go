// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// kubernetesTarget is one minor above what the clusters of most tests run.
const kubernetesTarget = "1.35.2"

// wantKubernetes fails the test unless every component of every node runs the version.
func (s *simulated) wantKubernetes(version string) {
	s.t.Helper()

	for _, node := range s.World.Nodes() {
		want := model.Components{Proxy: version, Kubelet: version}
		if node.Role == model.ControlPlane {
			want.APIServer, want.ControllerManager, want.Scheduler = version, version, version
		}

		if node.Components != want {
			s.t.Errorf("%s runs %+v, want %s throughout", node.Name, node.Components, version)
		}
	}
}

// configured returns the changes of machine configurations so far that were accepted, as "component on node".
func (s *simulated) configured() []string {
	s.t.Helper()

	var changes []string

	for _, event := range s.history() {
		if event.Kind == history.KindConfig && event.Detail["code"] == "OK" && event.Detail["changed"] != "" && event.Detail["by"] == "client" {
			changes = append(changes, event.Detail["changed"]+" on "+event.Node)
		}
	}

	return changes
}

// notRebooted fails the test if anything was installed or a node rebooted.
func (s *simulated) notRebooted() {
	s.t.Helper()

	for name, node := range s.verdict().Nodes {
		if node.Installs != 0 || node.Reboots != 0 {
			s.t.Errorf("%s was installed %d times and rebooted %d times", name, node.Installs, node.Reboots)
		}
	}
}

func TestAccKubernetesAlone(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 3, Workers: 2, Talos: talosTarget, Pods: 4})
	w := newWorkspace(t)
	w.write(use(s), `kubernetes_version = "`+kubernetesTarget+`"`)

	planned := w.plan().mustSucceed(2)
	for _, text := range []string{"kube-apiserver", "kubelet", kubernetes, kubernetesTarget, "manifests"} {
		planned.mustWarn(text)
	}

	s.unchanged()

	w.apply().mustSucceed(0)
	s.wantKubernetes(kubernetesTarget)
	s.notRebooted()
	w.plan().mustSucceed(0)

	changed := len(s.changes())
	w.apply().mustSucceed(0)

	if later := s.changes()[changed:]; len(later) > 0 {
		t.Errorf("an apply without anything to do changed %v", later)
	}
}

func TestAccBothHalvesInOneApply(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy})
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nkubernetes_version = \"1.36.1\"")
	w.plan().mustFail("kubernetes_version", "1.35", "allow_intermediate_versions")

	w.write(use(s), "talos_version = \"1.13.4\"\nkubernetes_version = \"1.36.1\"\nallow_intermediate_versions = true")

	planned := w.plan().mustSucceed(2)
	planned.mustWarn("Hop 1 of 3: Talos " + talosLegacy)
	planned.mustWarn("Hop 2 of 3: Kubernetes " + kubernetes)
	planned.mustWarn("Hop 3 of 3: Kubernetes 1.35")
	s.unchanged()

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
	s.wantKubernetes("1.36.1")
	w.plan().mustSucceed(0)

	// Until Talos was done, the status of Kubernetes was that it waits.
	var states []string

	for _, event := range s.history() {
		if event.Kind == history.KindAnnotation && event.Detail["key"] == "kubernetes-status" {
			states = append(states, event.Detail["value"])
		}
	}

	if states = slices.Compact(states); !slices.Equal(states, []string{"blocked", "in-progress", "completed"}) {
		t.Errorf("kubernetes-status went through %v", states)
	}
}

func TestAccDocumentsOfTalos114(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: "1.14.1", Kubernetes: "1.35.2", Documents: true})
	before := s.configs()

	w := newWorkspace(t)
	w.write(use(s), `kubernetes_version = "1.36.1"`)
	w.apply().mustSucceed(0)
	s.wantKubernetes("1.36.1")
	w.plan().mustSucceed(0)

	for node, config := range s.configs() {
		if want := strings.ReplaceAll(before[node], ":v1.35.2", ":v1.36.1"); config != want {
			t.Errorf("the configuration of %s became\n%s\nwant\n%s", node, config, want)
		}
	}
}

// configs returns the machine configurations by node.
func (s *simulated) configs() map[string]string {
	configs := map[string]string{}
	for _, node := range s.World.Nodes() {
		configs[node.Name] = string(node.Config)
	}

	return configs
}

func TestAccKubeletsBesideEachOther(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 4, Talos: talosTarget})
	s.policy = []checker.Option{checker.MaxUnavailableKubelets(2)}

	w := newWorkspace(t)
	w.write(use(s), "kubernetes_version = \""+kubernetesTarget+"\"\nkubernetes = { max_unavailable_kubelets = \"50%\" }")
	w.apply().mustSucceed(0)
	s.wantKubernetes(kubernetesTarget)
	w.plan().mustSucceed(0)
}

func TestAccImagesFromOtherRegistries(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosTarget, Images: map[string]string{
		model.KubeletName: "mirror.example:5000/talos/kubelet:v" + kubernetes + "-slim",
	}})

	w := newWorkspace(t)
	w.write(use(s), "kubernetes_version = \""+kubernetesTarget+"\"\nkubernetes = { images = { kube_scheduler = \"other.example/kube-scheduler\" } }")
	w.apply().mustSucceed(0)
	s.wantKubernetes(kubernetesTarget)
	w.plan().mustSucceed(0)

	configs := s.configs()
	for node, image := range map[string]string{
		"worker-0": "mirror.example:5000/talos/kubelet:v" + kubernetesTarget + "-slim",
		"cp-0":     "other.example/kube-scheduler:v" + kubernetesTarget,
	} {
		if !strings.Contains(configs[node], image) {
			t.Errorf("the configuration of %s does not name %s:\n%s", node, image, configs[node])
		}
	}
}

func TestAccUnpinnedComponentsAreNotMovedByTalos(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy, Kubernetes: "1.35.0", Unpinned: true})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustSucceed(2).mustWarn("component-images")
	w.apply().mustFail("component-images", "talosctl", "patch machineconfig", "ghcr.io/siderolabs/kubelet:v1.35.0")
	s.unchanged()
}
