// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Lines of the output of a run, by which its moments are recognized.
const (
	saidPower      = "all machines have power"
	saidKubeconfig = "there is a kubeconfig"
)

// TestRealLeavesNothingWhenItIsKilled kills a run of its own, in a world within this one, while it creates its
// network, while its machines boot, and while Kubernetes starts on them.
func TestRealLeavesNothingWhenItIsKilled(t *testing.T) {
	need(t)

	for name, moment := range map[string]struct {
		// said is a line that the run prints first, within is how long after that it is killed at the latest.
		said   string
		within time.Duration
	}{
		"while it begins":         {"", 15 * time.Second},
		"while machines boot":     {saidPower, 8 * time.Second},
		"while Kubernetes starts": {saidKubeconfig, time.Minute},
	} {
		t.Run(name, func(t *testing.T) { killedAfter(t, moment.said, rand.N(moment.within)) })
	}
}

// saying collects what a run has printed so far.
type saying struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (s *saying) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.text.Write(p)
}

func (s *saying) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.text.String()
}

func killedAfter(t *testing.T, line string, wait time.Duration) {
	t.Helper()
	t.Logf("it is killed %s after it has said %q", wait, line)

	// A world within this one is in its cgroups as well.
	own := filepath.Base(os.Getenv(worldVariable))

	before, err := lookAround(own)
	if err != nil {
		t.Fatal(err)
	}

	runs := runDirs(t)

	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	said := &saying{}

	command := exec.Command(path, "-test.run", "^TestReal$", "-test.v")
	command.Env = append(outsideEnvironment(os.Environ()), runVariable+"=1")
	command.Stdout, command.Stderr = said, said
	// A process that inherits the output may outlive the one that is killed.
	command.WaitDelay = sweepPatience

	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)

	go func() { ended <- command.Wait() }()

	for end := time.Now().Add(bootPatience); !strings.Contains(said.String(), line); time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the run ended before it was killed: %v\n%s", err, said)
		default:
		}

		if time.Now().After(end) {
			t.Fatalf("after %s it has not said %q:\n%s", bootPatience, line, said)
		}
	}

	// The moment is random: there is no condition to wait for.
	time.Sleep(wait)

	if err := command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	t.Logf("it ended with %v; until then it said:\n%s", <-ended, said)

	for end := time.Now().Add(sweepPatience); runDirs(t) != runs; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s there are the runs %q, want %q", sweepPatience, runDirs(t), runs)
		}
	}

	left, err := leftSince(before, own)
	if err != nil {
		t.Fatal(err)
	}

	if len(left) > 0 {
		t.Errorf("it left behind:\n%s", strings.Join(left, "\n"))
	}
}

// runDirs returns the directories of the existing runs.
func runDirs(t *testing.T) string {
	t.Helper()

	parent, err := runsDir()
	if err != nil {
		t.Fatal(err)
	}

	dirs, err := filepath.Glob(filepath.Join(parent, runPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}

	return strings.Join(dirs, " ")
}

// outsideEnvironment returns the environment of a process outside of any world.
func outsideEnvironment(environ []string) []string {
	var kept []string

	for _, entry := range environ {
		if !strings.HasPrefix(entry, roleVariable+"=") && !strings.HasPrefix(entry, worldVariable+"=") {
			kept = append(kept, entry)
		}
	}

	return kept
}
