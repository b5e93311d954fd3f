// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// manifestsOfTalos is how many objects a control plane renders, kube-proxy
// included.
const manifestsOfTalos = 16

// born is a rig on a cluster of its own, which has just been made on a version of
// Talos and renders what that does.
func born(t *testing.T, talos string) *rig {
	t.Helper()

	if testing.Short() {
		t.Skip("no real API server in short mode")
	}

	simulator, err := start(t.Context(), talos, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := simulator.Stop(); err != nil {
			t.Error(err)
		}
	})

	talosconfig, err := os.ReadFile(simulator.Talosconfig())
	if err != nil {
		t.Fatal(err)
	}

	config, err := talosapi.ParseConfig(talosconfig, "")
	if err != nil {
		t.Fatal(err)
	}

	client, err := talosapi.New(config, talosapi.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})

	r := connect(t, simulator)
	r.states.set(client.State(controlPlane))

	return r
}

func TestAClusterBornOnTalos113HasNothingToSync(t *testing.T) {
	r := born(t, "1.13.4")

	keys := r.inventory()
	if len(keys) != manifestsOfTalos {
		t.Errorf("%d objects in the inventory, want %d: %q", len(keys), manifestsOfTalos, keys)
	}

	for name, options := range map[string]cluster.ManifestOptions{
		"server-side": serverSide, "with prune": {ServerSide: true, Prune: true}, "by force": {ServerSide: true, Force: true},
	} {
		changes, err := r.Diff(t.Context(), controlPlane, options)
		r.expect("diff "+name, changes, err)

		changes, err = r.Apply(t.Context(), controlPlane, options)
		r.expect("sync "+name, changes, err)

		for _, write := range r.wire.taken() {
			if !strings.HasSuffix(write, inventoryName) {
				t.Errorf("a sync %s with nothing to do: %s", name, write)
			}
		}
	}

	if after := r.inventory(); !slices.Equal(after, keys) {
		t.Errorf("inventory %q, was %q", after, keys)
	}
}

func TestTheFirstServerSideSyncAdoptsWhatTalos112Created(t *testing.T) {
	r := born(t, "1.12.6")

	if keys := r.inventory(); keys != nil {
		t.Errorf("the cluster was born with the inventory %q", keys)
	}

	planned, err := r.Diff(t.Context(), controlPlane, serverSide)
	if err != nil || len(planned) != manifestsOfTalos {
		t.Fatalf("%v, %d changes, want %d", err, len(planned), manifestsOfTalos)
	}

	// A Deployment counts a new annotation as a generation.
	onlyMarked := []string{"annotations:", ssa.InventoryAnnotationKey, "generation:"}

	for _, change := range planned {
		if change.Action != cluster.ManifestConfigured {
			t.Errorf("%s: %s, want it changed", change.Object, change.Action)
		}

		if !strings.Contains(change.Diff, ssa.InventoryAnnotationKey) {
			t.Errorf("%s: no mark in %q", change.Object, change.Diff)
		}

		for line := range strings.Lines(change.Diff) {
			changed := strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ")
			if changed && !slices.ContainsFunc(onlyMarked, func(part string) bool { return strings.Contains(line, part) }) {
				t.Errorf("%s: more than the mark changes: %q", change.Object, line)
			}
		}
	}

	changes, err := r.Apply(t.Context(), controlPlane, serverSide)
	r.expect("first sync", changes, err, r.summary(planned)...)

	if keys := r.inventory(); len(keys) != manifestsOfTalos {
		t.Errorf("%d objects in the inventory, want %d: %q", len(keys), manifestsOfTalos, keys)
	}

	changes, err = r.Diff(t.Context(), controlPlane, serverSide)
	r.expect("diff after a sync", changes, err)
}
