// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	ports "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestDirector_IPv6MachinesAreReachedByTheirAddress(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, IPv6: true}, func(r *rig) {
		const worker = "fd05::3"

		c := r.client("")

		members, err := safe.StateListAll[*cluster.Member](r.within(time.Minute), c.COSI)
		if err != nil || members.Len() != 2 || members.Get(1).TypedSpec().Addresses[0].String() != worker {
			r.Fatalf("members %v, %v", members, err)
		}

		for _, target := range []string{worker, "[fd05::3]", "fd05:0::3"} {
			if version, err := r.version(c, target); err != nil || version != "v1.13.2" {
				r.Errorf("%s: %q, %v", target, version, err)
			}
		}

		several, err := c.Version(r.atAll("fd05::2", worker))
		if err != nil || len(several.GetMessages()) != 2 {
			r.Errorf("both: %v, %v", several, err)
		}

		list, err := c.EtcdMemberList(r.at("fd05::2"), nil)
		if err != nil || list.GetMessages()[0].GetMembers()[0].GetPeerUrls()[0] != "https://[fd05::2]:2380" {
			r.Errorf("etcd: %v, %v", list, err)
		}

		_, err = c.Version(r.at("fd05::99"))
		r.wantCode("nobody there", err, codes.Unavailable, "dial tcp [fd05::99]:50000: connect: no route to host")
	})
}

func TestDirector_MachinesAreReachedByEachInnerAddress(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, ManyAddresses: true}, func(r *rig) {
		c := r.client("")

		members, err := safe.StateListAll[*cluster.Member](r.within(time.Minute), c.COSI)
		if err != nil || members.Len() != 2 {
			r.Fatalf("members %v, %v", members, err)
		}

		var addresses []string
		for _, address := range members.Get(1).TypedSpec().Addresses {
			addresses = append(addresses, address.String())
		}

		if !slices.Equal(addresses, []string{"203.0.113.3", "10.5.0.3", "fd05::3"}) {
			r.Fatalf("the worker has %q", addresses)
		}

		for _, inner := range addresses[1:] {
			if version, err := r.version(c, inner); err != nil || version != "v1.13.2" {
				r.Errorf("%s: %q, %v", inner, version, err)
			}
		}

		_, err = r.version(c, addresses[0])
		r.wantCode("from outside", err, codes.Unavailable, "dial tcp 203.0.113.3:50000: connect: no route to host")
	})
}

func TestDirector_TargetsThatAreNoAddress(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, IPv6: true}, func(r *rig) {
		c := r.client("")

		for _, target := range []string{"", "10.5.0.2:50000", "[fd05::2]:50000", "cp-0:50000", ":50000"} {
			_, err := c.Version(r.at(target))
			r.wantCode(target, err, codes.Internal, "invalid target")
		}
	})
}

func TestDirector_ProviderReachesIPv6Machines(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, IPv6: true}, func(r *rig) {
		text, err := r.server.Talosconfig()
		if err != nil {
			r.Fatal(err)
		}

		config, err := talosapi.ParseConfig(text, r.world.ClusterName())
		if err != nil {
			r.Fatal(err)
		}

		c, err := talosapi.New(config, talosapi.Options{DialContext: r.server.Dialer(), UserAgent: "test"})
		if err != nil {
			r.Fatal(err)
		}

		defer func() { _ = c.Close() }()

		members, err := c.Members(r.Context())
		if err != nil || len(members) != 2 {
			r.Fatalf("%v, %v", members, err)
		}

		for _, member := range members {
			machine, err := c.Machine(r.Context(), member.Addresses[0], nil, ports.Everything)
			if err != nil || machine.NodeName != member.Hostname {
				r.Errorf("%s: %+v, %v", member.Addresses[0], machine, err)
			}
		}
	})
}

func TestDirector_WithoutMetadataTheEndpointAnswers(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		if name := r.hostname(r.client("")); name != "cp-0" {
			r.Fatalf("cp-0's endpoint says it is %s", name)
		}

		if name := r.hostname(r.client("-worker")); name != "worker-0" {
			r.Fatalf("worker-0's endpoint says it is %s", name)
		}
	})
}

func TestDirector_NodeMetadataReachesThatMachine(t *testing.T) {
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

func TestDirector_NodesMetadataReachesAllAndNamesThem(t *testing.T) {
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

func TestDirector_WorkerEndpointDoesNotForward(t *testing.T) {
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

func TestDirector_UnusableContextsFailToConnect(t *testing.T) {
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

func TestDirector_UnreachableMachineIsTriedAgainAfterAPause(t *testing.T) {
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

func TestDirector_MembersAreTheSameEverywhere(t *testing.T) {
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

// TestDirector_SilentMachineLetsCallersWait, as a proxy does whose dialling is not answered. Later callers are
// refused at once, until it dials again.
func TestDirector_SilentMachineLetsCallersWait(t *testing.T) {
	off := model.Fault{Node: "worker-0", Step: model.StepObserve, Effect: model.EffectUnreachable}

	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Silent: true, Faults: []model.Fault{off}}, func(r *rig) {
		const worker = "10.5.0.3"

		c := r.client("")

		// The first call makes it silent.
		_, _ = r.version(c, worker)

		for _, want := range []time.Duration{20 * time.Second, 0} {
			begun := time.Now()

			_, err := r.version(c, worker)
			r.wantCode("a silent machine", err, codes.Unavailable, "dial tcp 10.5.0.3:50000: i/o timeout")

			if took := time.Since(begun).Round(time.Second); took != want {
				r.Errorf("it took %s, want %s", took, want)
			}
		}

		r.world.SetFaults(nil)
		time.Sleep(time.Minute)

		if version, err := r.version(c, worker); err != nil || version != "v1.13.2" {
			r.Errorf("when it answers again: %q, %v", version, err)
		}
	})
}

// TestDirector_SilentEndpointIsDialledUntilTheCallerGivesUp: nothing refuses the connection.
func TestDirector_SilentEndpointIsDialledUntilTheCallerGivesUp(t *testing.T) {
	off := model.Fault{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}

	inBubble(t, model.Options{ControlPlanes: 1, Silent: true, Faults: []model.Fault{off}}, func(r *rig) {
		c := r.client("")

		if err := c.Reboot(r.at("10.5.0.2")); err != nil {
			r.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		begun := time.Now()

		_, err := c.Version(r.within(7 * time.Second))
		r.wantCode("a machine that is off", err, codes.DeadlineExceeded, "")

		if took := time.Since(begun); took != 7*time.Second {
			r.Errorf("it took %s", took)
		}
	})
}

func TestDirector_OtherFacesAreAskedBeforeAChange(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		c := r.client("")

		if _, err := r.version(c, "10.5.0.2"); err != nil {
			r.Fatal(err)
		}

		if _, err := r.pull(c, "10.5.0.2", factoryImage); err != nil {
			r.Fatal(err)
		}

		var kinds []history.Kind
		for _, event := range r.log.soFar() {
			kinds = append(kinds, event.Kind)
		}

		want := []history.Kind{
			history.KindNode, history.KindRead, history.KindRPC, kindSync, history.KindPull, history.KindRPC,
		}
		if !slices.Equal(kinds, want) {
			r.Fatalf("got %v, want %v", kinds, want)
		}
	})
}

func TestDirector_SameSeedSameHistory(t *testing.T) {
	run := func() []string {
		var lines []string

		inBubble(t, model.Options{ControlPlanes: 3, Workers: 1, Seed: 11}, func(r *rig) {
			c := r.client("")

			for _, target := range []string{"10.5.0.5", "10.5.0.2"} {
				if _, err := r.pull(c, target, factoryImage); err != nil {
					r.Fatal(err)
				}

				if exit, err := r.install(c, target, factoryImage); err != nil || exit != 0 {
					r.Fatalf("install: %d, %v", exit, err)
				}

				if err := c.Reboot(r.at(target)); err != nil {
					r.Fatal(err)
				}

				r.until(target, "down", 1<<40, down)
				r.until(target, "ready", 1<<40, ready)
			}

			for _, event := range r.log.soFar() {
				// The end of a call and its effects happen at the same instant, in either order.
				if event.Kind != history.KindRPC {
					lines = append(lines, fmt.Sprint(event.Node, event.Kind, event.Detail))
				}
			}
		})

		return lines
	}

	if first, second := run(), run(); !slices.Equal(first, second) {
		t.Fatalf("one seed, two histories:\n%v\n---\n%v", first, second)
	}
}
