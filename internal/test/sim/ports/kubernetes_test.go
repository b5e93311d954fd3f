// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func TestKubernetes_NoticesALateNode(t *testing.T) {
	inCluster(t, model.Options{}, func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		ready := func() bool {
			nodes, err := c.Nodes(ctx)
			if err != nil {
				t.Fatal(err)
			}

			for _, node := range nodes {
				if node.Name == "worker-0" {
					return node.Ready
				}
			}

			return false
		}

		if err := c.Reboot(ctx, workerAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		time.Sleep(20 * time.Second)

		if !ready() {
			t.Error("a kubelet that is silent for less than 40 s was noticed")
		}

		time.Sleep(30 * time.Second)

		if ready() {
			t.Error("a kubelet that is silent for more than 40 s was not noticed")
		}

		time.Sleep(3 * time.Minute)

		if !ready() {
			t.Error("the node did not become ready again")
		}
	})
}

func TestKubernetes_APIServerGoesWithItsOnlyControlPlane(t *testing.T) {
	inCluster(t, model.Options{ControlPlanes: 1, Workers: 1}, func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if err := c.Reboot(ctx, firstAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		time.Sleep(25 * time.Second)

		_, err := c.Nodes(ctx)
		means(t, err, cluster.ErrUnreachable)

		// The worker runs, but nobody hands calls on to it.
		_, err = c.Machine(ctx, "10.5.0.3", nil)
		means(t, err, cluster.ErrUnreachable)

		time.Sleep(4 * time.Minute)

		if _, err := c.Nodes(ctx); err != nil {
			t.Errorf("the API server did not come back: %v", err)
		}
	})
}

func TestKubernetes_BudgetsAreAccountedFor(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		s.AddApp("web", 2, &ports.Budget{MinAvailable: 1})

		pods, err := c.PodsToEvict(ctx, "worker-0")
		if err != nil || len(pods) != 1 {
			t.Fatalf("got %v and %v, want one pod", pods, err)
		}

		others, err := c.PodsToEvict(ctx, "worker-1")
		if err != nil || len(others) != 1 {
			t.Fatalf("got %v and %v, want one pod", others, err)
		}

		if err := c.Evict(ctx, pods[0]); err != nil {
			t.Errorf("the first eviction: %v", err)
		}

		means(t, c.Evict(ctx, others[0]), cluster.ErrBudget)

		// Its replacement takes a moment to be ready.
		time.Sleep(10 * time.Second)

		if err := c.Evict(ctx, others[0]); err != nil {
			t.Errorf("the eviction after the replacement is ready: %v", err)
		}

		if err := c.Evict(ctx, pods[0]); err != nil {
			t.Errorf("the eviction of a pod that is gone: %v", err)
		}
	})
}

func TestKubernetes_CordonsAreToldApart(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if ours, err := c.Cordon(ctx, "worker-0", "run"); !ours || err != nil {
			t.Errorf("our own cordon: %t, %v", ours, err)
		}

		if err := s.CordonAsPerson("worker-1", true); err != nil {
			t.Fatal(err)
		}

		if ours, err := c.Cordon(ctx, "worker-1", "run"); ours || err != nil {
			t.Errorf("a person's cordon: %t, %v", ours, err)
		}

		for _, node := range []string{"worker-0", "worker-1"} {
			if err := c.Uncordon(ctx, node); err != nil {
				t.Fatal(err)
			}
		}

		nodes, err := c.Nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}

		for _, node := range nodes {
			if want := node.Name == "worker-1"; node.Unschedulable != want {
				t.Errorf("%s: unschedulable is %t, want %t", node.Name, node.Unschedulable, want)
			}
		}
	})
}

func TestKubernetes_ForgetKeepsUnfinishedEntries(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		id := s.World().ClusterID()

		written, err := c.WriteJournal(ctx, cluster.Journal{}.With("uuid", cluster.Entry{Node: "worker-0", Phase: cluster.PhaseInstalled}))
		if err != nil {
			t.Fatal(err)
		}

		if kept, err := c.Forget(ctx, id); err != nil || len(kept) != 1 {
			t.Errorf("kept %v, %v, want the journal", kept, err)
		}

		if kept, err := c.Forget(ctx, "another cluster"); err != nil || len(kept) != 1 {
			t.Errorf("kept %v, %v of another cluster", kept, err)
		}

		if _, err := c.WriteJournal(ctx, written.Without("uuid")); err != nil {
			t.Fatal(err)
		}

		if kept, err := c.Forget(ctx, id); err != nil || len(kept) != 0 || s.Journal().ResourceVersion != "" {
			t.Errorf("kept %v, %v, want nothing", kept, err)
		}
	})
}
