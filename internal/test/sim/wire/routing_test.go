// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestWithoutMetadataTheEndpointAnswers(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		if name := r.hostname(r.client("")); name != "cp-0" {
			r.Fatalf("cp-0's endpoint says it is %s", name)
		}

		if name := r.hostname(r.client("-worker")); name != "worker-0" {
			r.Fatalf("worker-0's endpoint says it is %s", name)
		}
	})
}

func TestNodeMetadataReachesThatMachine(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 3, Workers: 2}, func(r *rig) {
		c := r.client("")

		response, err := c.MachineClient.Hostname(r.at("10.5.0.6"), &emptypb.Empty{})
		if err != nil {
			r.Fatal(err)
		}

		if message := response.GetMessages()[0]; message.GetHostname() != "worker-1" || message.GetMetadata() != nil {
			r.Fatalf("got %v", message)
		}

		_, err = c.Version(metadata.AppendToOutgoingContext(r.within(time.Minute), "node", "10.5.0.2", "node", "10.5.0.3"))
		r.wantCode("two values", err, codes.InvalidArgument, "node metadata must be single-valued")

		_, err = c.Version(r.at("10.5.0.2:50000"))
		r.wantCode("a port", err, codes.Internal, "invalid target")

		_, err = c.Version(r.at("10.5.0.99"))
		r.wantCode("nobody there", err, codes.Unavailable, "no route to host")
	})
}

func TestNodesMetadataReachesAllAndNamesThem(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 3, Workers: 1}, func(r *rig) {
		c := r.client("")
		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepObserve, Effect: model.EffectUnreachable}})

		if _, err := r.version(c, "10.5.0.5"); err == nil {
			r.Fatal("the machine answers although it should not")
		}

		response, err := c.Version(r.atAll("10.5.0.3", "10.5.0.5"))
		r.wantCode("one of two unreachable", err, codes.Unavailable, "connection refused")

		//nolint:staticcheck // what Talos sends
		if len(response.GetMessages()) != 1 || response.GetMessages()[0].GetMetadata().GetHostname() != "10.5.0.3" {
			r.Fatalf("got %v", response)
		}

		_, err = safe.StateGetByID[*runtime.MachineStatus](
			r.atAll("10.5.0.3"), c.COSI, runtime.MachineStatusID)
		r.wantCode("resources", err, codes.InvalidArgument, "one-2-many proxying is not supported")
	})
}

func TestWorkerEndpointDoesNotForward(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 2}, func(r *rig) {
		c := r.client("-worker")

		if version, err := r.version(c, "10.5.0.3"); err != nil || version != "v1.13.2" {
			r.Fatalf("its own address: %q, %v", version, err)
		}

		_, err := r.version(c, "10.5.0.2")
		r.wantCode("another machine", err, codes.PermissionDenied, "no request forwarding")

		_, err = c.EtcdMemberList(r.within(time.Minute), nil)
		r.wantCode("etcd on a worker", err, codes.Unimplemented, "only available on control plane nodes")
	})
}

func TestContextsThatMustNotConnect(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		for suffix, text := range map[string]string{
			"-expired": "tls: expired certificate",
			"-foreign": "certificate signed by unknown authority",
			"-dead":    "connection refused",
		} {
			_, err := r.client(suffix).Version(r.within(time.Minute))
			r.wantCode(suffix, err, codes.Unavailable, text)
		}
	})
}

func TestUnreachableMachineIsTriedAgainAfterAPause(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		c := r.client("")
		r.world.SetFaults([]model.Fault{{
			Node: "worker-0", Step: model.StepObserve, Effect: model.EffectUnreachable, Times: 1, For: 40 * time.Second,
		}})

		start := time.Now()

		var err error

		for time.Since(start) < 2*time.Minute {
			if _, err = r.version(c, "10.5.0.3"); err == nil {
				break
			}

			time.Sleep(500 * time.Millisecond)
		}

		if took := time.Since(start); err != nil || took < 40*time.Second || took > 56*time.Second {
			r.Fatalf("answers again after %s: %v", took, err)
		}
	})
}

func TestMembersAreTheSameEverywhere(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 2, Workers: 1}, func(r *rig) {
		c := r.client("")

		for _, ctx := range []context.Context{r.within(time.Minute), r.at("10.5.0.4")} {
			members, err := safe.StateListAll[*cluster.Member](ctx, c.COSI)
			if err != nil || members.Len() != 3 {
				r.Fatalf("%d members, %v", members.Len(), err)
			}

			last := members.Get(2).TypedSpec()
			if last.Hostname != "worker-0" || last.OperatingSystem != "Talos (v1.13.2)" || last.Addresses[0].String() != "10.5.0.4" {
				r.Fatalf("got %+v", last)
			}
		}
	})
}
