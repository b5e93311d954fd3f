// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// applied are the examples of the resource that are applied to the end, in this order. All others are planned: an
// apply would wait for a night, or for workloads that do not exist. The first two upgrade Talos and Kubernetes; the
// others find the cluster at its target.
var applied = []string{
	"examples/resources/talosupgrade_cluster/on_failure.tf",
	"examples/guides/upgrading-kubernetes/minimal.tf",
	"examples/resources/talosupgrade_cluster/max_unavailable.tf",
	"examples/resources/talosupgrade_cluster/preflight.tf",
	"examples/resources/talosupgrade_cluster/sync_install_image.tf",
	"examples/guides/when-an-upgrade-fails/pipeline.tf",
	"examples/guides/beside-an-operator/credentials.tf",
}

// defaultProvider is for a snippet that does not say where the cluster is.
const defaultProvider = `
provider "talosupgrade" {
  talosconfig_path = "~/.talos/config"

  management = {
    kubeconfig_path = "~/.kube/management"
  }
}
`

// TestAccConfigurationsRun runs what the documentation shows against a simulated
// cluster: what upgrades nothing is applied, the rest is planned, and some of that is
// applied as well.
func TestAccConfigurationsRun(t *testing.T) {
	j := newJudge(t)

	if !complete() {
		t.Skip("TALOSUPGRADE_ACC is not full")
	}

	place := newPlace(t)
	j.env = place.env

	snippets, err := collect(j.root)
	if err != nil {
		t.Fatal(err)
	}

	var (
		mutex   sync.Mutex
		counted = map[string]int{}
		without []string
	)

	t.Run("snippet", func(t *testing.T) {
		for _, s := range snippets {
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()

				command, why, err := j.execute(t.Context(), t.TempDir(), place.adapt(s), "")
				if err != nil {
					t.Fatalf("%s: %v\nwhat the simulator has no cluster for is marked: <!-- validate: not run: WHY -->", s, err)
				}

				mutex.Lock()
				defer mutex.Unlock()

				counted[command]++

				if why != "" {
					without = append(without, s.String()+": "+why)
				}
			})
		}
	})

	for _, example := range applied {
		place.applies(t, j, snippets, example)
	}

	place.wantUpgraded(t, "1.13.4", "1.35.2")

	t.Logf("%s %s: %d applied, %d planned and %d of these applied, %d not run", j.cli.Name, j.cli.Version,
		counted["apply"], counted["plan"], len(applied), len(without))

	for _, which := range without {
		t.Log("not run: " + which)
	}

	if counted["plan"] < 20 || counted["apply"] < 5 {
		t.Error("too few configurations were found and run")
	}
}

// applies applies the snippet of the example.
func (p *place) applies(t *testing.T, j *judge, snippets []snippet, example string) {
	t.Helper()

	t.Run(example, func(t *testing.T) {
		at := slices.IndexFunc(snippets, func(s snippet) bool { return s.shows == example })
		if at < 0 {
			t.Fatal("there is no such example")
		}

		if _, why, err := j.execute(t.Context(), t.TempDir(), p.adapt(snippets[at]), "apply"); err != nil || why != "" {
			t.Fatal(err, why)
		}
	})
}

// execute runs the command on a snippet. Without a command it plans a snippet that upgrades, and applies one that
// does not. If a snippet is not run, it returns why.
func (j *judge) execute(ctx context.Context, dir string, s snippet, command string) (done, why string, err error) {
	read, err := parse("main.tf", s.mark.around(s.text))
	if err != nil {
		return "", "", err
	}

	j, s.mark = j.choose(s, read)

	switch {
	case s.mark.notRun != "":
		return "", s.mark.notRun, nil
	case !s.mark.validated():
		return "", s.mark.parseOnly, nil
	case !s.mark.only.met(j.cli):
		return "", "it needs " + s.mark.only.String(), nil
	}

	rest, _, err := j.complete(read, s)
	if err != nil {
		return "", "", err
	}

	whole, err := parse("whole.tf", s.mark.around(s.text)+rest)
	if err != nil {
		return "", "", err
	}

	for _, provider := range whole.providers() {
		if provider != shortName(ours) {
			return "", "only the schema of " + provider + " is here", nil
		}
	}

	if !slices.ContainsFunc(whole.body.Blocks, isDefaultProvider) {
		rest += defaultProvider
	}

	if err := j.write(dir, s, read, rest); err != nil {
		return "", "", err
	}

	args := []string{"plan", "-no-color", "-input=false"}
	if read.isQuery() {
		args = []string{"query", "-no-color"}
	} else if command == "apply" || !slices.ContainsFunc(whole.body.Blocks, isCluster) {
		args = []string{"apply", "-no-color", "-input=false", "-auto-approve"}
	}

	if slices.ContainsFunc(whole.body.Blocks, isCluster) {
		return args[0], "", j.run(ctx, dir, args...)
	}

	for _, action := range read.actions() {
		if err := j.run(ctx, dir, append(args, "-invoke="+action)...); err != nil {
			return "", "", err
		}
	}

	return args[0], "", j.run(ctx, dir, args...)
}

func isCluster(block *hclsyntax.Block) bool {
	return block.Type == "module" || block.Type == "resource" && strings.HasPrefix(block.Labels[0], shortName(ours))
}

func isDefaultProvider(block *hclsyntax.Block) bool {
	return block.Type == "provider" && block.Labels[0] == shortName(ours) && block.Body.Attributes["alias"] == nil
}
