// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestStateReadsTheResourcesOfOneNode(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		for address, name := range map[string]string{cp1: "cp-1", worker0: "worker-0"} {
			got, err := safe.StateGetByID[*k8s.Nodename](r.Context(), c.State(address), k8s.NodenameID)
			if err != nil || got.TypedSpec().Nodename != name {
				r.Errorf("%s: %v, %v; want the name %s", address, got, err, name)
			}
		}

		list, err := safe.StateListAll[*k8s.Nodename](r.Context(), c.State(cp1))
		if err != nil || list.Len() != 1 {
			r.Errorf("list: %d names, %v; want one", list.Len(), err)
		}

		kubelet, err := safe.StateGetByID[*k8s.KubeletSpec](r.Context(), c.State(worker0), "kubelet")
		if err != nil || kubelet.TypedSpec().Image != oldKubelet {
			r.Errorf("kubelet: %v, %v; want it typed", kubelet, err)
		}
	})
}

// TestStateServesUpstreamsLibraries: what Talos renders and what runs is read
// through it.
func TestStateServesUpstreamsLibraries(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		objects, err := manifests.GetBootstrapManifests(r.Context(), c.State(cp1), nil)
		if err != nil || len(objects) == 0 {
			r.Errorf("%d manifests, %v; want some", len(objects), err)
		}

		path, err := upgrade.NewPath("1.34.2", "1.35.0")
		if err != nil {
			r.Fatal(err)
		}

		checks, err := upgrade.NewChecksWithStateProvider(path, func(_ context.Context, node string) (state.State, error) { return c.State(node), nil },
			&rest.Config{Host: "127.0.0.1:1"}, []string{cp0, cp1}, []string{worker0}, r.Logf)
		if err != nil {
			r.Fatal(err)
		}

		if err := checks.Run(r.Context()); err != nil {
			r.Errorf("the checks of an upgrade: %v", err)
		}
	})
}

func TestStateNamesErrorsForBothSides(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")
		at := resource.NewMetadata(k8s.NamespaceName, k8s.NodenameType, "nobody", resource.VersionUndefined)

		if _, err := c.State(cp1).Get(r.Context(), at); !state.IsNotFoundError(err) || !errors.Is(err, cluster.ErrNotFound) {
			r.Errorf("a missing resource: %v, want both to know", err)
		}

		at = resource.NewMetadata(k8s.NamespaceName, "Nothings.kubernetes.talos.dev", "nobody", resource.VersionUndefined)

		if _, err := c.State(cp1).List(r.Context(), at); state.IsNotFoundError(err) || !errors.Is(err, cluster.ErrDenied) {
			r.Errorf("an unknown type: %v, want it denied", err)
		}

		if err := c.Reboot(r.Context(), cp1, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("cp-1", "down", isDown)

		if _, err := c.State(cp1).List(r.Context(), k8s.NewNodename(k8s.NamespaceName, "").Metadata()); !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("a node that is down: %v, want it unreachable", err)
		}

		if _, err := c.State(cp0).List(r.Context(), k8s.NewNodename(k8s.NamespaceName, "").Metadata()); err != nil {
			r.Errorf("another node while an endpoint is down: %v", err)
		}
	})
}

func TestStateWritesNothing(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		core, name := r.client("").State(cp1), k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)

		for what, err := range map[string]error{
			"create":           core.Create(r.Context(), name),
			"update":           core.Update(r.Context(), name),
			"destroy":          core.Destroy(r.Context(), name.Metadata()),
			"watch":            core.Watch(r.Context(), name.Metadata(), nil),
			"watch a kind":     core.WatchKind(r.Context(), name.Metadata(), nil),
			"watch aggregated": core.WatchKindAggregated(r.Context(), name.Metadata(), nil),
		} {
			if !state.IsUnsupportedError(err) || !errors.Is(err, cluster.ErrUnsupported) {
				r.Errorf("%s: %v, want it unsupported", what, err)
			}
		}

		if calls := r.log.calls("cp-1"); len(calls) != 0 {
			r.Errorf("the node was called: %v", calls)
		}
	})
}
