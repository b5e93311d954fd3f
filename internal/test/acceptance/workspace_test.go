// SPDX-License-Identifier: MPL-2.0

package acceptance

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
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// runPatience bounds one run of the CLI.
const runPatience = 5 * time.Minute

// workspace is a directory with a configuration and a state, in which the CLI
// runs with this test binary as the provider.
type workspace struct {
	t       *testing.T
	dir     string
	pids    string
	command string
	env     []string
	// provider is the content of the provider block as last written.
	provider string
}

// result is the result of a run of the CLI.
type result struct {
	t        *testing.T
	exit     int
	errors   []diagnostic
	warnings []diagnostic
	output   string
}

// newWorkspace returns an empty workspace.
func newWorkspace(t *testing.T, env ...string) *workspace {
	t.Helper()

	w := &workspace{t: t, dir: t.TempDir(), pids: t.TempDir(), command: command(t).Path}

	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	plugins := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(plugins, "terraform-provider-talosupgrade")); err != nil {
		t.Fatal(err)
	}

	config, err := toolchain.CLIConfig(plugins, plugins)
	if err != nil {
		t.Fatal(err)
	}

	w.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+config, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TALOSCONFIG=",
		fmt.Sprintf("%s=%d", serveVariable, speed), pidVariable+"="+w.pids)
	w.env = append(w.env, env...)

	return w
}

// write replaces the configuration, with the arguments of the provider block and of the resource.
func (w *workspace) write(provider, resource string) {
	w.t.Helper()

	w.provider = provider
	w.raw("provider \"talosupgrade\" {\n" + provider + "\n}\n\nresource \"talosupgrade_cluster\" \"this\" {\n" + resource + "\n}\n")
}

// raw replaces the configuration, except for the source of the provider.
func (w *workspace) raw(text string) {
	w.t.Helper()

	const head = "terraform {\n  required_providers {\n    talosupgrade = { source = \"vitistack/talosupgrade\" }\n  }\n}\n\n"

	if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(head+text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// use returns the provider argument with the cluster's talosconfig.
func use(s *simulated) string { return "talosconfig_path = " + quote(s.Talosconfig()) }

func quote(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		return `""`
	}

	return string(encoded)
}

// run runs the CLI to its end.
func (w *workspace) run(args ...string) result {
	w.t.Helper()

	ctx, cancel := context.WithTimeout(w.t.Context(), runPatience)
	defer cancel()

	output, err := w.prepare(ctx, args...).CombinedOutput()

	return w.read(output, err)
}

func (w *workspace) prepare(ctx context.Context, args ...string) *exec.Cmd {
	prepared := exec.CommandContext(ctx, w.command, args...)
	prepared.Dir, prepared.Env = w.dir, w.env
	// The provider inherits the output; without a limit it could keep it open.
	prepared.WaitDelay = 10 * time.Second

	return prepared
}

// read parses the JSON lines of a run.
func (w *workspace) read(output []byte, err error) result {
	w.t.Helper()

	read := result{t: w.t, output: string(output)}

	var exited *exec.ExitError

	switch {
	case errors.As(err, &exited):
		read.exit = exited.ExitCode()
	case err != nil:
		w.t.Fatalf("%v\n%s", err, output)
	}

	for line := range bytes.Lines(output) {
		var message struct {
			Type       string     `json:"type"`
			Diagnostic diagnostic `json:"diagnostic"`
		}
		if json.Unmarshal(line, &message) != nil || message.Type != "diagnostic" {
			continue
		}

		switch found := message.Diagnostic; {
		case found.Severity == "error":
			read.errors = append(read.errors, found)
		case !strings.Contains(found.Summary, "development overrides"):
			read.warnings = append(read.warnings, found)
		}
	}

	return read
}

func (w *workspace) apply(args ...string) result {
	w.t.Helper()

	return w.run(append([]string{"apply", "-json", "-auto-approve", "-input=false"}, args...)...)
}

// plan runs a plan, which exits with 0 if there is nothing to do and with 2 if there is something.
func (w *workspace) plan() result {
	w.t.Helper()

	return w.run("plan", "-json", "-input=false", "-detailed-exitcode")
}

func (w *workspace) destroy() result {
	w.t.Helper()

	return w.run("destroy", "-json", "-auto-approve", "-input=false")
}

// attributes returns the attributes of the resource in the state; nil if there is no resource.
func (w *workspace) attributes() map[string]any {
	w.t.Helper()

	shown := w.run("show", "-json")
	if shown.exit != 0 {
		w.t.Fatalf("terraform show: %s", shown.output)
	}

	var state struct {
		Values struct {
			Root struct {
				Resources []struct {
					Mode    string         `json:"mode"`
					Tainted bool           `json:"tainted"`
					Values  map[string]any `json:"values"`
				} `json:"resources"`
			} `json:"root_module"`
		} `json:"values"`
	}

	for line := range strings.Lines(shown.output) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &state); err != nil {
				w.t.Fatal(err)
			}
		}
	}

	for _, resource := range state.Values.Root.Resources {
		if resource.Mode != "managed" {
			continue
		}

		if resource.Tainted {
			w.t.Error("the resource is tainted")
		}

		return resource.Values
	}

	return nil
}

// mustSucceed fails the test unless the run exited with the code and without
// an error.
func (r result) mustSucceed(exit int) result {
	r.t.Helper()

	if r.exit != exit || len(r.errors) > 0 {
		r.t.Fatalf("exit code %d, want %d\n%s", r.exit, exit, r.text())
	}

	return r
}

// mustFail fails the test unless the run ended with exactly one error, which has all of the texts.
func (r result) mustFail(texts ...string) diagnostic {
	r.t.Helper()

	if r.exit != 1 || len(r.errors) != 1 {
		r.t.Fatalf("exit code %d with %d errors, want 1 with 1\n%s", r.exit, len(r.errors), r.text())
	}

	for _, text := range texts {
		if !strings.Contains(r.errors[0].String(), text) {
			r.t.Errorf("the error does not say %q:\n%s", text, r.errors[0])
		}
	}

	return r.errors[0]
}

// mustWarn fails the test unless a warning has the text.
func (r result) mustWarn(text string) {
	r.t.Helper()

	for _, found := range r.warnings {
		if strings.Contains(found.String(), text) {
			return
		}
	}

	r.t.Errorf("no warning says %q\n%s", text, r.text())
}

func (r result) text() string {
	var text strings.Builder

	for _, found := range append(r.errors, r.warnings...) {
		fmt.Fprintf(&text, "%s\n", found)
	}

	if text.Len() == 0 {
		return r.output
	}

	return text.String()
}
