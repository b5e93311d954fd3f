// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// startTimeout bounds the start of a cluster on a busy machine; the Kubernetes
// binaries are built before the tests.
const startTimeout = 5 * time.Minute

func TestUpRunsUntilItIsToldToStopAndLeavesAVerdict(t *testing.T) {
	t.Parallel()

	t.Run("over a Kubernetes in memory", func(t *testing.T) {
		t.Parallel()
		upRuns(t, nil, sim.TalosconfigFile, sim.KubeconfigFile)
	})

	t.Run("over the real one, beside a management cluster", func(t *testing.T) {
		t.Parallel()
		toolchain.NeedKubernetes(t)
		upRuns(t, []string{"--api-server", "real", "--management", "--custom-resources"},
			sim.TalosconfigFile, sim.KubeconfigFile, sim.ManagementKubeconfigFile)
	})
}

// upRuns starts a cluster with more flags, and checks that it leaves the files.
func upRuns(t *testing.T, more []string, files ...string) {
	t.Helper()

	const configured = "mirror.example:5000/kubelet:v1.34.2"

	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())

	defer stop()

	reader, writer := io.Pipe()
	ended := make(chan error, 1)

	go func() {
		err := run(ctx, append([]string{
			"up", "--control-planes", "1", "--workers", "1", "--talos", "1.13.2", "--kubernetes", "1.34.2", "--speed", "300", "--dir", dir,
			"--no-proxy", "--repository", "kube-scheduler=mirror.example:5000/kube-scheduler", "--image", "kubelet=" + configured,
		}, more...), nil, writer, io.Discard)
		_ = writer.CloseWithError(err)
		ended <- err
	}()

	awaitReady(t, reader)

	for _, name := range files {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want a file with mode 0600", name, info, err)
		}
	}

	endpoint := apiServer(t, dir)
	if err := dial(endpoint); err != nil {
		t.Errorf("the API server does not answer while the simulator runs: %v", err)
	}

	var added bytes.Buffer
	if err := run(ctx, []string{"add-node", "--dir", dir, "--role", "worker"}, nil, &added, io.Discard); err != nil || strings.TrimSpace(added.String()) != "worker-1" {
		t.Errorf("add-node printed %q, %v; want worker-1", added.String(), err)
	}

	if text := machineConfig(t, dir); !strings.Contains(text, "mirror.example:5000/kube-scheduler:v1.34.2\n") ||
		!strings.Contains(text, configured) || !strings.Contains(text, "disabled: true") {
		t.Errorf("the flags did not reach the configuration:\n%s", text)
	}

	const byHand = "ghcr.io/siderolabs/kubelet:v1.34.1"

	for node, want := range map[string]string{"cp-0": "", "worker-7": "worker-7"} {
		err := run(ctx, []string{"set-image", "--dir", dir, "--node", node, "--component", "kubelet", "--image", byHand}, nil, io.Discard, io.Discard)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("set-image on %s: %v", node, err)
		}
	}

	if text := machineConfig(t, dir); !strings.Contains(text, byHand) || strings.Contains(text, configured) {
		t.Errorf("set-image did not reach the configuration:\n%s", text)
	}

	running := judge(t, dir)
	if len(running.Nodes) != 3 || len(running.Violations) != 0 {
		t.Errorf("while it runs the verdict has %d nodes and the violations %v, want 3 and none", len(running.Nodes), running.Violations)
	}

	var table bytes.Buffer
	if err := run(ctx, []string{"history", "--dir", dir, "--node", "worker-1"}, nil, &table, io.Discard); err != nil || !strings.Contains(table.String(), "worker-1  joins as a worker") {
		t.Errorf("history printed %q, %v; want the node that joined", table.String(), err)
	}

	stop()

	if err := <-ended; err != nil {
		t.Errorf("up ended with %v", err)
	}

	if err := dial(endpoint); err == nil {
		t.Error("the API server still answers after the simulator stopped")
	}

	if stopped := judge(t, dir); len(stopped.Nodes) != 3 || stopped.Nodes["cp-0"].Talos != "1.13.2" {
		t.Errorf("after the stop the verdict is %+v", stopped)
	}
}

func TestWrongCommandLinesAreExplained(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":          {nil, "talossim up"},
		"unknown command":     {[]string{"down"}, `no command "down"`},
		"unknown flag":        {[]string{"up", "--nodes", "3"}, "-control-planes"},
		"no directory":        {[]string{"verdict"}, "--dir is required"},
		"stray argument":      {[]string{"verdict", "--dir", t.TempDir(), "x"}, `got the arguments ["x"]`},
		"no simulator there":  {[]string{"add-node", "--dir", t.TempDir()}, "no simulator runs in"},
		"wrong role":          {[]string{"add-node", "--dir", t.TempDir(), "--role", "etcd"}, `--role "etcd"`},
		"speed of nothing":    {[]string{"up", "--dir", t.TempDir(), "--speed", "0"}, "--speed 0"},
		"no such API server":  {[]string{"up", "--dir", t.TempDir(), "--api-server", "fake"}, "want memory or real"},
		"too much for memory": {[]string{"up", "--dir", t.TempDir(), "--management"}, "need --api-server real"},
		"fault script absent": {[]string{"up", "--dir", t.TempDir(), "--faults", "absent.yaml"}, "absent.yaml"},
		"no history":          {[]string{"verdict", "--dir", t.TempDir()}, "history"},
		"nobody's history":    {[]string{"history", "--dir", tell(t), "--node", "cp-7"}, `no node "cp-7", only cp-0, worker-0, worker-1`},
		"no such kind":        {[]string{"history", "--dir", tell(t), "--kind", "node,boots"}, `nothing of the kind "boots", only of cordon, lease, node`},
		"no worker may go":    {[]string{"verdict", "--dir", t.TempDir(), "--max-unavailable", "0"}, "--max-unavailable 0"},
		"image of nothing":    {[]string{"set-image", "--dir", t.TempDir(), "--node", "cp-0", "--image", "a:b"}, "--component is required"},
		"image of nobody":     {[]string{"set-image", "--dir", t.TempDir(), "--node", "cp-0", "--component", "kubelet", "--image", "a:b"}, "no simulator runs in"},
		"no pair":             {[]string{"up", "--dir", t.TempDir(), "--image", "kubelet"}, "want COMPONENT=IMAGE"},
		"documents too early": {[]string{"up", "--dir", t.TempDir(), "--documents", "--talos", "1.13.2"}, "1.14"},
		"held by nobody":      {[]string{"verdict", "--dir", tell(t), "--held", "worker-0,worker-7"}, `no node "worker-7", only cp-0, worker-0, worker-1`},
		"operated of nothing": {[]string{"verdict", "--dir", tell(t), "--operated", "prod"}, "want KIND/NAMESPACE/NAME"},
		"canary of nobody":    {[]string{"verdict", "--dir", tell(t), "--canary", "cp-9"}, `no node "cp-9"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var said bytes.Buffer

			err := run(t.Context(), test.args, nil, io.Discard, &said)
			if err == nil {
				t.Fatal("it was accepted")
			}

			if told := said.String() + err.Error(); !strings.Contains(told, test.want) {
				t.Errorf("it said %q, want something with %q", told, test.want)
			}
		})
	}
}

// tell writes a history in which somebody who held the lease cordoned both workers, and returns its directory.
func tell(t *testing.T) string {
	t.Helper()

	var text bytes.Buffer

	writer := history.NewWriter(&text, func() time.Duration { return 0 })
	for name, role := range map[string]string{"cp-0": "controlplane", "worker-0": "worker", "worker-1": "worker"} {
		writer.Record(name, history.KindNode, map[string]string{"role": role, "talos": "1.13.2", "kubelet": "1.34.2"})
	}

	writer.Record("", history.KindLease, map[string]string{"holder": "run", "by": "client"})

	for _, name := range []string{"worker-0", "worker-1"} {
		writer.Record(name, history.KindCordon, map[string]string{"unschedulable": "true", "by": "client"})
	}

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sim.HistoryFile), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestVerdictIsGivenUnderAPolicy(t *testing.T) {
	t.Parallel()

	dir := tell(t)

	for title, test := range map[string]struct {
		flags []string
		want  []checker.Invariant
	}{
		"the default":               {nil, []checker.Invariant{checker.S10}},
		"two may be unavailable":    {[]string{"--max-unavailable", "2"}, nil},
		"one is held":               {[]string{"--max-unavailable", "2", "--held", "worker-1"}, []checker.Invariant{checker.S4}},
		"an operator was to act":    {[]string{"--max-unavailable", "2", "--delegated"}, []checker.Invariant{checker.S7}},
		"an operator could act":     {[]string{"--max-unavailable", "2", "--operated", "KubernetesCluster/a/b"}, []checker.Invariant{checker.S7}},
		"one is a canary, cordoned": {[]string{"--max-unavailable", "2", "--canary", "worker-0", "--drain-delete", "5m"}, nil},
	} {
		if judged := judge(t, dir, test.flags...); !slices.Equal(judged.Broken(), test.want) {
			t.Errorf("%s: broke %v, want %v: %+v", title, judged.Broken(), test.want, judged.Violations)
		}
	}
}

// machineConfig returns the configuration of the first control plane, read with the talosconfig.
func machineConfig(t *testing.T, dir string) string {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	talos, err := client.New(ctx, client.WithConfigFromFile(filepath.Join(dir, sim.TalosconfigFile)))
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = talos.Close() }()

	stored, err := safe.StateGetByID[*config.MachineConfig](ctx, talos.COSI, config.ActiveID)
	if err != nil {
		t.Fatal(err)
	}

	text, err := stored.Provider().Bytes()
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func awaitReady(t *testing.T, out io.Reader) {
	t.Helper()

	ready := make(chan string, 1)

	go func() {
		line := make([]byte, len("ready\n"))
		if _, err := io.ReadFull(out, line); err != nil {
			ready <- err.Error()

			return
		}

		ready <- string(line)
	}()

	select {
	case line := <-ready:
		if line != "ready\n" {
			t.Fatalf("the simulator said %q, want ready", line)
		}
	case <-time.After(startTimeout):
		t.Fatal("the simulator did not become ready in time")
	}
}

func judge(t *testing.T, dir string, policy ...string) sim.Verdict {
	t.Helper()

	var out bytes.Buffer
	if err := run(t.Context(), append([]string{"verdict", "--dir", dir}, policy...), nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}

	var verdict sim.Verdict
	if err := json.Unmarshal(out.Bytes(), &verdict); err != nil {
		t.Fatalf("the verdict is no JSON: %v\n%s", err, out.String())
	}

	return verdict
}

// apiServer returns the host and port in the kubeconfig.
func apiServer(t *testing.T, dir string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(dir, sim.KubeconfigFile))
	if err != nil {
		t.Fatal(err)
	}

	match := regexp.MustCompile(`server: "?https://([0-9.:]+)`).FindSubmatch(content)
	if match == nil {
		t.Fatal("the kubeconfig names no server")
	}

	return string(match[1])
}

func dial(address string) error {
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}

	return connection.Close()
}
