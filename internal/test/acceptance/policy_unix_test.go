// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// step returns the script of a step of a GitHub job.
func step(t *testing.T, job, name string) string {
	t.Helper()

	steps, _ := within(documents(t, filepath.Join(pipelines(), "github-actions.yaml"))[0], "jobs", job, "steps").([]any)

	for _, one := range steps {
		if script, _ := within(one, "run").(string); script != "" && within(one, "name") == name {
			return script
		}
	}

	t.Fatalf("job %s has no step %q that runs something", job, name)

	return ""
}

// lines returns the script of a GitLab job.
func lines(t *testing.T, job string) string {
	t.Helper()

	script, _ := within(documents(t, filepath.Join(pipelines(), "gitlab.yaml"))[0], job, "script").([]any)

	var all []string

	for _, line := range script {
		text, isText := line.(string)
		if !isText {
			t.Fatalf("job %s: %v is no line of a shell", job, line)
		}

		all = append(all, text)
	}

	if len(all) == 0 {
		t.Fatalf("job %s has no script", job)
	}

	return strings.Join(all, "\n")
}

// shell runs a script as the CI systems do: the first failure ends it.
func (w *workspace) shell(script string, env ...string) (output string, failed bool) {
	w.t.Helper()

	bash, err := exec.LookPath("bash")
	if err != nil {
		w.t.Skip("there is no bash")
	}

	all, command := w.env, w.command
	w.env, w.command = append(w.env[:len(w.env):len(w.env)], env...), bash

	defer func() { w.env, w.command = all, command }()

	ran := w.run("--noprofile", "--norc", "-eo", "pipefail", "-c", script)

	return ran.output, ran.exit != 0
}

// TestAccPolicy makes the plan of the guide with the steps of the pipelines, and evaluates it with the real OPA.
func TestAccPolicy(t *testing.T) {
	full(t)

	opa, err := toolchain.OPA(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	w := newWorkspace(t, "TALOSCONFIG="+s.Talosconfig(), "TF_INPUT=false", "TF_CLI_ARGS=-no-color")
	w.env = append(w.env, before(tools(t, map[string]string{"terraform": w.command, "opa": opa})))

	if err := os.CopyFS(w.dir, os.DirFS(filepath.Join(pipelines(), "talos"))); err != nil {
		t.Fatal(err)
	}

	w.edit("main.tf", `backend "http" {}`, "")

	// The policy allows the plan of the pipelines only with the label.
	plan, policy := step(t, "plan", "Plan"), step(t, "plan", "Policy")
	runner := t.TempDir()

	judge := func(labels string) (said string, denied bool) {
		t.Helper()

		if said, failed := w.shell(plan, "RUNNER_TEMP="+runner); failed {
			t.Fatal(said)
		}

		return w.shell(policy, "RUNNER_TEMP="+runner, "LABELS="+labels)
	}

	const labelled = `["night", "control-plane"]`

	if said, denied := judge(labelled); denied {
		t.Errorf("denied: %s", said)
	}

	if said, denied := judge(`["night"]`); !denied || !strings.Contains(said, "cp-0 is a control plane") {
		t.Errorf("denied is %t: %s", denied, said)
	}

	// GitLab's job evaluates the same plan.
	w.gitLabAgrees(runner)

	for _, changed := range []struct{ file, old, text, want string }{
		{"main.tf", "  report_path = \"report.html\"\n", "  preflight = { skip = [\"disk-space\"] }\n", "skips the check disk-space"},
		{"main.tf", "preflight\" \"prod\" {\n  talos_version      = local.talos_version", "preflight\" \"prod\" {\n  talos_version = \"1.13.3\"", "no talosupgrade_preflight has"},
		{filepath.Join("policy", "roll.rego"), "most := 10", "most := 2", "3 nodes reboot, and 2 may"},
	} {
		undo := w.edit(changed.file, changed.old, changed.text)

		if said, denied := judge(labelled); !denied || !strings.Contains(said, changed.want) {
			t.Errorf("denied is %t, want %q: %s", denied, changed.want, said)
		}

		undo()
	}

	s.unchanged()
}

// edit replaces a text in a file, and returns a function that restores it.
func (w *workspace) edit(file, old, text string) (undo func()) {
	w.t.Helper()

	path := filepath.Join(w.dir, file)

	content, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}

	if strings.Count(string(content), old) != 1 {
		w.t.Fatalf("%s does not say %q once", file, old)
	}

	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}

	write(strings.Replace(string(content), old, text, 1))

	return func() { write(string(content)) }
}

// gitLabAgrees evaluates the plan of the other pipeline with GitLab's job.
func (w *workspace) gitLabAgrees(runner string) {
	w.t.Helper()

	if err := os.Rename(filepath.Join(runner, "plan.json"), filepath.Join(w.dir, "plan.json")); err != nil {
		w.t.Fatal(err)
	}

	policy := strings.Replace(lines(w.t, "policy"), "cd talos\n", "", 1)

	if said, denied := w.shell(policy, "CI_MERGE_REQUEST_LABELS=night,control-plane"); denied {
		w.t.Errorf("GitLab: denied: %s", said)
	}

	if said, denied := w.shell(policy); !denied || !strings.Contains(said, "cp-0 is a control plane") {
		w.t.Errorf("GitLab: denied is %t: %s", denied, said)
	}
}
