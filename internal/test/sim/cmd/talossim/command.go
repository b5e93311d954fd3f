// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// verdict prints the judgement of the history in a directory.
func verdict(args []string, out, progress io.Writer) error {
	set, dir := flags("verdict", progress)
	most := set.Int("max-unavailable", 1, "how many workers may be unavailable at a time")
	held := set.String("held", "", "nodes that had to be left alone, separated by commas")
	kubelets := set.Int("max-unavailable-kubelets", 1, "how many workers' kubelets may restart at a time")
	syncs := set.Bool("syncs-manifests", false, "the upgrade also rolls kube-proxy, so that its pods count from the beginning")
	canary := set.String("canary", "", "nodes that had to move before all others, separated by commas")
	skips := set.String("skips", "", "checks that the upgrade was told to skip, separated by commas")
	snapshot := set.Bool("snapshot-first", false, "a whole snapshot of etcd had to be read before anything was disturbed")
	delegated := set.Bool("delegated", false, "an operator was to upgrade the cluster, and the provider only to ask it")
	operated := set.String("operated", "", "objects on which an operator acts unless it is held, as KIND/NAMESPACE/NAME, separated by commas")
	patience := set.Duration("drain-delete", 0, "time after which pods that could not be evicted may be deleted, such as 5m; without it never")

	if err := parse(set, args, dir, 0); err != nil {
		return err
	}

	if *most < 1 {
		return fmt.Errorf("--max-unavailable %d: want a number from 1 on", *most)
	}

	if *kubelets < 1 {
		return fmt.Errorf("--max-unavailable-kubelets %d: want a number from 1 on", *kubelets)
	}

	policy := []checker.Option{
		checker.MaxUnavailable(*most), checker.Held(names(*held)...), checker.Canary(names(*canary)...),
		checker.MaxUnavailableKubelets(*kubelets), checker.Skips(names(*skips)...),
	}

	for _, name := range names(*skips) {
		if known, found := cluster.CheckNamed(name); !found || known.Firm != "" {
			return fmt.Errorf("--skips: there is no check %q that can be skipped", name)
		}
	}

	for _, object := range names(*operated) {
		if strings.Count(object, "/") != 2 {
			return fmt.Errorf("--operated: %q is no object: want KIND/NAMESPACE/NAME", object)
		}
	}

	policy = append(policy, checker.Operated(names(*operated)...))

	if *delegated {
		policy = append(policy, checker.Delegated())
	}

	if *snapshot {
		policy = append(policy, checker.SnapshotFirst())
	}

	if *syncs {
		policy = append(policy, checker.SyncsManifests())
	}

	if *patience > 0 {
		policy = append(policy, checker.DrainDelete(*patience))
	}

	judged, err := sim.ReadVerdict(*dir, policy...)
	if err != nil {
		return err
	}

	// A misspelled name would be judged as respected.
	for _, name := range append(names(*held), names(*canary)...) {
		if _, known := judged.Nodes[name]; !known {
			return fmt.Errorf("--held, --canary: the cluster has no node %q, only %s",
				name, strings.Join(slices.Sorted(maps.Keys(judged.Nodes)), ", "))
		}
	}

	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")

	return encoder.Encode(judged)
}

// printHistory prints what happened, as a table.
func printHistory(args []string, out, progress io.Writer) error {
	set, dir := flags("history", progress)
	node := set.String("node", "", "only what happened to the node of this name")
	kinds := set.String("kind", "", "only events of these kinds, as the lines of the history name them, separated by commas; by default all that changed something")

	if err := parse(set, args, dir, 0); err != nil {
		return err
	}

	var (
		told         []history.Event
		nodes, known = map[string]bool{}, map[string]bool{}
		wanted       = names(*kinds)
	)

	err := sim.ReadHistory(*dir, func(event history.Event) {
		nodes[event.Node], known[string(event.Kind)] = true, true

		if (*node == "" || event.Node == *node) && (slices.Contains(wanted, string(event.Kind)) || len(wanted) == 0 && !event.Idle()) {
			told = append(told, event)
		}
	})
	if err != nil {
		return err
	}

	delete(nodes, "")

	if *node != "" && !nodes[*node] {
		return fmt.Errorf("--node: the cluster has no node %q, only %s", *node, strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}

	for _, kind := range wanted {
		if !known[kind] {
			return fmt.Errorf("--kind: the history has nothing of the kind %q, only of %s", kind, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}

	_, err = fmt.Fprint(out, history.Table(told))

	return err
}

// names returns the names in a list that is separated by commas.
func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
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

// setImage changes the image of a component on a node of a running cluster.
func setImage(ctx context.Context, args []string, progress io.Writer) error {
	set, dir := flags("set-image", progress)
	node := set.String("node", "", "name of the node (required)")
	component := set.String("component", "", "kubelet, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy or coredns (required)")
	image := set.String("image", "", "reference of the image, with its tag (required)")

	if err := parse(set, args, dir, 0); err != nil {
		return err
	}

	for name, value := range map[string]string{"--node": *node, "--component": *component, "--image": *image} {
		if value == "" {
			return fmt.Errorf("%s: %s is required", set.Name(), name)
		}
	}

	return sim.RequestImage(ctx, *dir, *node, *component, *image)
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
