// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/cluster/kubernetes"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// The library of Talos 1.13 cannot read what 1.14 added.
	talosVersion    = "1.13.4"
	oldTalosVersion = "1.12.6"
	fromVersion     = "1.34.2"
	toVersion       = "1.35.0"

	speed = "30"

	healthTimeout  = 2 * time.Minute
	noticeTimeout  = 15 * time.Second
	upgradeTimeout = 8 * time.Minute
	manifestsLimit = 2 * time.Minute
)

func TestUpstreamTakesTheSimulatorForACluster(t *testing.T) {
	t.Parallel()

	s := startSimulator(t, "--control-planes", "3", "--workers", "2", "--speed", speed,
		"--talos", talosVersion, "--kubernetes", fromVersion)
	u := s.connect()
	u.mustBeHealthy(t, "at the start")

	t.Run("checks notice a cordon", func(t *testing.T) {
		u.cordon(t, "worker-1", true)
		u.wantNotice(t, "not schedulable")
		u.cordon(t, "worker-1", false)
	})

	t.Run("checks notice a kubelet that is not ready", func(t *testing.T) {
		s.faults("faults:\n  - {node: worker-0, step: kubelet, effect: not-ready}\n")
		u.wantNotice(t, "not ready")
		s.faults("faults: []\n")
	})

	u.mustBeHealthy(t, "after what was noticed")
	u.mustUpgrade(t)
	u.mustBeHealthy(t, "after the upgrade")
	s.mustBeSatisfied()
}

// Below Talos 1.13 upstream brings the manifests there without server-side
// apply.
func TestUpstreamUpgradesTheOldWay(t *testing.T) {
	t.Parallel()

	s := startSimulator(t, "--control-planes", "1", "--workers", "1", "--speed", speed,
		"--talos", oldTalosVersion, "--kubernetes", fromVersion)
	u := s.connect()

	u.mustUpgrade(t)
	u.mustBeHealthy(t, "after the upgrade")
	s.mustBeSatisfied()
}

func (u *upstream) mustBeHealthy(t *testing.T, when string) {
	t.Helper()

	if err := u.healthy(t, healthTimeout); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
}

// mustUpgrade runs upstream's upgrade and looks what came of it.
func (u *upstream) mustUpgrade(t *testing.T) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), upgradeTimeout)
	defer cancel()

	options := upgradeOptions(t)
	if err := kubernetes.Upgrade(ctx, u, options); err != nil {
		t.Fatalf("upgrade: %v", err)
	}

	lowest, err := kubernetes.DetectLowestVersion(ctx, u, options)
	if err != nil || lowest != toVersion {
		t.Errorf("the lowest component is at %q, %v; want %s", lowest, err, toVersion)
	}

	for name, version := range u.kubelets(t) {
		if version != "v"+toVersion {
			t.Errorf("the kubelet of %s is at %s, want v%s", name, version, toVersion)
		}
	}
}

// mustBeSatisfied wants the simulator to have seen the upgrade, and nothing in
// it that put the cluster at risk.
func (s *simulator) mustBeSatisfied() {
	s.Helper()

	judged := s.verdict()
	for _, broken := range judged.Violations {
		s.Errorf("the simulator objects: %+v", broken)
	}

	for name, got := range judged.Nodes {
		// One for each component of a control plane, one for a kubelet alone.
		want := result{Talos: got.Talos, Kubelet: toVersion, Kubernetes: toVersion, Configs: 1}
		if strings.HasPrefix(name, "cp-") {
			want.Configs = 5
		}

		if got != want {
			s.Errorf("%s: the simulator saw %+v, want %+v", name, got, want)
		}
	}
}

func upgradeOptions(t *testing.T) kubernetes.UpgradeOptions {
	t.Helper()

	path, err := upgrade.NewPath(fromVersion, toVersion)
	if err != nil {
		t.Fatal(err)
	}

	return kubernetes.UpgradeOptions{
		Path: path, LogOutput: log{t}, PrePullImages: true, UpgradeKubelet: true,
		EncoderOpt:   encoder.WithComments(encoder.CommentsDisabled),
		KubeletImage: constants.KubeletImage, APIServerImage: constants.KubernetesAPIServerImage,
		ControllerManagerImage: constants.KubernetesControllerManagerImage,
		SchedulerImage:         constants.KubernetesSchedulerImage, ProxyImage: constants.KubeProxyImage,
		ReconcileTimeout: manifestsLimit, InventoryPolicy: ssa.InventoryPolicyAdoptIfNoInventory,
	}
}

// wantNotice runs the checks and wants them to fail for a reason.
func (u *upstream) wantNotice(t *testing.T, reason string) {
	t.Helper()

	err := u.healthy(t, noticeTimeout)
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("the checks ended with %v, want something with %q", err, reason)
	}
}

func (u *upstream) cordon(t *testing.T, node string, on bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()

	client, err := u.K8sClient(ctx)
	if err != nil {
		t.Fatal(err)
	}

	patch := `{"spec":{"unschedulable":null}}`
	if on {
		patch = `{"spec":{"unschedulable":true}}`
	}

	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// kubelets are the versions that the nodes report.
func (u *upstream) kubelets(t *testing.T) map[string]string {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()

	client, err := u.K8sClient(ctx)
	if err != nil {
		t.Fatal(err)
	}

	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	versions := map[string]string{}
	for _, node := range nodes.Items {
		versions[node.Name] = node.Status.NodeInfo.KubeletVersion
	}

	return versions
}
