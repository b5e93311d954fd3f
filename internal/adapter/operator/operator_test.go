// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestOperator_FollowsFromTheKindOfTheObject(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		of        cluster.Reference
		want      operator.Kind
		completed string
	}{
		"a ConfigMap":                          {cluster.Reference{Kind: "ConfigMap"}, operator.Plain, "v1"},
		"a namespace":                          {cluster.Reference{APIVersion: "v1", Kind: "Namespace"}, operator.Plain, "v1"},
		"a Deployment":                         {cluster.Reference{APIVersion: "apps/v1", Kind: "Deployment"}, operator.Plain, "apps/v1"},
		"a KubernetesCluster":                  {cluster.Reference{Kind: "KubernetesCluster"}, operator.Vitistack, "vitistack.io/v1alpha1"},
		"a KubernetesCluster of a later API":   {cluster.Reference{APIVersion: "vitistack.io/v1", Kind: "KubernetesCluster"}, operator.Vitistack, "vitistack.io/v1"},
		"a KubernetesCluster of somebody else": {cluster.Reference{APIVersion: "example.org/v1", Kind: "KubernetesCluster"}, operator.Annotated, "example.org/v1"},
		"another kind of Vitistack":            {cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine"}, operator.Annotated, "vitistack.io/v1alpha1"},
		"a TalosControlPlane":                  {cluster.Reference{Kind: "TalosControlPlane"}, operator.Declarative, "talos.alperen.cloud/v1alpha1"},
		"a TalosWorker":                        {cluster.Reference{APIVersion: "talos.alperen.cloud/v1alpha1", Kind: "TalosWorker"}, operator.Annotated, "talos.alperen.cloud/v1alpha1"},
		"nobody knows what":                    {cluster.Reference{Kind: "Thing"}, operator.Plain, ""},
	} {
		if got := operator.KindOf(test.of); got != test.want {
			t.Errorf("%s is %s, want %s", name, got, test.want)
		}

		got, ok := operator.Complete(test.of)
		if got.APIVersion != test.completed || ok != (test.completed != "") || got.Kind != test.of.Kind {
			t.Errorf("%s is completed to %+v, %t; want the API version %q", name, got, ok, test.completed)
		}
	}
}

// beside runs a test in virtual time beside three control planes and two workers,
// with an object from which they can be upgraded.
func beside(t *testing.T, seed func(context.Context, played.Objects, *model.World, played.Seed) (cluster.Reference, error),
	test func(*testing.T, cluster.Operator, *played.Memory, played.Options),
) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		simulated, err := ports.New(model.Options{ControlPlanes: 3, Workers: 2, Talos: "1.13.2", Kubernetes: "1.34.2"})
		if err != nil {
			t.Fatal(err)
		}

		defer simulated.Stop()

		api, err := played.NewMemory(simulated.World())
		if err != nil {
			t.Fatal(err)
		}

		of, err := seed(t.Context(), api, simulated.World(), played.Seed{Namespace: "tenant-a", Name: "prod", Prefix: "talos-", WithV: true})
		if err != nil {
			t.Fatal(err)
		}

		test(t, operator.New(of, api), api, played.Options{World: simulated.World(), Objects: api, Namespace: of.Namespace, Name: of.Name})
	})
}

// followed returns the different states of a half until nothing is asked of it any more, for at most two hours.
func followed(t *testing.T, of cluster.Operator, product version.Product) (statuses []protocol.Status, last cluster.OperatorProduct) {
	t.Helper()

	for until := time.Now().Add(2 * time.Hour); time.Now().Before(until); time.Sleep(2 * time.Second) {
		report, err := of.Report(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		last = report.Of(product)
		if status := last.Status; !slices.Contains(statuses, status) {
			statuses = append(statuses, status)
		}

		if last.Target == "" {
			return statuses, last
		}
	}

	t.Errorf("after two hours it is still asked for %s: %+v", last.Target, last)

	return statuses, last
}

func TestOperator_BothHalvesAreFollowedToTheirEnd(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		seed  func(context.Context, played.Objects, *model.World, played.Seed) (cluster.Reference, error)
		play  func(context.Context, played.Options) func()
		ended protocol.Status
	}{
		{played.SeedVitistack, played.PlayVitistack, protocol.StatusCompleted},
		{played.SeedDeclarative, played.PlayDeclarative, protocol.StatusIdle},
	} {
		beside(t, test.seed, func(t *testing.T, of cluster.Operator, _ *played.Memory, options played.Options) {
			defer test.play(t.Context(), options)()

			for _, product := range []version.Product{version.Talos, version.Kubernetes} {
				to := "1.13.4"
				if product == version.Kubernetes {
					to = "1.35.1"
				}

				if err := of.Ask(t.Context(), product, parsed(to)); err != nil {
					t.Errorf("%s: %s: %v", of, product, err)
				}

				statuses, last := followed(t, of, product)
				if !slices.Contains(statuses, protocol.StatusInProgress) || last.Status != test.ended || last.Current != to {
					t.Errorf("%s: %s went through %q and ended as %+v", of, product, statuses, last)
				}
			}

			for _, state := range options.World.Nodes() {
				if state.Talos != "1.13.4" || state.Kubelet.Version != "1.35.1" {
					t.Errorf("%s: %s runs Talos %s and kubelet %s", of, state.Name, state.Talos, state.Kubelet.Version)
				}
			}
		})
	}
}

// TestOperator_StaleCompletionIsNotTakenForANewOne: the operator forgets to say that it is at
// work, and only its Secret shows it.
func TestOperator_StaleCompletionIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()

	beside(t, played.SeedVitistack, func(t *testing.T, of cluster.Operator, api *played.Memory, options played.Options) {
		options.Habits.StaleCompleted = true

		err := api.Annotate(t.Context(), cluster.Reference{APIVersion: played.VitistackAPIVersion, Kind: played.VitistackKind, Namespace: "tenant-a", Name: "prod"},
			map[string]string{"upgrade.vitistack.io/talos-status": "completed", "upgrade.vitistack.io/talos-current": "v1.13.2"})
		if err := errors.Join(err, of.Ask(t.Context(), version.Talos, parsed("1.13.4"))); err != nil {
			t.Error(err)
		}

		defer played.PlayVitistack(t.Context(), options)()

		// A minute is enough for it to begin, but not to end.
		time.Sleep(time.Minute)

		if report, err := of.Report(t.Context()); err != nil || !report.Talos.Status.Busy() {
			t.Errorf("%+v, %v; want it at work", report.Talos, err)
		}

		if _, last := followed(t, of, version.Talos); last.Status != protocol.StatusCompleted || last.Current != "1.13.4" {
			t.Errorf("it ended as %+v", last)
		}
	})
}

// TestOperator_WaitsWhileHeld: it waits until it is released, and nothing is asked of it any more.
func TestOperator_WaitsWhileHeld(t *testing.T) {
	t.Parallel()

	beside(t, played.SeedVitistack, func(t *testing.T, of cluster.Operator, _ *played.Memory, options played.Options) {
		defer played.PlayVitistack(t.Context(), options)()

		if err := errors.Join(of.Hold(t.Context(), run, ""), of.Ask(t.Context(), version.Talos, parsed("1.13.4"))); err != nil {
			t.Error(err)
		}

		time.Sleep(time.Hour)

		if report, err := of.Report(t.Context()); err != nil || report.Talos.Status.Busy() || report.Talos.Target != "1.13.4" || report.Hold != run {
			t.Errorf("%+v, %v; want it untouched", report, err)
		}

		withdrawn := of.Withdraw(t.Context(), version.Talos, parsed("1.13.4"))
		if err := errors.Join(withdrawn, of.Settle(t.Context(), parsed("1.13.4"), parsed("1.34.2")), of.Release(t.Context(), run)); err != nil {
			t.Error(err)
		}

		time.Sleep(time.Hour)

		if report, err := of.Report(t.Context()); err != nil || report.Hold != "" || report.Talos.Target != "" || report.Talos.Status.Busy() {
			t.Errorf("%+v, %v; want it at rest", report, err)
		}

		for _, state := range options.World.Nodes() {
			if state.Talos != "1.13.2" {
				t.Errorf("%s was brought to Talos %s", state.Name, state.Talos)
			}
		}
	})
}
