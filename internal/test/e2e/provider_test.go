// SPDX-License-Identifier: MPL-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// nothingToDo and somethingToDo are exit codes of a plan with -detailed-exitcode.
	nothingToDo   = 0
	somethingToDo = 2
)

// provider is the provider from the source tree, and a command line that runs it.
type provider struct {
	*target

	cli    toolchain.CLI
	binary string
}

func buildProvider(ctx context.Context, t *testing.T, c *target) *provider {
	t.Helper()

	options := toolchain.Options{Progress: os.Stderr}

	cli, err := toolchain.Terraform(ctx, options)
	if err != nil {
		t.Fatal(err)
	}

	binary, err := toolchain.BuildProvider(ctx, options)
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("with %s %s", cli.Name, cli.Version)

	return &provider{target: c, cli: cli, binary: binary}
}

// space returns a directory with a configuration of its own.
func (p *provider) space(t *testing.T, configuration string) *workspace.Workspace {
	t.Helper()

	made, err := workspace.New(t.TempDir(), p.cli, p.binary)
	if err != nil {
		t.Fatal(err)
	}

	head := "terraform {\n  required_providers {\n    talosupgrade = { source = \"vitistack/talosupgrade\" }\n  }\n}\n\n" +
		fmt.Sprintf("provider \"talosupgrade\" {\n  talosconfig_path = %s\n  context          = %s\n}\n\n", quote(p.talosconfig), quote(p.context))

	if err := os.WriteFile(filepath.Join(made.Dir, "main.tf"), []byte(head+configuration), 0o600); err != nil {
		t.Fatal(err)
	}

	return made
}

// quote returns a string literal in which nothing is a template.
func quote(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		return `""`
	}

	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(encoded))
}

// versionArguments returns the arguments with the target versions.
func (p *provider) versionArguments() string {
	var text strings.Builder

	for _, one := range []struct {
		name   string
		wanted version.Version
	}{{"talos_version", p.talos}, {"kubernetes_version", p.kubernetes}} {
		if !one.wanted.IsZero() {
			fmt.Fprintf(&text, "  %s = %s\n", one.name, quote(one.wanted.String()))
		}
	}

	return text.String()
}

// run runs the command line, shows its output and writes it to a log of the given name. If the exit code is not the
// wanted one, it fails the test.
func (p *provider) run(ctx context.Context, t *testing.T, space *workspace.Workspace, name string, want int, args ...string) {
	t.Helper()

	log, err := os.Create(filepath.Join(p.out, name+".log"))
	if err != nil {
		t.Fatal(err)
	}

	command := space.Command(ctx, args...)
	command.Stdout = io.MultiWriter(log, os.Stdout)
	command.Stderr = command.Stdout

	ran := space.Run(command)

	if err := log.Close(); err != nil {
		t.Error(err)
	}

	var exited *exec.ExitError
	if ran != nil && !errors.As(ran, &exited) {
		t.Fatalf("%s %s: %v", p.cli.Name, args[0], ran)
	}

	if code := command.ProcessState.ExitCode(); code != want {
		t.Fatalf("%s %s ended with %d, want %d: see %s", p.cli.Name, args[0], code, want, log.Name())
	}
}

// preflight checks that the data source finds nothing against the upgrade.
func (p *provider) preflight(ctx context.Context, t *testing.T) {
	t.Helper()

	space := p.space(t, "data \"talosupgrade_preflight\" \"this\" {\n"+p.versionArguments()+"}\n\n"+
		"output \"passed\" {\n  value = data.talosupgrade_preflight.this.passed\n}\n\n"+
		"output \"summary\" {\n  value = data.talosupgrade_preflight.this.summary\n}\n")

	p.run(ctx, t, space, "preflight", nothingToDo, "apply", "-auto-approve", "-input=false", "-no-color")

	said, err := space.Command(ctx, "output", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}

	var outputs struct {
		Passed  struct{ Value bool }
		Summary struct{ Value string }
	}

	if err := json.Unmarshal(said, &outputs); err != nil {
		t.Fatal(err)
	}

	if !outputs.Passed.Value {
		t.Fatalf("the preflight has not passed: %s", outputs.Summary.Value)
	}
}

// upgrade plans the upgrade, applies that plan, and plans again.
func (p *provider) upgrade(ctx context.Context, t *testing.T) {
	t.Helper()

	drawn := filepath.Join(p.out, "report.html")
	space := p.space(t, "resource \"talosupgrade_cluster\" \"this\" {\n"+p.versionArguments()+"report_path = "+quote(drawn)+"\n}\n")

	p.run(ctx, t, space, "plan", somethingToDo, "plan", "-out=upgrade.tfplan", "-detailed-exitcode", "-input=false", "-no-color")
	p.run(ctx, t, space, "apply", nothingToDo, "apply", "-input=false", "-no-color", "upgrade.tfplan")

	if _, err := os.Stat(drawn); err != nil {
		t.Errorf("the apply drew no report: %v", err)
	}

	p.run(ctx, t, space, "plan-again", nothingToDo, "plan", "-detailed-exitcode", "-input=false", "-no-color")
}
