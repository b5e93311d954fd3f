// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// TestModelAndKubernetesAgree runs the real model through the adapter: a
// cluster without workers, whose control plane goes through a legacy upgrade.
func TestModelAndKubernetesAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real API server")
	}

	binaries, err := toolchain.Kubernetes(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	notes := &notebook{}
	clock := model.NewScaledClock(clockFactor)

	world, err := model.New(model.Options{
		ControlPlanes: 1, Talos: "1.12.6", Kubernetes: "1.34.2", Seed: 1, Clock: clock, Recorder: notes,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer world.Stop()

	server, err := New(Options{
		World: FromModel(world), Clock: clock, Recorder: notes, Dir: t.TempDir(), Seed: 1,
		Binaries: Binaries{APIServer: binaries.APIServer, ControllerManager: binaries.ControllerManager, Etcd: binaries.Etcd},
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()

	world.SetKubernetes(server)

	kubeconfig, err := server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}

	client := newTestClient(t, kubeconfig, "test")
	before := getNode(t, client, "cp-0")

	if len(before.Spec.Taints) != 0 {
		t.Errorf("the only node has the taints %v: nothing could run", before.Spec.Taints)
	}

	componentsFollow(t, world, client)

	image := "ghcr.io/siderolabs/installer:v1.13.4"

	if _, err := world.LegacyUpgrade(t.Context(), "cp-0", model.LegacyOptions{Image: image}); err != nil {
		t.Fatal(err)
	}

	// A client would try again behind the test's back.
	until(t, "the API server to be away", func() bool {
		connection, err := net.Dial("tcp", hostPort(server.front.shared.port))
		if err == nil {
			_ = connection.Close()
		}

		return errors.Is(err, syscall.ECONNREFUSED)
	})
	until(t, "the node to return with the new system", func() bool {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "cp-0", metav1.GetOptions{})

		return err == nil && node.Status.NodeInfo.OSImage == "Talos (v1.13.4)" && readyStatus(node) == "True" &&
			node.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID && !node.Spec.Unschedulable
	})

	if err := server.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}

	var cordons []string

	for _, event := range notes.since(0) {
		if event.Kind == history.KindCordon {
			cordons = append(cordons, event.Detail["unschedulable"]+" by "+event.Detail["by"])
		}
	}

	if want := "true by machine, false by machine"; strings.Join(cordons, ", ") != want {
		t.Errorf("the cordons were %v, want %s", cordons, want)
	}
}

// componentsFollow changes images in the configuration of cp-0.
func componentsFollow(t *testing.T, world *model.World, client kubernetes.Interface) {
	t.Helper()

	const image, proxy = "registry.k8s.io/kube-scheduler:v1.34.3", "registry.k8s.io/kube-proxy:v1.34.3"

	for component, image := range map[string]string{
		model.SchedulerName: image, model.ProxyName: proxy, model.KubeletName: "ghcr.io/siderolabs/kubelet:v1.34.3",
	} {
		if err := world.SetImage("cp-0", component, image); err != nil {
			t.Fatal(err)
		}
	}

	until(t, "the scheduler of the new configuration", func() bool {
		pod, err := client.CoreV1().Pods(namespaceSystem).Get(t.Context(), nameScheduler+"-cp-0", metav1.GetOptions{})
		if err != nil {
			return false
		}

		state, err := world.Node("cp-0")
		if err != nil {
			t.Fatal(err)
		}

		version := state.StaticPods[model.SchedulerName].ConfigVersion

		return podReady(pod) && pod.Spec.Containers[0].Image == image && version > 1 &&
			pod.Annotations[annotationConfigVersion] == strconv.Itoa(version)
	})
	until(t, "the kubelet of the new configuration", func() bool {
		node := getNode(t, client, "cp-0")

		return node.Status.NodeInfo.KubeletVersion == "v1.34.3" && readyStatus(node) == "True"
	})

	if set := getProxies(t, client); set.Spec.Template.Spec.Containers[0].Image == proxy {
		t.Error("a machine changed the DaemonSet of kube-proxy")
	}

	setProxyImage(t, client, proxy)
	until(t, "the machine to know its kube-proxy", func() bool {
		state, err := world.Node("cp-0")

		return err == nil && state.Components.Proxy == "1.34.3" && rolled(getProxies(t, client), 1)
	})
}
