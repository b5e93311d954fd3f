// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func notReady(lasts time.Duration) []model.Fault {
	return []model.Fault{{Node: "worker-0", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1, For: lasts}}
}

func kubeNode(t *testing.T, c *ports.Client, name string) cluster.KubeNode {
	t.Helper()

	nodes, err := c.Nodes(context.Background())
	if err != nil {
		t.Fatal(err)
	}

	for _, node := range nodes {
		if node.Name == name {
			return node
		}
	}

	t.Fatalf("there is no node %s", name)

	return cluster.KubeNode{}
}

func TestNode_IsNotReadyFromTheStart(t *testing.T) {
	inCluster(t, model.Options{Faults: notReady(0)}, func(_ *ports.Cluster, c *ports.Client) {
		if node := kubeNode(t, c, "worker-0"); node.Ready || node.ReadyReason != "KubeletNotReady" {
			t.Errorf("worker-0: %+v", node)
		}

		if node := kubeNode(t, c, "worker-1"); !node.Ready {
			t.Errorf("worker-1: %+v", node)
		}

		machine, err := c.Machine(context.Background(), workerAt, nil, cluster.Everything)
		if err != nil || machine.Stage != cluster.StageRunning || machine.Settled() {
			t.Errorf("the machine: %+v, %v; want one that runs and is not settled", machine, err)
		}
	})
}

func TestNode_KubeletThatIsNotReadyConfirmsNothing(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		s.AddApp("web", 2, &apiserver.Budget{MinAvailable: 1})
		s.World().SetFaults(notReady(10 * time.Minute))

		pods, err := c.PodsToEvict(ctx, "worker-0")
		if err != nil || len(pods) != 1 {
			t.Fatalf("got %v and %v, want one pod", pods, err)
		}

		// It is not ready, so its budget allows the eviction.
		if err := c.Evict(ctx, pods[0]); err != nil {
			t.Fatal(err)
		}

		time.Sleep(9 * time.Minute)

		if pods, err = c.PodsToEvict(ctx, "worker-0"); err != nil || len(pods) != 1 || !pods[0].Terminating {
			t.Errorf("got %+v and %v, want one pod on its way out", pods, err)
		}

		time.Sleep(2 * time.Minute)

		if pods, err = c.PodsToEvict(ctx, "worker-0"); err != nil || len(pods) != 0 {
			t.Errorf("got %+v and %v once the node is ready, want none", pods, err)
		}
	})
}

func TestNode_BudgetKeepsThePodsThatServe(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		s.AddApp("web", 2, &apiserver.Budget{MinAvailable: 1})
		s.World().SetFaults(notReady(0))

		pods, err := c.PodsToEvict(ctx, "worker-1")
		if err != nil || len(pods) != 1 {
			t.Fatalf("got %v and %v, want one pod", pods, err)
		}

		means(t, c.Evict(ctx, pods[0]), cluster.ErrBudget)
	})
}
