// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestKubernetesRequestsAreThoseOfTheAdapter makes each call with the shipped adapter, and
// compares what is counted for it with what reached the API server.
func TestKubernetesRequestsAreThoseOfTheAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := harness.New(t, harness.Setup{})
		defer r.Stop()

		r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

		server, err := apiserver.New(r.Cluster, apiserver.Options{Client: "run-1"})
		if err != nil {
			t.Fatal(err)
		}

		server.Start()
		defer server.Stop()

		client, err := kubeapi.New(server.Kubeconfig(), "", kubeapi.Options{UserAgent: "run-1", DialContext: server.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()

		client.Identify(r.World().ClusterID())

		for _, call := range kubernetesCalls(client) {
			before, _ := server.Requests()

			if err := call.make(t.Context()); err != nil && !errors.Is(err, cluster.ErrBudget) {
				t.Fatalf("%s: %v", call.method, err)
			}

			after, _ := server.Requests()
			if sent, counted := after-before, perKubernetesCall()[call.method]; sent != counted {
				t.Errorf("%s is counted as %d requests and sent %d", call.method, counted, sent)
			}
		}
	})
}

// kubernetesCall is one call of a port.
type kubernetesCall struct {
	method string
	make   func(context.Context) error
}

// kubernetesCalls are those of a roll, in an order in which each has something to do.
func kubernetesCalls(client *kubeapi.Client) []kubernetesCall {
	const node, run = "worker-1", "run-1"

	var (
		lease   cluster.Lease
		journal cluster.Journal
		pods    []cluster.Pod
	)

	return []kubernetesCall{
		{"UID", func(ctx context.Context) error { _, err := client.UID(ctx); return err }},
		{"Nodes", func(ctx context.Context) error { _, err := client.Nodes(ctx); return err }},
		{"NodesNow", func(ctx context.Context) error { _, err := client.NodesNow(ctx, node); return err }},
		{"Node", func(ctx context.Context) error { _, err := client.Node(ctx, node); return err }},
		{"ComponentPods", func(ctx context.Context) error { _, err := client.ComponentPods(ctx); return err }},
		{"StaticPods", func(ctx context.Context) error { _, err := client.StaticPods(ctx); return err }},
		{"Workloads", func(ctx context.Context) error { _, err := client.Workloads(ctx); return err }},
		{"Lease", func(ctx context.Context) (err error) { lease, err = client.Lease(ctx); return err }},
		{"WriteLease", func(ctx context.Context) error {
			lease.Holder, lease.Acquired, lease.Renewed, lease.Duration = run, time.Now(), time.Now(), time.Minute
			_, err := client.WriteLease(ctx, lease)

			return err
		}},
		{"Journal", func(ctx context.Context) (err error) { journal, err = client.Journal(ctx); return err }},
		{"WriteJournal", func(ctx context.Context) error {
			journal.Holder = run
			_, err := client.WriteJournal(ctx, journal)

			return err
		}},
		{"Cordon", func(ctx context.Context) error { _, err := client.Cordon(ctx, node, run); return err }},
		{"PodsToEvict", func(ctx context.Context) (err error) { pods, err = client.PodsToEvict(ctx, node); return err }},
		{"Evict", func(ctx context.Context) error {
			if len(pods) == 0 {
				return errors.New("nothing to evict")
			}

			return client.Evict(ctx, pods[0])
		}},
		{"Uncordon", func(ctx context.Context) error { return client.Uncordon(ctx, node) }},
	}
}
