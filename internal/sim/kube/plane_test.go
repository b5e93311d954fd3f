// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/toolchain"
)

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	whole := Options{
		World: newFakeWorld(1, 0), Clock: fastClock{}, Recorder: &notebook{}, Dir: "somewhere",
		Binaries: Binaries{APIServer: "kube-apiserver", Etcd: "etcd"},
	}

	for name, test := range map[string]struct {
		spoil  func(o *Options)
		reason string
	}{
		"no world":           {func(o *Options) { o.World = nil }, "a world"},
		"no clock":           {func(o *Options) { o.Clock = nil }, "a clock"},
		"no directory":       {func(o *Options) { o.Dir = "" }, "a directory"},
		"no binaries":        {func(o *Options) { o.Binaries = Binaries{} }, "kube-apiserver and etcd"},
		"pods alone":         {func(o *Options) { o.Pods = 3 }, "kube-controller-manager"},
		"fewer than no pods": {func(o *Options) { o.Pods = -1 }, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			options := whole
			test.spoil(&options)

			_, err := New(options)
			if err == nil || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("error %v, want %q", err, test.reason)
			}
		})
	}

	if _, err := New(whole); err != nil {
		t.Error("what is whole:", err)
	}
}

func TestProgramThatEndsAtOnceIsReportedWithItsLog(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs a shell")
	}

	child, err := startProcess(t.TempDir(), "etcd", "/bin/sh", nil, "-c", "echo no more room >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}

	err = child.serves(t.Context(), &http.Transport{DisableKeepAlives: true}, "http://127.0.0.1:1/")
	if err == nil || !strings.Contains(err.Error(), "no more room") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v, want the exit status and the log", err)
	}

	if err := child.stop(); err != nil {
		t.Error("stopping what has ended:", err)
	}
}

func TestStoppingReachesTheGrandchildren(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs a shell")
	}

	// The pipe is at its end when the last process that could write to it is
	// gone, which is what done waits for.
	child, err := startProcess(t.TempDir(), "family", "/bin/sh", &strings.Builder{}, "-c", "sleep 600 & sleep 600")
	if err != nil {
		t.Fatal(err)
	}

	if err := child.stop(); err != nil {
		t.Fatal(err)
	}

	select {
	case <-child.done:
	case <-time.After(eventually):
		t.Fatal("something of the process group is left")
	}
}

func TestDeathOfTheAPIServerIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real API server")
	}

	s, err := newShared(t.TempDir(), 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}

	server := s.server.plane.processes[1]
	if err := server.command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()

	for what, err := range map[string]error{"Wait": s.server.Wait(ctx), "Stop": s.server.Stop(ctx)} {
		if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended unexpectedly") {
			t.Errorf("%s says %v", what, err)
		}
	}
}

func TestStartThatFailsLeavesNothingBehind(t *testing.T) {
	server, err := New(Options{
		World: newFakeWorld(1, 0), Clock: fastClock{start: time.Now()}, Recorder: &notebook{}, Dir: t.TempDir(),
		Binaries: Binaries{APIServer: "/nonexistent/kube-apiserver", Etcd: "/nonexistent/etcd"},
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := server.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that the program does not exist", err)
	}

	if len(server.plane.processes) != 0 {
		t.Errorf("%d processes are left", len(server.plane.processes))
	}
}

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
		Binaries: Binaries{APIServer: binaries.APIServer, Etcd: binaries.Etcd},
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

func TestKubeconfigHasEverythingInline(t *testing.T) {
	s := need(t)

	content, err := s.server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}

	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		t.Fatal(err)
	}

	if len(config.CAData) == 0 || len(config.CertData) == 0 || len(config.KeyData) == 0 {
		t.Error("a certificate or a key is missing")
	}

	if _, err := s.server.KubeconfigFor("worker-0"); err == nil {
		t.Error("a worker has an API server")
	}
}
