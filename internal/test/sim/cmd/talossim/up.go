// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The API servers of a simulated Kubernetes.
const (
	serverInMemory = "memory"
	serverReal     = "real"
)

// up runs a simulated cluster until the context ends.
func up(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	set, dir := flags("up", progress)
	options := sim.Options{Progress: progress, InMemory: true}

	set.IntVar(&options.ControlPlanes, "control-planes", 3, "number of control planes")
	set.IntVar(&options.Workers, "workers", 2, "number of workers")
	set.StringVar(&options.Talos, "talos", "1.12.6", "Talos version of all machines")
	set.StringVar(&options.Kubernetes, "kubernetes", "1.34.2", "Kubernetes version of all components")
	set.Float64Var(&options.Speed, "speed", 60, "simulated seconds in a real one")
	set.Uint64Var(&options.Seed, "seed", 1, "decides identities and durations")
	set.StringVar(&options.ClusterName, "name", "talossim", "name of the cluster and of its talosconfig context")
	set.StringVar(&options.Schematic, "schematic", "", "Image Factory schematic of all machines")
	set.StringVar(&options.Platform, "platform", "metal", "platform of all machines")
	set.BoolVar(&options.UKI, "uki", false, "machines boot the UKI of what was installed, with the platform that it is built for")
	set.BoolVar(&options.GrubUseUKICmdline, "grub-uki-cmdline", false, "machine configurations with machine.install.grubUseUKICmdline")
	set.BoolVar(&options.SecureBoot, "secure-boot", false, "machines boot with secure boot")
	set.IntVar(&options.Pods, "pods", 0, "number of workload pods, covered by PodDisruptionBudgets")
	set.BoolVar(&options.Unpinned, "unpinned", false, "leave the component images out of the machine configurations")
	set.BoolVar(&options.Documents, "documents", false, "machine configurations in separate documents, from Talos 1.14 on")
	set.BoolVar(&options.CustomResources, "custom-resources", false, "install KubernetesCluster, TalosControlPlane and their kin in the cluster")
	set.BoolVar(&options.Management, "management", false,
		"start the API server of a management cluster with them too; its credentials are in "+sim.ManagementKubeconfigFile)
	set.BoolVar(&options.ProxyDisabled, "no-proxy", false, "run no kube-proxy")
	set.Func("disable", "kube-scheduler or kube-controller-manager, to be switched off everywhere; may be repeated", func(name string) error {
		options.Disabled = append(options.Disabled, name)

		return nil
	})
	set.Func("repository", "COMPONENT=REPOSITORY of a component, other than the default; may be repeated", pairs(&options.Repositories))
	set.Func("image", "COMPONENT=REFERENCE of a component, with tag or digest; may be repeated", pairs(&options.Images))

	set.Func("api-server", "that of Kubernetes: memory, which starts at once, or real, a kube-apiserver with etcd, which are built the first time (default memory)",
		func(name string) error {
			options.InMemory = name == serverInMemory
			if !options.InMemory && name != serverReal {
				return fmt.Errorf("want %s or %s", serverInMemory, serverReal)
			}

			return nil
		})

	faults := set.String("faults", "", "file with the fault script; read again when it changes")

	if err := parse(set, args, dir, 0); err != nil {
		return err
	}

	switch {
	case options.Speed <= 0:
		return fmt.Errorf("--speed %v: want a number above 0", options.Speed)
	case options.InMemory && (options.CustomResources || options.Management):
		return fmt.Errorf("--custom-resources and --management need --api-server %s", serverReal)
	}

	options.Dir = *dir

	if *faults != "" {
		if options.Faults, err = readFaults(*faults); err != nil {
			return err
		}
	}

	simulator, err := sim.Start(ctx, options)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, simulator.Stop()) }()

	if *faults != "" {
		following := sim.FollowFaults(ctx, *faults, simulator, func(err error) {
			fmt.Fprintln(progress, "talossim: the fault script stays as it was:", err)
		})
		defer following()
	}

	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}

	return simulator.Wait(ctx)
}

// pairs returns a function that adds one NAME=VALUE.
func pairs(into *map[string]string) func(string) error {
	return func(text string) error {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" || value == "" {
			return fmt.Errorf("%q: want COMPONENT=IMAGE", text)
		}

		if *into == nil {
			*into = map[string]string{}
		}

		(*into)[name] = value

		return nil
	}
}

func readFaults(path string) ([]model.Fault, error) {
	script, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--faults: %w", err)
	}

	faults, err := model.LoadFaults(script)
	if err != nil {
		return nil, fmt.Errorf("--faults %s: %w", path, err)
	}

	return faults, nil
}
