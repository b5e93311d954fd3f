// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

const (
	nextTalosVersion = "1.13.5"

	// Where machines are: control planes first.
	firstAddress = "10.5.0.2"
	workerOne    = "10.5.0.5"
	workerTwo    = "10.5.0.6"

	commandTimeout = 8 * time.Minute
)

// talosctl is the command of Talos, with nothing but the talosconfig of a simulator.
type talosctl struct {
	*simulator
	path string
}

func (s *simulator) talosctl() talosctl {
	s.Helper()

	return talosctl{s, goBuild(s.T, ".", "talosctl", "github.com/siderolabs/talos/cmd/talosctl", "-tags", "grpcnotrace")}
}

// run calls it for a machine and wants it to succeed, and to say something.
func (c talosctl) run(address, wanted string, args ...string) string {
	c.Helper()

	ctx, cancel := context.WithTimeout(c.Context(), commandTimeout)
	defer cancel()

	command := exec.CommandContext(ctx, c.path, append([]string{"--talosconfig", filepath.Join(c.dir, "talosconfig"), "--nodes", address}, args...)...)
	command.Env = append(os.Environ(), "TALOSCONFIG=", "KUBECONFIG=", "HOME="+c.TempDir())
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopTimeout

	said, err := command.CombinedOutput()
	c.Logf("talosctl %s (%s):\n%s", strings.Join(args, " "), address, said)

	switch {
	case err != nil:
		c.Fatalf("talosctl %s: %v", strings.Join(args, " "), err)
	case !regexp.MustCompile(wanted).Match(said):
		c.Errorf("talosctl %s does not say %q", strings.Join(args, " "), wanted)
	}

	return string(said)
}

func (c talosctl) mustRun(address, version string) {
	c.Helper()
	c.run(address, `Tag: +v`+regexp.QuoteMeta(version), "version")
}

// TestTalosctlTakesTheSimulatorForACluster is what a person does by hand.
func TestTalosctlTakesTheSimulatorForACluster(t *testing.T) {
	t.Parallel()

	s := startSimulator(t, "--control-planes", "3", "--workers", "2", "--speed", speed, "--pods", "2",
		"--talos", talosVersion, "--kubernetes", fromVersion)
	c := s.talosctl()

	c.run(firstAddress, ": OK", "health", "--wait-timeout", "2m")
	c.mustBeHealthy()

	c.run(firstAddress, "cp-2 .*controlplane", "get", "members")
	c.run(firstAddress, "kern:  notice: .* Linux version", "dmesg")
	c.run(firstAddress, "kubelet:v"+regexp.QuoteMeta(fromVersion)+" +sha256:", "image", "list", "--namespace", "system")
	c.run(firstAddress, "kube-apiserver:v"+regexp.QuoteMeta(fromVersion)+" +sha256:", "image", "list", "--namespace", "cri")
	c.etcd()

	c.run(firstAddress, "", "upgrade-k8s", "--to", toVersion)
	c.mustBeHealthy()
	s.mustBeSatisfied()

	next := "ghcr.io/siderolabs/installer:v" + nextTalosVersion

	c.run(workerOne, "node uncordoned", "upgrade", "--image", next, "--timeout", commandTimeout.String())
	c.mustRun(workerOne, nextTalosVersion)
	c.run(workerTwo, "post check passed", "upgrade", "--legacy", "--image", next, "--timeout", commandTimeout.String())
	c.mustRun(workerTwo, nextTalosVersion)
	c.run(workerTwo, "post check passed", "reboot", "--timeout", commandTimeout.String())
	c.mustRun(workerTwo, nextTalosVersion)
	c.mustBeHealthy()

	for _, broken := range s.verdict().Violations {
		t.Errorf("the simulator objects: %+v", broken)
	}

	// It is the one command that waits for nothing.
	c.run(workerOne, "", "rollback")
	s.mustBecome("worker-0", talosVersion)
	c.mustBeHealthy()
	c.mustRun(workerOne, talosVersion)
}

func (c talosctl) mustBeHealthy() {
	c.Helper()
	c.run(firstAddress, "waiting for all k8s nodes to report schedulable: OK", "health", "--server=false", "--wait-timeout", "4m")
}

// mustBecome waits until the simulator has seen a machine boot a version.
func (s *simulator) mustBecome(node, version string) {
	s.Helper()

	for end := time.Now().Add(commandTimeout); s.verdict().Nodes[node].Talos != version; time.Sleep(time.Second) {
		if time.Now().After(end) {
			s.Fatalf("%s does not run %s after %s", node, version, commandTimeout)
		}
	}
}

// etcd asks for what there is to know of it, and has upstream's tool look at a
// snapshot.
func (c talosctl) etcd() {
	c.Helper()

	for _, name := range []string{"cp-0", "cp-1", "cp-2"} {
		c.run(firstAddress, name+" .*https://", "etcd", "members")
	}

	c.run(firstAddress, `false +3\.6\.\d+ +3\.6\.0`, "etcd", "status")

	if said := c.run(firstAddress, "", "etcd", "alarm", "list"); strings.Contains(said, "NOSPACE") || strings.Contains(said, "CORRUPT") {
		c.Errorf("there are alarms: %s", said)
	}

	path := filepath.Join(c.TempDir(), "etcd.db")
	c.run(firstAddress, `snapshot info: hash [0-9a-f]{8}, revision [1-9]`, "etcd", "snapshot", path)

	found, err := snapshot.NewV3(zap.NewNop()).Status(path)
	if err != nil || found.TotalKey == 0 || found.Revision == 0 || found.Version != "3.6.0" {
		c.Errorf("etcdutl says %+v, %v", found, err)
	}

	text, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(text, []byte("/registry/")) || int64(len(text)) != found.TotalSize+32 {
		c.Errorf("%d bytes, %v; etcdutl says %+v", len(text), err, found)
	}
}
