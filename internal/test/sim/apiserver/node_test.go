// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The adapter makes of the objects over the wire what the ports say: there is one
// truth behind both.
func TestNode_WireShowsWhatThePortsShow(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		busy(r.cluster)
		r.same("at rest")

		if _, err := r.api.Cordon(r.Context(), "worker-0", "run-1"); err != nil {
			r.Fatal(err)
		}

		if err := r.cluster.CordonAsPerson("worker-1", true); err != nil {
			r.Fatal(err)
		}

		if err := r.api.Evict(r.Context(), podOf(r, "web")); err != nil {
			r.Fatal(err)
		}

		r.same("with a pod on its way out")

		blocked := model.Fault{Node: "worker-1", Step: model.StepDrain, Effect: model.EffectBlockedByBudget}

		r.cluster.World().SetFaults([]model.Fault{blocked})
		r.same("with a drain that is blocked")

		// The ports put pods onto a node whose disk is full, which its taint forbids.
		r.cluster.World().SetFaults([]model.Fault{blocked, {Node: "worker-1", Step: model.StepDisk, Effect: model.EffectPressure}})
		r.same("with a full disk", "Workloads")

		r.cluster.World().SetFaults(nil)

		if _, err := r.api.WriteLease(r.Context(), cluster.Lease{Holder: "run-1", Renewed: time.Now(), Duration: 30 * time.Second}); err != nil {
			r.Fatal(err)
		}

		if _, err := r.cluster.Client("ports").WriteJournal(r.Context(), wholeJournal()); err != nil {
			r.Fatal(err)
		}

		r.same("with a lease and a journal")

		standing, err := r.api.Journal(r.Context())
		if err != nil {
			r.Fatal(err)
		}

		changed := wholeJournal().With("uuid-2", wholeJournal().Entries["uuid-1"])
		changed.ResourceVersion = standing.ResourceVersion

		if _, err := r.api.WriteJournal(r.Context(), changed); err != nil {
			r.Fatal(err)
		}

		r.same("with a journal that came over the wire")
	})
}

// wholeJournal has every field there is.
func wholeJournal() cluster.Journal {
	entry := cluster.Entry{
		Node: "worker-0", Phase: cluster.PhaseRollingBack, Attempt: 2, BootID: "boot-1", Image: "factory.example/installer/abc:v1.13.4",
		Target: version.MustParse("1.13.4"), Previous: version.MustParse("1.13.2"), PreviousSchematic: "abc", PreviousEtcd: "3.6.1",
		Schematic: "def", Told: true,
		Run: "run-1", Cordoned: true, Written: time.Now(),
	}
	snapshot := &cluster.EtcdSnapshot{
		Path: "/vault/a.db", Size: 512, SHA256: strings.Repeat("0a", 32), Taken: time.Now(), Run: "run-1", Closed: true,
		Target: cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2"), InstallerImage: "a/b"},
	}

	return cluster.Journal{Holder: "run-1 (test)"}.With("uuid-1", entry).WithSnapshot(snapshot).
		WithManifests(&cluster.ManifestsDue{Run: "run-1", Written: time.Now()})
}

// same compares what the two clients see, but for some of it.
func (r *rig) same(when string, without ...string) {
	r.Helper()

	other := r.cluster.Client("ports")

	for what, ask := range map[string]func(cluster.Kubernetes) (any, error){
		"UID":           func(k cluster.Kubernetes) (any, error) { return k.UID(r.Context()) },
		"Nodes":         func(k cluster.Kubernetes) (any, error) { return sortedNodes(k.Nodes(r.Context())) },
		"ComponentPods": func(k cluster.Kubernetes) (any, error) { return k.ComponentPods(r.Context()) },
		"PodsToEvict":   func(k cluster.Kubernetes) (any, error) { return k.PodsToEvict(r.Context(), "worker-0") },
		"Lease":         func(k cluster.Kubernetes) (any, error) { return k.Lease(r.Context()) },
		"Journal":       func(k cluster.Kubernetes) (any, error) { return k.Journal(r.Context()) },
		"Workloads": func(k cluster.Kubernetes) (any, error) {
			reader, _ := k.(cluster.WorkloadReader)

			return guarded(reader.Workloads(r.Context()))
		},
	} {
		if slices.Contains(without, what) {
			continue
		}

		wire, err := ask(r.api)
		if err != nil {
			r.Fatalf("%s, %s over the wire: %v", when, what, err)
		}

		straight, err := ask(other)
		if err != nil {
			r.Fatalf("%s, %s: %v", when, what, err)
		}

		if diff := gocmp.Diff(straight, wire, alike()...); diff != "" {
			r.Errorf("%s, %s: the ports (-) and the wire (+) differ:\n%s", when, what, diff)
		}
	}
}

func sortedNodes(nodes []cluster.KubeNode, err error) ([]cluster.KubeNode, error) {
	slices.SortFunc(nodes, func(a, b cluster.KubeNode) int { return cmp.Compare(a.Name, b.Name) })

	return nodes, err
}

// guarded leaves out of the budgets the pods that have never run: the API server
// asks none for them, so the adapter does not say so, while the ports do.
func guarded(workloads cluster.Workloads, err error) (cluster.Workloads, error) {
	for i := range workloads.Budgets {
		workloads.Budgets[i].Pods = slices.DeleteFunc(slices.Clone(workloads.Budgets[i].Pods), func(uid string) bool {
			return slices.ContainsFunc(workloads.Pods, func(pod cluster.WorkloadPod) bool { return pod.UID == uid && pod.Node == "" })
		})
	}

	return workloads, err
}

// alike leaves out what a client cannot see: fractions of seconds, and in which
// order things are listed.
func alike() []gocmp.Option {
	return []gocmp.Option{
		cmpopts.EquateEmpty(),
		gocmp.Comparer(func(a, b time.Time) bool { return a.Truncate(time.Second).Equal(b.Truncate(time.Second)) }),
		gocmp.Comparer(func(a, b version.Version) bool { return a.Compare(b) == 0 }),
		cmpopts.SortSlices(func(a, b cluster.WorkloadPod) bool { return a.String() < b.String() }),
		cmpopts.SortSlices(func(a, b cluster.Budget) bool { return a.String() < b.String() }),
		cmpopts.SortSlices(func(a, b cluster.Pod) bool { return a.String() < b.String() }),
		cmpopts.SortSlices(func(a, b cluster.ComponentPod) bool {
			return string(a.Component)+a.Node < string(b.Component)+b.Node
		}),
		cmpopts.SortSlices(func(a, b cluster.Room) bool { return a.Node < b.Node }),
		cmpopts.SortSlices(func(a, b string) bool { return a < b }),
	}
}
