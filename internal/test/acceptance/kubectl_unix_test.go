// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// kubectlPatience bounds one run of kubectl that has to end by itself.
	kubectlPatience = 30 * time.Second
	// kubectlPause is the pause between two runs of the same command.
	kubectlPause = 100 * time.Millisecond
)

// kubectl runs lines of a shell in which kubectl reaches a cluster, as a person
// with a kubeconfig does.
type kubectl struct {
	t   *testing.T
	env []string
}

// newKubectl returns a kubectl of the same release as the API server.
func newKubectl(t *testing.T, kubeconfig string) *kubectl {
	t.Helper()

	path, err := toolchain.Kubectl(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	// kubectl caches what it discovers below the home directory.
	return &kubectl{t: t, env: append(os.Environ(),
		"PATH="+filepath.Dir(path)+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir())}
}

// prepare returns a command for the line. What it starts is killed when the context ends.
func (k *kubectl) prepare(ctx context.Context, line string) *exec.Cmd {
	prepared := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	prepared.Env = k.env
	prepared.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	prepared.Cancel = func() error { return syscall.Kill(-prepared.Process.Pid, syscall.SIGKILL) }
	prepared.WaitDelay = time.Second

	return prepared
}

// run returns what the line prints.
func (k *kubectl) run(line string) (string, error) {
	ctx, cancel := context.WithTimeout(k.t.Context(), kubectlPatience)
	defer cancel()

	output, err := k.prepare(ctx, line).CombinedOutput()

	return string(output), err
}

// says returns what the line prints. If the line fails, it fails the test.
func (k *kubectl) says(line string) string {
	k.t.Helper()

	said, err := k.run(line)
	if err != nil {
		k.t.Fatalf("%s: %v\n%s", line, err, said)
	}

	k.t.Logf("$ %s\n%s", line, said)

	return said
}

// wants fails the test unless the line prints exactly the text.
func (k *kubectl) wants(line, want string) {
	k.t.Helper()

	if said := k.says(line); said != want {
		k.t.Errorf("%s\nprints %q, want %q", line, said, want)
	}
}

// until runs the line until its output is right, and returns it. Failures are ignored, because a control plane that
// reboots breaks connections.
func (k *kubectl) until(line, what string, right func(said string) bool) string {
	k.t.Helper()

	deadline := time.Now().Add(awaitPatience)
	pause := time.NewTicker(kubectlPause)

	defer pause.Stop()

	for {
		said, err := k.run(line)
		if err == nil && right(said) {
			k.t.Logf("$ %s\n%s", line, said)

			return said
		}

		if time.Now().After(deadline) {
			k.t.Fatalf("%s\nprints %q (%v) after %s, want %s", line, said, err, awaitPatience, what)
		}

		<-pause.C
	}
}

// becomes waits until the line prints exactly the text.
func (k *kubectl) becomes(line, want string) {
	k.t.Helper()
	k.until(line, want, func(said string) bool { return said == want })
}

// following is a line that runs beside the test.
type following struct {
	k     *kubectl
	line  string
	stop  context.CancelFunc
	ended chan struct{}

	mutex sync.Mutex
	said  []string
}

// follow runs the line, and again whenever it ends, as a watch does if its control plane reboots. It ends with the
// test.
func (k *kubectl) follow(line string) *following {
	k.t.Helper()

	ctx, stop := context.WithCancel(context.WithoutCancel(k.t.Context()))
	f := &following{k: k, line: line, stop: stop, ended: make(chan struct{})}

	k.t.Cleanup(func() { f.end() })

	go func() {
		defer close(f.ended)

		for ctx.Err() == nil {
			f.once(ctx)

			select {
			case <-ctx.Done():
			case <-time.After(kubectlPause):
			}
		}
	}()

	return f
}

// once runs the line to its end. A line that cannot be started prints nothing, which the test then finds.
func (f *following) once(ctx context.Context) {
	prepared := f.k.prepare(ctx, f.line)

	output, err := prepared.StdoutPipe()
	if err != nil || prepared.Start() != nil {
		return
	}

	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		f.mutex.Lock()
		f.said = append(f.said, scanner.Text())
		f.mutex.Unlock()
	}

	_ = prepared.Wait()
}

// end stops the line and returns what it printed, without repetitions.
func (f *following) end() []string {
	f.stop()
	<-f.ended

	return f.shown()
}

// shown returns what the line has printed so far, without repetitions.
func (f *following) shown() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	return slices.Compact(slices.Clone(f.said))
}

// await waits until the line has printed the text.
func (f *following) await(want string) {
	f.k.t.Helper()

	deadline := time.Now().Add(awaitPatience)
	poll := time.NewTicker(kubectlPause)

	defer poll.Stop()

	for range poll.C {
		if slices.Contains(f.shown(), want) {
			return
		}

		if time.Now().After(deadline) {
			f.k.t.Fatalf("%s\ndid not show %q within %s", f.line, want, awaitPatience)
		}
	}
}

// mustShow fails the test unless the line printed all of these, in this order; it may have printed others in between.
func (f *following) mustShow(lines ...string) {
	f.k.t.Helper()

	said := f.end()
	rest := said

	f.k.t.Logf("$ %s\n%s", f.line, strings.Join(said, "\n"))

	for _, want := range lines {
		found := slices.Index(rest, want)
		if found < 0 {
			f.k.t.Errorf("%s\ndid not show %q in its place:\n%s", f.line, want, strings.Join(said, "\n"))

			return
		}

		rest = rest[found+1:]
	}
}

// waiting is a line that has to end by itself at some time.
type waiting struct {
	k      *kubectl
	line   string
	said   chan string
	failed error
}

// wait starts the line. It has the time limit of a run of the CLI, whatever its own limit is.
func (k *kubectl) wait(line string) *waiting {
	k.t.Helper()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.t.Context()), runPatience)
	w := &waiting{k: k, line: line, said: make(chan string, 1)}
	ended := make(chan struct{})

	k.t.Cleanup(func() {
		cancel()
		<-ended
	})

	prepared := k.prepare(ctx, line)

	go func() {
		defer close(ended)

		output, err := prepared.CombinedOutput()
		w.failed = err
		w.said <- string(output)
	}()

	return w
}

// pending fails the test if the line has already ended.
func (w *waiting) pending() {
	w.k.t.Helper()

	select {
	case said := <-w.said:
		w.k.t.Fatalf("%s\ndid not wait: %v\n%s", w.line, w.failed, said)
	default:
	}
}

// mustEnd waits for the end of the line, and fails the test unless it succeeded and printed exactly the text.
func (w *waiting) mustEnd(want string) {
	w.k.t.Helper()

	if said := <-w.said; w.failed != nil || said != want {
		w.k.t.Errorf("%s\nended with %v and %q, want %q", w.line, w.failed, said, want)
	}
}
