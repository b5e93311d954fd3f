// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// scenario is what is simulated and what it is upgraded to.
type scenario struct {
	controlPlanes, workers, pods int
	// speed is how many simulated seconds a second has.
	speed                int
	from, to, kubernetes string
}

func (s scenario) size() int { return s.controlPlanes + s.workers }

// tools are the programs of the demo.
type tools struct {
	cli toolchain.CLI
	// provider is a directory, talossim a program.
	provider, talossim string
}

// run plays the demo from beginning to end.
func run(ctx context.Context, show *screen, wanted scenario, keep bool) (err error) {
	programs, err := prepare(ctx, show)
	if err != nil {
		return err
	}

	places, err := toolchain.DemoPlaces()
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "talosupgrade-demo-")
	if err != nil {
		return fmt.Errorf("creating a directory for the demo: %w", err)
	}

	defer func() { err = tidy(ctx, show, dir, keep, err) }()

	for _, name := range []string{"simulator", "terraform"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return fmt.Errorf("creating a directory for the demo: %w", err)
		}
	}

	show.chapter("A simulated cluster: %d control planes and %d workers, Talos %s, Kubernetes %s, %d pods with budgets",
		wanted.controlPlanes, wanted.workers, wanted.from, wanted.kubernetes, wanted.pods)

	started := time.Now()

	cluster, err := startSimulator(ctx, programs.talossim, filepath.Join(dir, "simulator"), wanted)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, cluster.close()) }()

	show.line(plain, "ready after %.1f s; one simulated minute takes %.1f s", time.Since(started).Seconds(), 60/float64(wanted.speed))

	show.line(plain, "to watch it with kubectl, in another terminal:")
	show.line(quiet, "%s", watchCommand(cluster.path("kubeconfig"), places.Kubectl))

	show.line(plain, "to watch it in a browser, open this page once terraform apply has begun:")
	// It outlives the demo, so that one can look at it in peace.
	show.line(quiet, "%s", places.Report)

	command, err := newTerraform(show, programs, filepath.Join(dir, "terraform"), places.Configuration, variables{
		Talosconfig: cluster.path("talosconfig"), TalosVersion: wanted.to, ReportPath: places.Report,
	})
	if err != nil {
		return err
	}

	return (&play{show: show, wanted: wanted, cluster: cluster, terraform: command, report: places.Report}).acts(ctx)
}

// variables are those of the demo's configuration.
type variables struct {
	Talosconfig  string `json:"talosconfig"`
	TalosVersion string `json:"talos_version"`
	ReportPath   string `json:"report_path"`
}

// prepare finds and builds what the demo needs.
func prepare(ctx context.Context, show *screen) (tools, error) {
	options := toolchain.Options{Progress: show}

	cli, err := toolchain.Terraform(ctx, options)
	if err != nil {
		return tools{}, err
	}

	// The simulator would build them as well, without showing its progress.
	if _, err := toolchain.Kubernetes(ctx, options); err != nil {
		return tools{}, err
	}

	provider, err := toolchain.BuildProvider(ctx, options)
	if err != nil {
		return tools{}, err
	}

	self, err := os.Executable()
	if err != nil {
		return tools{}, fmt.Errorf("finding the simulator: %w", err)
	}

	return tools{cli: cli, provider: provider, talossim: filepath.Join(filepath.Dir(self), "talossim")}, nil
}

func newTerraform(show *screen, programs tools, dir, configuration string, given variables) (*terraform, error) {
	space, err := workspace.New(dir, programs.cli, programs.provider)
	if err != nil {
		return nil, err
	}

	if err := space.CopyConfiguration(configuration); err != nil {
		return nil, err
	}

	values, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("writing the variables: %w", err)
	}

	if err := os.WriteFile(filepath.Join(dir, "demo.auto.tfvars.json"), values, 0o600); err != nil {
		return nil, fmt.Errorf("writing the variables: %w", err)
	}

	return &terraform{space: space, name: programs.cli.Name, logs: dir, show: show}, nil
}

// tidy removes the demo's directory, unless somebody may want to look into it.
func tidy(ctx context.Context, show *screen, dir string, keep bool, err error) error {
	if keep || (err != nil && ctx.Err() == nil) {
		show.line(plain, "\nconfiguration, history and logs are in %s", dir)

		return err
	}

	return errors.Join(err, os.RemoveAll(dir))
}
