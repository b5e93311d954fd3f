// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/front"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// eventually bounds what a test waits for; it is real time.
const eventually = time.Minute

const providerAgent = clientAgent + "/test"

// shared is one server with workloads that most tests share; each of them leaves the machines as it found them.
type shared struct {
	world  *fakeWorld
	notes  *notebook
	clock  fastClock
	server *Server
}

// suite is set once, by TestMain: starting a server takes seconds.
var suite shared

func TestMain(m *testing.M) {
	flag.Parse()

	// Goroutines that libraries start once for the whole process are not ours.
	ignored := goleak.IgnoreCurrent()

	code, err := run(m, ignored)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M, ignored goleak.Option) (code int, err error) {
	if !toolchain.RealKubernetes() {
		return m.Run(), nil
	}

	dir, err := os.MkdirTemp("", "talossim-kube")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)

	suite, err = newShared(dir, 3, 2, 6)
	if err != nil {
		return 1, err
	}

	code = m.Run()

	if err := suite.server.Stop(context.Background()); err != nil {
		return 1, err
	}

	return code, goleak.Find(ignored)
}

// newShared starts a server.
func newShared(dir string, controlPlanes, workers, pods int, changes ...func(w *fakeWorld)) (shared, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	binaries, err := toolchain.Kubernetes(ctx, toolchain.Options{Progress: os.Stderr})
	if err != nil {
		return shared{}, err
	}

	s := shared{
		world: newFakeWorld(controlPlanes, workers),
		notes: &notebook{},
		clock: fastClock{start: time.Now()},
	}

	for _, change := range changes {
		change(s.world)
	}

	s.server, err = New(Options{
		World: s.world, Clock: s.clock, Recorder: s.notes, Dir: dir, Pods: pods, Seed: 1,
		Binaries: Binaries{
			APIServer: binaries.APIServer, ControllerManager: binaries.ControllerManager, Etcd: binaries.Etcd,
		},
	})
	if err != nil {
		return shared{}, err
	}

	return s, s.server.Start(ctx)
}

// need skips the test if only quick tests are wanted, because it needs real processes.
func need(t *testing.T) shared {
	t.Helper()

	if suite.server == nil {
		toolchain.NeedKubernetes(t)
	}

	return suite
}

// as returns a client of the shared address with a user agent.
func (s shared) as(t *testing.T, agent string) kubernetes.Interface {
	t.Helper()

	content, err := s.server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}

	return newTestClient(t, content, agent)
}

func newTestClient(t *testing.T, kubeconfig []byte, agent string) kubernetes.Interface {
	t.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	config.UserAgent = agent
	config.QPS = -1

	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(httpClient.CloseIdleConnections)

	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}

	return client
}

// until waits for a condition that the test describes.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()

	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, eventually, true,
		func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func TestServer_ClusterLooksLikeTalosWhenStarted(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")
	ctx := t.Context()

	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if len(nodes.Items) != 5 {
		t.Fatalf("%d nodes, want 5", len(nodes.Items))
	}

	for _, node := range nodes.Items {
		if node.Status.NodeInfo.OSImage != "Talos (v1.12.6)" || node.Status.NodeInfo.KubeletVersion != "v1.34.2" {
			t.Errorf("node %s reports %q and kubelet %q", node.Name, node.Status.NodeInfo.OSImage, node.Status.NodeInfo.KubeletVersion)
		}

		_, controlPlane := node.Labels[labelControlPlane]
		if tainted := len(node.Spec.Taints) == 1 && node.Spec.Taints[0].Key == labelControlPlane; controlPlane != tainted {
			t.Errorf("node %s: control plane %t, taints %v", node.Name, controlPlane, node.Spec.Taints)
		}
	}

	pods, err := client.CoreV1().Pods(namespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}

	for _, pod := range pods.Items {
		if !mirrors(&pod) || !podReady(&pod) || pod.Spec.Containers[0].Image != "registry.k8s.io/kube-apiserver:v1.34.2" {
			t.Errorf("pod %s: mirror %t, ready %t, image %s", pod.Name, mirrors(&pod), podReady(&pod), pod.Spec.Containers[0].Image)
		}
	}

	if len(pods.Items) != 3 {
		t.Errorf("%d mirror pods of kube-apiserver, want 3", len(pods.Items))
	}
}

// TestServer_ModelAndKubernetesAgree runs the real model through the adapter: a cluster without workers whose
// control plane does a legacy upgrade.
func TestServer_ModelAndKubernetesAgree(t *testing.T) {
	toolchain.NeedKubernetes(t)

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

	// A client would retry without the test noticing.
	until(t, "the API server to be away", func() bool {
		connection, err := net.Dial("tcp", front.HostPort(server.front.Shared()))
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

func reachable(t *testing.T, client kubernetes.Interface) bool {
	t.Helper()

	_, err := client.CoreV1().Namespaces().Get(t.Context(), namespaceSystem, metav1.GetOptions{})

	return err == nil
}

func TestServer_EndpointsFollowTheControlPlanes(t *testing.T) {
	s := need(t)

	own, err := s.server.KubeconfigFor("cp-0")
	if err != nil {
		t.Fatal(err)
	}

	through, shared := newTestClient(t, own, "test"), s.as(t, "test")

	reach := func(what string, client kubernetes.Interface) {
		t.Helper()
		until(t, what, func() bool { return reachable(t, client) })
	}

	reach("cp-0 to answer", through)

	s.world.takeDown("cp-0")
	t.Cleanup(func() { s.world.bringUp("cp-0", "cp-0-boot-0", "1.12.6") })

	if reachable(t, through) {
		t.Error("cp-0 answers while it is down")
	}

	reach("the shared address to answer with cp-0 down", shared)

	s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = true })
	t.Cleanup(func() { s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = false }) })

	if reachable(t, shared) {
		t.Error("the shared address answers without a quorum of etcd")
	}

	s.world.change("", func(w *fakeWorld, _ *Machine) { w.noQuorum = false })
	s.world.bringUp("cp-0", "cp-0-boot-0", "1.12.6")

	reach("cp-0 to answer again", through)
	reach("the shared address to answer again", shared)
}
