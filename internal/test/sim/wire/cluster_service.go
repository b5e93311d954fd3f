// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	healthTimeout = 5 * time.Minute
	healthPause   = 5037 * time.Millisecond
)

// clusterService is cluster.ClusterService: what "talosctl health" asks.
type clusterService struct {
	cluster.UnimplementedClusterServiceServer

	world *model.World
	role  model.Role
}

// HealthCheck implements cluster.ClusterServiceServer: it waits until all
// machines are ready, for as long as the caller allows in simulated time.
func (c *clusterService) HealthCheck(
	request *cluster.HealthCheckRequest, stream grpc.ServerStreamingServer[cluster.HealthCheckProgress],
) error {
	if c.role != model.ControlPlane {
		return status.Error(codes.Unimplemented, "HealthCheck is only available on control plane nodes")
	}

	limit := request.GetWaitTimeout().AsDuration()
	if limit <= 0 {
		limit = healthTimeout
	}

	for began := c.world.Now(); ; {
		unhealthy := c.unhealthy()

		message := "waiting for all machines to be ready: OK"
		if unhealthy != "" {
			message = "waiting for all machines to be ready: " + unhealthy
		}

		if err := stream.Send(&cluster.HealthCheckProgress{Message: message}); err != nil {
			return err
		}

		if unhealthy == "" {
			return nil
		}

		if c.world.Now()-began >= limit {
			return status.Error(codes.DeadlineExceeded, unhealthy)
		}

		if err := c.pause(stream.Context()); err != nil {
			return err
		}
	}
}

func (c *clusterService) pause(ctx context.Context) error {
	return statusOf(c.world.Clock().Sleep(ctx, healthPause))
}

func (c *clusterService) unhealthy() string {
	if !c.world.EtcdQuorum() {
		return "etcd has no quorum"
	}

	for _, state := range c.world.Nodes() {
		if !state.Reachable || state.Stage != model.StageRunning || !state.Ready {
			return fmt.Sprintf("%s is %s and not ready", state.Name, state.Stage)
		}
	}

	return ""
}
