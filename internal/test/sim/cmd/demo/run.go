// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/workspace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// The stories, and the kinds of the simulated Kubernetes API.
const (
	storyRoll     = "roll"
	storyFallback = "fallback"

	apiServerMemory = "memory"
	apiServerReal   = "real"
)

// scenario is what is simulated and what it is upgraded to.
type scenario struct {
	story, apiServer             string
	controlPlanes, workers, pods int
	// speed is how many simulated seconds pass in a second.
	speed                int
	from, to, kubernetes string
}

func (s scenario) size() int { return s.controlPlanes + s.workers }

// faults returns the fault script.
func (s scenario) faults() string {
	if s.story == storyFallback {
		return fallbackScript
	}

	return ""
}

// all gives every node the same fate.
func (s scenario) all(same fate) map[string]fate {
	fates := map[string]fate{}

	for index := range s.controlPlanes {
		fates[fmt.Sprintf("cp-%d", index)] = same
	}

	for index := range s.workers {
		fates[fmt.Sprintf("worker-%d", index)] = same
	}

	return fates
}

// fallenBack returns the state after the first apply of the fallback: the node that falls back was installed,
// rebooted, and rebooted again by itself, those before it are done, and those after it were not touched.
func (s scenario) fallenBack() map[string]fate {
	fates := s.all(fate{Talos: s.from})
	fates["worker-0"] = fate{Talos: s.to, Installs: 1, Reboots: 1}
	fates[fallbackNode] = fate{Talos: s.from, Installs: 1, Reboots: 2}

	return fates
}

// end returns the state after the last apply.
func (s scenario) end() map[string]fate {
	fates := s.all(fate{Talos: s.to, Installs: 1, Reboots: 1})
	if s.story == storyFallback {
		fates[fallbackNode] = fate{Talos: s.to, Installs: 2, Reboots: 3}
	}

	return fates
}

// verdict returns the end in words.
func (s scenario) verdict() string {
	if s.story == storyFallback {
		return "no violation; " + fallbackNode + " was installed twice, every other node once; none is cordoned"
	}

	return "no violation; every node was installed once and rebooted once, and none is cordoned"
}

// tools are the programs of the demo.
type tools struct {
	cli toolchain.CLI
	// provider is a directory, talossim a program.
	provider, talossim string
}

// run plays the demo from beginning to end.
func run(ctx context.Context, show *screen, wanted scenario, keep bool) (err error) {
	programs, err := prepare(ctx, show, wanted.apiServer)
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

	show.line(heading, "Simulated cluster: %d control planes, %d workers, Talos %s, Kubernetes %s, %d pods, disruption budgets",
		wanted.controlPlanes, wanted.workers, wanted.from, wanted.kubernetes, wanted.pods)
	show.Status("starting the cluster")

	cluster, err := startSimulator(ctx, programs.talossim, filepath.Join(dir, "simulator"), wanted)

	show.Status("")

	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, cluster.close()) }()

	show.line(plain, "The machines are simulated, %d times as fast. %s and the provider are real: 1 s of theirs counts as %d.",
		wanted.speed, programs.cli.Name, wanted.speed)

	if wanted.story == storyFallback {
		show.line(plain, "A fault is planted: %s does not come up with Talos %s the first time, and boots %s again.", fallbackNode, wanted.to, wanted.from)
	}

	introduce(show, cluster.path("kubeconfig"), places.Report)

	space, err := workspace.New(filepath.Join(dir, "terraform"), programs.cli, programs.provider)
	if err != nil {
		return err
	}

	if err := space.CopyConfiguration(places.Configuration); err != nil {
		return err
	}

	events, err := openTail(cluster.path("history.jsonl"))
	if err != nil {
		return err
	}
	defer events.close()

	return (&play{
		show: show, wanted: wanted, cluster: cluster, told: newStory(wanted.to), tail: events,
		terraform: &terraform{space: space, name: programs.cli.Name, logs: space.Dir},
		given:     variables{Talosconfig: cluster.path("talosconfig"), TalosVersion: wanted.to, ReportPath: places.Report},
	}).acts(ctx)
}

// introduce shows how to watch the demo.
func introduce(show *screen, kubeconfig, report string) {
	// The report stays after the demo, so there is time to look at it.
	show.hang(plain, "To watch it:  ", report+" in a browser, once terraform apply has begun")

	if command := watchCommand(kubeconfig); command != "" {
		show.copy("              " + command)
	}
}

// variables are the variables of the demo's configuration.
type variables struct {
	Talosconfig  string `json:"talosconfig"`
	TalosVersion string `json:"talos_version"`
	ReportPath   string `json:"report_path"`
	// RetryBootIDs are by node.
	RetryBootIDs map[string]string `json:"retry_boot_ids,omitempty"`
}

// write writes them to where the configuration in the directory reads them.
func (v variables) write(dir string) error {
	values, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing the variables: %w", err)
	}

	if err := os.WriteFile(filepath.Join(dir, "demo.auto.tfvars.json"), values, 0o600); err != nil {
		return fmt.Errorf("writing the variables: %w", err)
	}

	return nil
}

// prepare finds and builds what the demo needs.
func prepare(ctx context.Context, show *screen, apiServer string) (tools, error) {
	options := toolchain.Options{Progress: show}

	cli, err := toolchain.Terraform(ctx, options)
	if err != nil {
		return tools{}, err
	}

	if apiServer == apiServerReal {
		// The simulator would build it as well, without showing its progress.
		if _, err := toolchain.Kubernetes(ctx, options); err != nil {
			return tools{}, err
		}
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

// tidy removes the demo's directory, unless somebody may want to read it.
func tidy(ctx context.Context, show *screen, dir string, keep bool, err error) error {
	if keep || (err != nil && ctx.Err() == nil) {
		show.line(plain, "\nconfiguration, history and logs are in %s", dir)

		return err
	}

	return errors.Join(err, os.RemoveAll(dir))
}
