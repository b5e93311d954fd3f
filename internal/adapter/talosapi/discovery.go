// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"net/netip"

	clusterpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/cluster"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// ClusterID is the ID that all machines of the cluster share. Every role may
// read it. It is empty where the configuration has none. It never changes, so
// it is asked for once: a machine that is booting would have none to tell.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	if known := c.clusterID.Load(); known != nil {
		return *known, nil
	}

	var spec clusterpb.InfoSpec
	if _, err := c.resource(ctx, "", kindClusterInfo(), "current", &spec); err != nil {
		return "", err
	}

	id := spec.GetClusterId()
	if id != "" {
		c.clusterID.Store(&id)
	}

	return id, nil
}

// Members lists the machines that discovery knows, as the endpoint sees them.
// The list lags behind reality by minutes.
func (c *Client) Members(ctx context.Context) ([]cluster.Member, error) {
	var members []cluster.Member

	err := c.resources(ctx, "", kindMember(), func(spec []byte) error {
		var member clusterpb.MemberSpec
		if err := proto.Unmarshal(spec, &member); err != nil {
			return err
		}

		found := cluster.Member{Hostname: member.GetHostname(), Role: role(int32(member.GetMachineType()))}

		for _, ip := range member.GetAddresses() {
			if address, ok := netip.AddrFromSlice(ip.GetIp()); ok {
				found.Addresses = append(found.Addresses, address.Unmap().String())
			}
		}

		members = append(members, found)

		return nil
	})

	return members, err
}
