// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestMachinesOfIPv6AreReachedByTheirAddress(t *testing.T) {
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

func TestMachinesAreReachedByEachInnerAddress(t *testing.T) {
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

func TestTargetsThatAreNotAnAddress(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, IPv6: true}, func(r *rig) {
		c := r.client("")

		for _, target := range []string{"", "10.5.0.2:50000", "[fd05::2]:50000", "cp-0:50000", ":50000"} {
			_, err := c.Version(r.at(target))
			r.wantCode(target, err, codes.Internal, "invalid target")
		}
	})
}

func TestProviderReachesMachinesOfIPv6(t *testing.T) {
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
			machine, err := c.Machine(r.Context(), member.Addresses[0], nil)
			if err != nil || machine.NodeName != member.Hostname {
				r.Errorf("%s: %+v, %v", member.Addresses[0], machine, err)
			}
		}
	})
}
