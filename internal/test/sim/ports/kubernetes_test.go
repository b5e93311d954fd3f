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
		_, err = c.Machine(ctx, "10.5.0.3", nil, cluster.Everything)
		means(t, err, cluster.ErrUnreachable)

		time.Sleep(4 * time.Minute)

		if _, err := c.Nodes(ctx); err != nil {
			t.Errorf("the API server did not come back: %v", err)
		}
	})
}
