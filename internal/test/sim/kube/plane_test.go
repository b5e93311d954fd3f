// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

func TestPlane_RefusesUnusableOptions(t *testing.T) {
	whole := Options{
		World: newFakeWorld(1, 0), Clock: fastClock{}, Recorder: &notebook{}, Dir: "somewhere",
		Binaries: Binaries{APIServer: "kube-apiserver", Etcd: "etcd", ControllerManager: "kube-controller-manager"},
	}

	for name, test := range map[string]struct {
		spoil  func(o *Options)
		reason string
	}{
		"no world":           {func(o *Options) { o.World = nil }, "a world"},
		"no clock":           {func(o *Options) { o.Clock = nil }, "a clock"},
		"no directory":       {func(o *Options) { o.Dir = "" }, "a directory"},
		"no binaries":        {func(o *Options) { o.Binaries = Binaries{} }, "kube-apiserver, kube-controller-manager and etcd"},
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

func TestPlane_ProgramThatEndsAtOnceIsReportedWithItsLog(t *testing.T) {
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

func TestPlane_StoppingReachesTheGrandchildren(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs a shell")
	}

	// The pipe ends when the last process that could write to it has ended, which is what done waits for.
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

func TestPlane_DeathOfTheAPIServerIsReported(t *testing.T) {
	toolchain.NeedKubernetes(t)

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

func TestPlane_FailedStartLeavesNothingBehind(t *testing.T) {
	server, err := New(Options{
		World: newFakeWorld(1, 0), Clock: fastClock{start: time.Now()}, Recorder: &notebook{}, Dir: t.TempDir(),
		Binaries: Binaries{APIServer: "/nonexistent/kube-apiserver", Etcd: "/nonexistent/etcd", ControllerManager: "/nonexistent/kube-controller-manager"},
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

func TestPlane_KubeconfigHasEverythingInline(t *testing.T) {
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
