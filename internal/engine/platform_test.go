// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestNodesKeepTheirPlatform: the installer that everybody gets is built for
// metal, and a node that takes its kernel arguments from there must not get it.
func TestNodesKeepTheirPlatform(t *testing.T) {
	const generic, factory = "ghcr.io/siderolabs/installer:v", "factory.talos.dev/aws-installer/" + model.EmptySchematic + ":v"

	for name, test := range map[string]struct {
		options  model.Options
		to, want string
	}{
		"a UKI":                             {model.Options{UKI: true}, toLifecycle, factory},
		"a UKI, from a version without it":  {model.Options{UKI: true, Talos: fromLegacy}, toLegacy, factory},
		"GRUB that reads the UKI":           {model.Options{GrubUseUKICmdline: true}, toLifecycle, factory},
		"GRUB with kernel arguments of its": {model.Options{}, toLifecycle, generic},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Platform = "aws"
			inCluster(t, setup{Options: test.options}, func(r *rig) {
				r.Must(r.Worker("run-1"), to(test.to))
				r.At(test.to)
				r.Once()

				for _, node := range r.World().Nodes() {
					if node.Platform != "aws" || node.Image != test.want+test.to {
						t.Errorf("%s runs %s on platform %s", node.Name, node.Image, node.Platform)
					}
				}
			})
		})
	}
}

// TestRollStopsAtANodeThatLostItsPlatform: the name of an image does not say what
// it is built for. The node that came back on another platform is the only one, it
// stays as it is, also for the next run, and goes on from its old system.
func TestRollStopsAtANodeThatLostItsPlatform(t *testing.T) {
	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle},
		"legacy":    {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Platform: "aws", UKI: true}}, func(r *rig) {
				request := to(hop.to)
				request.Target.InstallerImage = "registry.example.com/talos/installer"

				for _, run := range []string{"run-1", "run-2"} {
					err := r.Worker(run).Apply(context.Background(), request)
					if !errors.Is(err, engine.ErrPlatform) {
						t.Fatalf("%s: %v", run, err)
					}

					for _, part := range []string{
						"ran on platform aws and came back on metal", request.Target.InstallerImage + ":v" + hop.to,
						"talosctl -n " + r.State("worker-0").Address + " rollback", "its cordon stays",
					} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("%s does not say %q: %v", run, part, err)
						}
					}

					for node, found := range r.Judge.Verdict().Nodes {
						if hit := node == "worker-0"; (found.Installs > 0) != hit || found.Cordoned != hit {
							t.Errorf("%s: %s: %d installs, cordoned %t", run, node, found.Installs, found.Cordoned)
						}
					}
				}

				if broken := r.Judge.Verdict().Broken(); !slices.Equal(broken, []checker.Invariant{checker.S5}) {
					t.Errorf("broke %v", broken)
				}

				if err := r.World().Rollback(context.Background(), "worker-0"); err != nil {
					t.Fatal(err)
				}

				r.Until("back", 10*time.Minute, func() bool { return r.State("worker-0").Talos == hop.from && r.State("worker-0").Ready })

				request.Target.InstallerImage = "registry.example.com/talos/aws-installer"
				if err := r.Worker("run-3").Apply(context.Background(), request); !errors.Is(err, engine.ErrFallback) {
					t.Fatalf("run-3, which finds the node back with its old system: %v", err)
				}

				r.Must(r.Worker("run-4"), request)
				r.AllRun(hop.to)
				r.Tidy()

				for _, node := range r.World().Nodes() {
					if node.Platform != "aws" {
						t.Errorf("%s runs on platform %s", node.Name, node.Platform)
					}
				}
			})
		})
	}
}
