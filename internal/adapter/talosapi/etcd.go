// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Etcd is etcd as the control plane at the address sees it. It answers with the
// member list that it holds once it has caught up with the leader: without one
// it has no answer, and the lists of several differ only while members come and
// go. Of a learner, which refuses everything but its status and reads of its own
// keys (isRPCSupportedForLearner in etcd), the status alone is a result.
func (c *Client) Etcd(ctx context.Context, address string) (cluster.EtcdView, error) {
	var (
		view                            cluster.EtcdView
		statusErr, membersErr, alarmErr error
		group                           errgroup.Group
	)

	rest, cancel := context.WithCancel(ctx)
	defer cancel()

	// The parts write different fields, so no lock is needed. The status does
	// without the others, they are of no use without it.
	group.Go(func() error {
		if view.Status, statusErr = c.etcdStatus(ctx, address); statusErr != nil {
			cancel()
		}

		return nil
	})
	group.Go(func() error { view.Members, membersErr = c.etcdMembers(rest, address); return nil })
	group.Go(func() error { view.Alarms, alarmErr = c.etcdAlarms(rest, address); return nil })

	_ = group.Wait()

	if statusErr != nil {
		return cluster.EtcdView{}, statusErr
	}

	if err := cmp.Or(membersErr, alarmErr); err != nil && (!view.Status.Learner || ctx.Err() != nil) {
		return cluster.EtcdView{}, err
	}

	return view, nil
}

// ForfeitLeadership makes the member at the address hand over etcd leadership.
func (c *Client) ForfeitLeadership(ctx context.Context, address string) error {
	op := operation{
		what: "move etcd leadership away from " + place(address), node: address, timeout: readTimeout, mutates: true,
	}

	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		_, err := api.MachineClient.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})

		return err
	})
}

func (c *Client) etcdMembers(ctx context.Context, address string) ([]cluster.EtcdMember, error) {
	var answer *machineapi.EtcdMemberListResponse

	op := operation{what: "list the etcd members of " + place(address), node: address, timeout: readTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		// Without QueryLocal the node would ask any control plane.
		answer, err = api.MachineClient.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})

		return err
	})
	if err != nil {
		return nil, err
	}

	var members []cluster.EtcdMember

	for _, message := range answer.GetMessages() {
		for _, member := range message.GetMembers() {
			members = append(members, cluster.EtcdMember{
				ID:            member.GetId(),
				Name:          member.GetHostname(),
				Learner:       member.GetIsLearner(),
				PeerAddresses: hosts(member.GetPeerUrls()),
			})
		}
	}

	return members, nil
}

func (c *Client) etcdStatus(ctx context.Context, address string) (cluster.EtcdStatus, error) {
	var answer *machineapi.EtcdStatusResponse

	op := operation{what: "read the etcd status of " + place(address), node: address, timeout: readTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		answer, err = api.MachineClient.EtcdStatus(ctx, &emptypb.Empty{})

		return err
	})
	if err != nil {
		return cluster.EtcdStatus{}, err
	}

	if len(answer.GetMessages()) == 0 || answer.GetMessages()[0].GetMemberStatus() == nil {
		return cluster.EtcdStatus{}, fmt.Errorf("unable to %s: the answer is empty", op.what)
	}

	status := answer.GetMessages()[0].GetMemberStatus()

	return cluster.EtcdStatus{
		MemberID: status.GetMemberId(),
		Leader:   status.GetLeader(),
		Term:     status.GetRaftTerm(),
		Index:    status.GetRaftIndex(),
		Applied:  status.GetRaftAppliedIndex(),
		Learner:  status.GetIsLearner(),
		Errors:   slices.Clone(status.GetErrors()),
		DBSize:   status.GetDbSize(),
		Version:  status.GetProtocolVersion(),
	}, nil
}

func (c *Client) etcdAlarms(ctx context.Context, address string) ([]string, error) {
	var answer *machineapi.EtcdAlarmListResponse

	op := operation{what: "list the etcd alarms of " + place(address), node: address, timeout: readTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		answer, err = api.MachineClient.EtcdAlarmList(ctx, &emptypb.Empty{})

		return err
	})
	if err != nil {
		return nil, err
	}

	var alarms []string

	for _, message := range answer.GetMessages() {
		for _, alarm := range message.GetMemberAlarms() {
			if alarm.GetAlarm() != machineapi.EtcdMemberAlarm_NONE {
				alarms = append(alarms, fmt.Sprintf("%s on member %x", alarm.GetAlarm(), alarm.GetMemberId()))
			}
		}
	}

	return alarms, nil
}

// hosts are the hosts of URLs such as https://10.5.0.2:2380.
func hosts(urls []string) []string {
	var names []string

	for _, text := range urls {
		if parsed, err := url.Parse(text); err == nil && parsed.Hostname() != "" {
			names = append(names, parsed.Hostname())
		}
	}

	return names
}
