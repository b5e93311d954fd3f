// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// callPatience bounds one call of a tool.
	callPatience = time.Minute

	nothingToDo   = 0
	failed        = 1
	somethingToDo = 2
)

// talosctl runs the talosctl of the same build as machined.
func (w *world) talosctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()

	return w.call(ctx, w.programs.Talos.Talosctl, append([]string{"--talosconfig", w.talosconfig}, args...)...)
}

// call runs a program and returns its output.
func (w *world) call(ctx context.Context, path string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), "TALOSCONFIG=", "KUBECONFIG=", "HOME="+w.state())
	command.WaitDelay = time.Second

	said, err := command.CombinedOutput()
	if err != nil {
		return string(said), fmt.Errorf("%s %s: %w\n%s", filepath.Base(path), strings.Join(args, " "), err, said)
	}

	return string(said), nil
}

// mustBeHealthy fails the test unless talosctl itself finds the cluster healthy.
func (w *world) mustBeHealthy(ctx context.Context, t *testing.T) {
	t.Helper()

	var workers, controlPlanes []string

	for _, m := range w.machines {
		if m.controlPlane {
			controlPlanes = append(controlPlanes, m.address.String())
		} else {
			workers = append(workers, m.address.String())
		}
	}

	patience := 5 * time.Minute
	if w.ground == quorum {
		// An emulated control plane may start its components several times before its API server is there.
		patience = w.patience()
	}

	ctx, cancel := context.WithTimeout(ctx, patience+callPatience)
	defer cancel()

	said, err := w.call(ctx, w.programs.Talos.Talosctl, "--talosconfig", w.talosconfig, "--nodes", controlPlanes[0],
		"health", "--wait-timeout", patience.String(),
		"--control-plane-nodes", strings.Join(controlPlanes, ","), "--worker-nodes", strings.Join(workers, ","))
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(said, "waiting for all k8s nodes to report schedulable: OK") {
		t.Errorf("talosctl health says:\n%s", said)
	}

	w.say("talosctl finds the cluster healthy")
}

// client returns a plain client of the cluster.
func (w *world) client(t *testing.T) kubernetes.Interface {
	t.Helper()

	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	config.Timeout = callPatience

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	return client
}

// kubeconfig returns the path of the administrator's kubeconfig.
func (w *world) kubeconfig() string { return w.state("kubeconfig") }

// terraform is a directory with a configuration of its own.
type terraform struct {
	*workspace.Workspace

	w *world
}

// result is the result of a run of the CLI.
type result struct {
	t      *testing.T
	exit   int
	output string
}

// terraform creates the directory. The configuration is everything except the provider block.
func (w *world) terraform(t *testing.T, configuration string) terraform {
	t.Helper()

	return w.terraformOf(t, w.programs.CLI, configuration)
}

// terraformOf creates the directory for another command line.
func (w *world) terraformOf(t *testing.T, cli toolchain.CLI, configuration string) terraform {
	t.Helper()

	space, err := workspace.New(t.TempDir(), cli, w.programs.Provider)
	if err != nil {
		t.Fatal(err)
	}

	made := terraform{space, w}
	made.write(t, "  talosconfig_path = "+quote(w.talosconfig)+"\n", configuration)

	return made
}

// write replaces the configuration.
func (f terraform) write(t *testing.T, provider, configuration string) {
	t.Helper()

	text := "terraform {\n  required_providers {\n    talosupgrade = { source = \"vitistack/talosupgrade\" }\n  }\n}\n\n" +
		"provider \"talosupgrade\" {\n" + provider + "}\n\n" + configuration

	if err := os.WriteFile(filepath.Join(f.Dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// quote returns a string literal in which nothing is a template.
func quote(text string) string {
	// A string always encodes.
	encoded, _ := json.Marshal(text)

	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(encoded))
}

// run runs the CLI to its end, and logs its output.
func (f terraform) run(ctx context.Context, t *testing.T, args ...string) result {
	t.Helper()

	begun := time.Now()

	ctx, cancel := context.WithTimeout(ctx, f.w.applyPatience())
	defer cancel()

	var output bytes.Buffer

	command := f.Command(ctx, append(args, "-no-color")...)
	command.Stdout, command.Stderr = &output, &output

	err := f.Run(command)
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%s: %v\n%s", args[0], err, &output)
	}

	t.Logf("%s, %s:\n%s", strings.Join(args, " "), time.Since(begun).Round(time.Second), &output)
	f.w.say("%s %s ended with %d after %s", f.w.programs.CLI.Name, args[0], command.ProcessState.ExitCode(), time.Since(begun).Round(time.Second))

	return result{t: t, exit: command.ProcessState.ExitCode(), output: output.String()}
}

func (f terraform) plan(ctx context.Context, t *testing.T) result {
	t.Helper()

	return f.run(ctx, t, "plan", "-input=false", "-detailed-exitcode")
}

func (f terraform) apply(ctx context.Context, t *testing.T) result {
	t.Helper()

	return f.run(ctx, t, "apply", "-auto-approve", "-input=false")
}

// flat joins the lines that the CLI has wrapped.
func flat(output string) string { return strings.Join(strings.Fields(output), " ") }

// end waits for the end of the run.
func (a *applying) end(w *world) result {
	a.t.Helper()
	<-a.ended

	a.t.Logf("the apply says:\n%s", &a.output)

	exit := a.command.ProcessState.ExitCode()
	w.say("%s apply ended with %d", w.programs.CLI.Name, exit)

	return result{t: a.t, exit: exit, output: a.output.String()}
}

// must fails the test unless the run ended with the code and its output has all of the texts, however the CLI wraps
// lines.
func (r result) must(exit int, texts ...string) result {
	r.t.Helper()

	if r.exit != exit {
		r.t.Fatalf("it ended with %d, want %d:\n%s", r.exit, exit, r.output)
	}

	for _, text := range texts {
		if !strings.Contains(flat(r.output), flat(text)) {
			r.t.Errorf("it does not say %q:\n%s", text, r.output)
		}
	}

	return r
}

// outputs decodes the values of the configuration's outputs.
func (f terraform) outputs(ctx context.Context, t *testing.T, into any) {
	t.Helper()

	said, err := f.Command(ctx, "output", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}

	var outputs map[string]struct {
		Value json.RawMessage `json:"value"`
	}

	if err := json.Unmarshal(said, &outputs); err != nil {
		t.Fatal(err)
	}

	if err := json.Unmarshal(outputs["it"].Value, into); err != nil {
		t.Fatal(err)
	}
}

// applying is an apply that is running.
type applying struct {
	t       *testing.T
	command *exec.Cmd
	output  bytes.Buffer
	ended   chan struct{}
}

// begin starts an apply and does not wait for it. It ends with the test.
func (f terraform) begin(ctx context.Context, t *testing.T) *applying {
	t.Helper()

	ctx, cancel := context.WithTimeout(ctx, f.w.applyPatience())
	made := &applying{t: t, command: f.Command(ctx, "apply", "-auto-approve", "-input=false", "-no-color"), ended: make(chan struct{})}
	made.command.Stdout, made.command.Stderr = &made.output, &made.output

	if err := made.command.Start(); err != nil {
		t.Fatal(err)
	}

	go func() {
		defer close(made.ended)

		_ = made.command.Wait()

		workspace.Reap(made.command)
	}()

	t.Cleanup(func() {
		cancel()
		<-made.ended
	})

	return made
}

// during waits for a condition while the apply is running.
func (a *applying) during(w *world, what string, holds func() bool) {
	a.t.Helper()

	// A line on a console sends no notification, so it is polled.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	begun := time.Now()

	for !holds() {
		select {
		case <-tick.C:
		case <-a.ended:
			a.t.Fatalf("the apply has ended before %s:\n%s", what, &a.output)
		}
	}

	w.say("%s, after %s", what, time.Since(begun).Round(time.Second))
}

// kill ends the CLI and the provider at once.
func (a *applying) kill() {
	a.t.Helper()

	select {
	case <-a.ended:
		a.t.Fatalf("the apply had ended before it was killed:\n%s", &a.output)
	default:
	}

	// The provider is in the process group of the CLI.
	if err := syscall.Kill(-a.command.Process.Pid, syscall.SIGKILL); err != nil {
		a.t.Fatal(err)
	}

	<-a.ended
}
