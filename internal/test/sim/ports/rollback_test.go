// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func TestRollbackThroughThePort(t *testing.T) {
	inCluster(t, model.Options{}, func(simulated *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		means(t, c.Rollback(ctx, workerAt), cluster.ErrRefused)

		if err := c.Pull(ctx, workerAt, image, cluster.LifecycleAPI); err != nil {
			t.Fatal(err)
		}

		if done, err := c.Install(ctx, workerAt, image); err != nil || done.Exit != 0 {
			t.Fatalf("install: %+v, %v", done, err)
		}

		if err := c.Reboot(ctx, workerAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		simulated.World().SetFaults([]model.Fault{
			{Node: "worker-0", Step: model.StepRollback, Effect: model.EffectFail, Times: 1},
			{Node: "worker-0", Step: model.StepRollback, Effect: model.EffectConnectionLost, Times: 1},
		})
		means(t, c.Rollback(ctx, workerAt), cluster.ErrRefused)
		means(t, c.Rollback(ctx, workerAt), cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
		time.Sleep(10 * time.Minute)

		if machine, err := c.Machine(ctx, workerAt, nil); err != nil || machine.Talos.String() != "1.13.2" || machine.UpgradePending {
			t.Errorf("afterwards: %+v, %v", machine, err)
		}
	})
}

func TestLogsThroughThePort(t *testing.T) {
	inCluster(t, model.Options{Faults: ill("worker-0", model.StepKubelet, model.EffectNotReady)}, func(simulated *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		lines, err := c.WithRoles("os:reader").Logs(ctx, workerAt, "kubelet", 1)
		if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "is not ready") {
			t.Errorf("the kubelet says %q, %v", lines, err)
		}

		if lines, err := c.Logs(ctx, workerAt, "kubelet", -1); err != nil || len(lines) != 0 {
			t.Errorf("no lines: %q, %v", lines, err)
		}

		_, err = c.Logs(ctx, workerAt, "etcd", 5)
		means(t, err, cluster.ErrNotFound)

		if err := simulated.World().RebootByHand("worker-0", model.RebootForce); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Second)

		_, err = c.Logs(ctx, workerAt, "machined", 5)
		means(t, err, cluster.ErrUnreachable)
	})
}

func TestVersionOfEtcdThroughThePort(t *testing.T) {
	inCluster(t, model.Options{Talos: "1.10.7"}, func(_ *ports.Cluster, c *ports.Client) {
		if view, err := c.Etcd(context.Background(), firstAt, true); err != nil || view.Status.Version != "3.5.21" {
			t.Errorf("%+v, %v", view, err)
		}
	})
}
