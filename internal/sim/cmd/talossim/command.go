// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// verdict prints what the history in a directory amounts to.
func verdict(args []string, out, progress io.Writer) error {
	set, dir := flags("verdict", progress)
	if err := parse(set, args, dir, 0); err != nil {
		return err
	}

	judged, err := sim.ReadVerdict(*dir)
	if err != nil {
		return err
	}

	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")

	return encoder.Encode(judged)
}

// addNode lets a machine join a running cluster and prints its name.
func addNode(ctx context.Context, args []string, out, progress io.Writer) error {
	var options model.NodeOptions

	set, dir := flags("add-node", progress)
	role := set.String("role", "worker", "worker or controlplane")
	set.StringVar(&options.Name, "name", "", "name of the node; the next free one by default")
	set.StringVar(&options.Talos, "talos", "", "Talos version; that of the cluster's beginning by default")
	set.StringVar(&options.Schematic, "schematic", "", "Image Factory schematic")

	if err := parse(set, args, dir, 0); err != nil {
		return err
	}

	options.Role = model.Role(*role)
	if options.Role != model.Worker && options.Role != model.ControlPlane {
		return fmt.Errorf("--role %q: want %s or %s", *role, model.Worker, model.ControlPlane)
	}

	name, err := sim.RequestNode(ctx, *dir, options)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintln(out, name)

	return err
}

// setFaults replaces the fault script of a running cluster.
func setFaults(ctx context.Context, args []string, in io.Reader, progress io.Writer) error {
	set, dir := flags("faults", progress)
	if err := parse(set, args, dir, 1); err != nil {
		return err
	}

	script, err := readScript(set.Arg(0), in)
	if err != nil {
		return err
	}

	return sim.RequestFaults(ctx, *dir, script)
}

func readScript(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		script, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("reading the fault script: %w", err)
		}

		return script, nil
	}

	script, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the fault script: %w", err)
	}

	return script, nil
}
