// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// buildTimeout bounds the build of a command, startTimeout the start of the simulator,
	// which may build Kubernetes first; both are slow only the first time.
	buildTimeout = 10 * time.Minute
	startTimeout = 15 * time.Minute
	stopTimeout  = 30 * time.Second
	callTimeout  = 30 * time.Second

	// root is the provider's module, seen from here.
	root = "../../../.."
)

// simulator is a talossim that runs as a process of its own.
type simulator struct {
	*testing.T
	binary, dir string
}

func startSimulator(t *testing.T, flags ...string) *simulator {
	t.Helper()

	s := &simulator{T: t, binary: build(t), dir: t.TempDir()}
	command := exec.Command(s.binary, append([]string{"up", "--dir", s.dir, "--api-server", "real"}, flags...)...)
	command.Dir = root
	command.Stderr = os.Stderr

	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { stop(t, command) })

	said := make(chan string, 1)

	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			line = err.Error()
		}

		said <- strings.TrimSpace(line)
	}()

	select {
	case line := <-said:
		if line != "ready" {
			t.Fatalf("the simulator said %q, want ready", line)
		}
	case <-time.After(startTimeout):
		t.Fatalf("the simulator was not ready after %s", startTimeout)
	}

	return s
}

// stop asks the simulator to end, so that it can end what it started.
func stop(t *testing.T, command *exec.Cmd) {
	t.Helper()

	ended := make(chan error, 1)

	go func() { ended <- command.Wait() }()

	_ = command.Process.Signal(syscall.SIGTERM)

	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the simulator ended with %v", err)
		}
	case <-time.After(stopTimeout):
		_ = command.Process.Kill()
		<-ended
		t.Errorf("the simulator did not end within %s", stopTimeout)
	}
}

// build makes the simulator.
func build(t *testing.T) string {
	t.Helper()

	return goBuild(t, root, "talossim", "./internal/test/sim/cmd/talossim")
}

// goBuild makes a command of a module. Its flags are those of the other builds of that
// module, so that what they share is compiled once.
func goBuild(t *testing.T, module, name, source string, flags ...string) string {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()

	binary := filepath.Join(t.TempDir(), name)

	args := append([]string{"build", "-trimpath", "-o", binary}, flags...)
	command := exec.CommandContext(ctx, "go", append(args, source)...)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0")

	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}

	return binary
}

// tell runs another command of the simulator's.
func (s *simulator) tell(command string, args ...string) []byte {
	s.Helper()

	ctx, cancel := context.WithTimeout(s.Context(), callTimeout)
	defer cancel()

	made := exec.CommandContext(ctx, s.binary, append([]string{command, "--dir", s.dir}, args...)...)

	out, err := made.Output()
	if err != nil {
		s.Fatalf("talossim %s: %v", command, err)
	}

	return out
}

// faults replaces the fault script.
func (s *simulator) faults(script string) {
	s.Helper()

	path := filepath.Join(s.TempDir(), "faults.yaml")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		s.Fatal(err)
	}

	s.tell("faults", path)
}

// verdict is as much of the simulator's judgement as matters here.
type verdict struct {
	Violations []violation       `json:"violations"`
	Nodes      map[string]result `json:"nodes"`
}

type violation struct {
	Invariant string  `json:"invariant"`
	Node      string  `json:"node"`
	Time      float64 `json:"time"`
	What      string  `json:"what"`
}

// result is what became of a node: the versions that run, and how often it was
// configured.
type result struct {
	Talos      string `json:"talos"`
	Kubelet    string `json:"kubelet"`
	Kubernetes string `json:"kubernetes"`
	Configs    int    `json:"configs"`
}

// configuredLater is an API server that is down when upstream has come to the components after it.
var configuredLater = regexp.MustCompile(`had (kube-controller-manager|kube-scheduler|kube-proxy|kubelet) configured although the API server on`)

// verdict is what the simulator thinks of what was done to the cluster. It
// leaves out the invariants that are about the provider's own ways, which
// nobody else keeps: to look at a node before each step (S3), and to hold the
// provider's lease (S7, S12). Upstream waits for the component that it configured, and for
// no other: not for an API server that restarts with its controller manager or scheduler
// below Talos 1.14, nor for one that restarts after its kubelet did (talos#14227). So
// whatever it configures after the API servers may find one of them down. What is left is
// about the cluster itself.
func (s *simulator) verdict() verdict {
	s.Helper()

	var judged verdict
	if err := json.Unmarshal(s.tell("verdict"), &judged); err != nil {
		s.Fatal(err)
	}

	judged.Violations = slices.DeleteFunc(judged.Violations, func(v violation) bool {
		return slices.Contains([]string{"S3", "S7", "S12"}, v.Invariant) ||
			strings.Contains(v.What, "configured while kube-apiserver restarted") ||
			configuredLater.MatchString(v.What) ||
			strings.Contains(v.What, "its kube-apiserver was stopped by what we did")
	})

	return judged
}
