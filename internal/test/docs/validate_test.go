// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// patience bounds one call of the command line.
const patience = 5 * time.Minute

// ours is the provider of this module.
const ours = "vitistack/talosupgrade"

const hint = `A block that is a part of something may be marked with a comment in the line above it, such as <!-- validate: in resource -->;
internal/test/README.md names them all. What it refers to may be declared in another block of the page, or in internal/test/docs/testdata/rest.`

func shortName(source string) string { return path.Base(source) }

// judge validates snippets with one command line.
type judge struct {
	root string
	cli  toolchain.CLI
	// newer is a Terraform that has actions and queries. It is cli if cli has them, is not Terraform, or if the run
	// is not complete, because building another one takes minutes.
	newer  toolchain.CLI
	config string
	// rest is what no page declares.
	rest map[string]string
	// env is added to the environment of the command line.
	env []string
}

// complete reports whether the run is a complete one.
func complete() bool { return os.Getenv("TALOSUPGRADE_ACC") == "full" }

func newJudge(t *testing.T) *judge {
	t.Helper()

	if os.Getenv("TF_ACC") == "" {
		t.Skip("TF_ACC is not set")
	}

	options := toolchain.Options{Progress: os.Stderr}

	cli, err := toolchain.Terraform(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}

	built, err := toolchain.BuildProvider(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}

	root, err := toolchain.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}

	j := &judge{root: root, cli: cli, newer: cli, config: configure(t, built), rest: map[string]string{}}

	if complete() && cli.Name == toolchain.NameTerraform && !actionsOnly.met(cli) {
		j.newer, err = toolchain.PinnedTerraform(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
	}

	files, err := filepath.Glob(filepath.Join("testdata", "rest", "*.tf"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of testdata/rest, %v", len(files), err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		read, err := parse(file, string(text))
		if err != nil {
			t.Fatal(err)
		}

		for address, declaration := range read.declarations() {
			j.rest[address] = declaration
		}
	}

	return j
}

// configure writes the configuration of the command line, with this module's provider as it was built, and this test
// binary in place of the recorded ones.
func configure(t *testing.T, built string) string {
	t.Helper()

	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	places := map[string]string{ours: built}

	for source := range recordings {
		places[source] = filepath.Join(dir, filepath.FromSlash(source))

		if err := os.MkdirAll(places[source], 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.Symlink(binary, filepath.Join(places[source], pluginPrefix+shortName(source))); err != nil {
			t.Fatal(err)
		}
	}

	var text strings.Builder

	text.WriteString("provider_installation {\n  dev_overrides {\n")

	for source, place := range places {
		for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
			fmt.Fprintf(&text, "    %q = %q\n", host+"/"+source, place)
		}
	}

	text.WriteString("  }\n  direct {}\n}\n")

	file := filepath.Join(dir, "cli.tfrc")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	return file
}

// verdict is the result for a snippet.
type verdict struct {
	// taken is what it was completed with.
	taken []string
	// without is why it was only parsed; empty if it was validated.
	without string
}

// choose returns the judge with the command line that the snippet needs, and the marker of the snippet.
func (j *judge) choose(s snippet, read parsed) (*judge, marker) {
	mark := s.mark
	if mark.only.name == "" && len(read.actions()) > 0 {
		mark.only = actionsOnly
	}

	if mark.only.met(j.cli) || !mark.only.met(j.newer) {
		return j, mark
	}

	chosen := *j
	chosen.cli = j.newer

	return &chosen, mark
}

// validate returns an error if a snippet is not a valid configuration.
func (j *judge) validate(ctx context.Context, dir string, s snippet) (verdict, error) {
	read, err := parse("main.tf", s.mark.around(s.text))
	if err != nil {
		return verdict{}, err
	}

	j, s.mark = j.choose(s, read)

	switch {
	case !s.mark.validated():
		return verdict{without: s.mark.parseOnly}, nil
	case !s.mark.only.met(j.cli):
		return verdict{without: "it needs " + s.mark.only.String()}, nil
	}

	rest, taken, err := j.complete(read, s)
	if err != nil {
		return verdict{}, err
	}

	if err := j.write(dir, s, read, rest+read.uses()); err != nil {
		return verdict{}, err
	}

	return verdict{taken: taken}, j.ask(ctx, dir, s, read)
}

func (j *judge) complete(read parsed, s snippet) (rest string, taken []string, err error) {
	sources, err := j.sources(s)
	if err != nil {
		return "", nil, err
	}

	return read.completed(sources)
}

// write writes a configuration and what completes it into a directory.
func (j *judge) write(dir string, s snippet, read parsed, rest string) error {
	requirements, name, err := require(read, rest)
	if err != nil {
		return err
	}

	main := "main.tf"
	if read.isQuery() {
		main = "main.tfquery.hcl"
	}

	for file, content := range map[string]string{main: s.mark.around(s.text), "rest.tf": rest, name: requirements} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			return err
		}
	}

	return nil
}

// sources returns the declarations that may complete a snippet: those of its neighbours, and the rest.
func (j *judge) sources(s snippet) ([]map[string]string, error) {
	var sources []map[string]string

	for _, text := range s.neighbours {
		read, err := parse(s.file, text)
		if err != nil {
			continue // which its own turn reports
		}

		sources = append(sources, read.declarations())
	}

	return append(sources, j.rest), nil
}

// require returns the content and the name of a file with the sources of the providers for which the configuration
// has none.
func require(read parsed, rest string) (text, name string, err error) {
	added, err := parse("rest.tf", rest)
	if err != nil {
		return "", "", err
	}

	named, says := read.required()
	sources := append(slices.Collect(maps.Keys(recordings)), ours)

	var missing strings.Builder

	for _, provider := range slices.Compact(slices.Sorted(slices.Values(append(read.providers(), added.providers()...)))) {
		if slices.Contains(named, provider) {
			continue
		}

		at := slices.IndexFunc(sources, func(source string) bool { return shortName(source) == provider })
		if at < 0 {
			return "", "", fmt.Errorf("no schema of a provider %q is here: record what is used of it in testdata/providers, as is done for siderolabs/talos", provider)
		}

		fmt.Fprintf(&missing, "    %s = { source = %q }\n", provider, sources[at])
	}

	// A second block would be one too many; an override adds to the existing one.
	name = "versions.tf"
	if says {
		name = "versions_override.tf"
	}

	return "terraform {\n  required_providers {\n" + missing.String() + "  }\n}\n", name, nil
}

// ask runs the command line to validate what is in the directory.
func (j *judge) ask(ctx context.Context, dir string, s snippet, read parsed) error {
	if slices.ContainsFunc(read.body.Blocks, isModule) {
		if err := os.CopyFS(dir, modulesIn(filepath.Join(j.root, filepath.FromSlash(s.dir)))); err != nil {
			return err
		}

		if err := j.run(ctx, dir, "get", "-no-color"); err != nil {
			return err
		}
	}

	if read.isQuery() {
		return j.run(ctx, dir, "validate", "-no-color", "-query")
	}

	return j.run(ctx, dir, "validate", "-no-color")
}

// run calls the command line. Nothing in its environment that comes from the user could lead to a cluster.
func (j *judge) run(ctx context.Context, dir string, args ...string) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	command := exec.CommandContext(bounded, j.cli.Path, args...)
	command.Dir = dir
	command.Env = append(workspace.Environment(os.Environ()), "TF_CLI_CONFIG_FILE="+j.config, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1")
	command.Env = append(command.Env, j.env...)
	command.WaitDelay = 10 * time.Second

	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", j.cli.Name, args[0], err, output)
	}

	return nil
}
