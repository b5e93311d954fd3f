// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// health returns how many messages came, and how the check ended.
func (r *rig) health(suffix string, limit time.Duration) (int, error) {
	stream, err := r.client(suffix).ClusterClient.HealthCheck(r.within(time.Hour),
		&cluster.HealthCheckRequest{WaitTimeout: durationpb.New(limit)})
	if err != nil {
		return 0, err
	}

	for count := 0; ; count++ {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return count, nil
		} else if err != nil {
			return count, err
		}
	}
}

func TestHealthCheckWaitsForMachines(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		if count, err := r.health("-reader", time.Minute); err != nil || count != 1 {
			r.Fatalf("a healthy cluster: %d messages, %v", count, err)
		}

		if _, err := r.world.Reboot(r.Context(), "worker-0", model.RebootDefault); err != nil {
			r.Fatal(err)
		}

		time.Sleep(5 * time.Second)

		_, err := r.health("", 10*time.Second)
		r.wantCode("too short", err, codes.DeadlineExceeded, "worker-0")

		if count, err := r.health("", 10*time.Minute); err != nil || count < 5 {
			r.Fatalf("a machine reboots: %d messages, %v", count, err)
		}

		_, err = r.health("-worker", time.Minute)
		r.wantCode("from a worker", err, codes.Unimplemented, "only available on control plane nodes")
	})
}
