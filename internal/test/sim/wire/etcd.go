// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"net"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// EtcdMemberList implements machine.MachineServiceServer.
func (m *machineService) EtcdMemberList(
	ctx context.Context, request *machine.EtcdMemberListRequest,
) (*machine.EtcdMemberListResponse, error) {
	ask := m.world.EtcdMembersOfAny
	if request.GetQueryLocal() {
		ask = m.world.EtcdMembers
	}

	members, err := ask(ctx, m.node)
	if err != nil {
		return nil, statusOf(err)
	}

	list := &machine.EtcdMembers{}

	for _, member := range members {
		list.LegacyMembers = append(list.LegacyMembers, member.Name)
		list.Members = append(list.Members, &machine.EtcdMember{
			Id: member.ID, Hostname: member.Name, IsLearner: member.Learner,
			PeerUrls:   []string{"https://" + net.JoinHostPort(member.Address, "2380")},
			ClientUrls: []string{"https://" + net.JoinHostPort(member.Address, "2379")},
		})
	}

	return &machine.EtcdMemberListResponse{Messages: []*machine.EtcdMembers{list}}, nil
}

// EtcdStatus implements machine.MachineServiceServer.
func (m *machineService) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdStatusResponse, error) {
	status, err := m.world.EtcdStatus(ctx, m.node)
	if err != nil {
		return nil, statusOf(err)
	}

	return &machine.EtcdStatusResponse{Messages: []*machine.EtcdStatus{{
		MemberStatus: &machine.EtcdMemberStatus{
			MemberId: status.Member, ProtocolVersion: status.Version, StorageVersion: status.Storage,
			DbSize: status.DBSize, DbSizeInUse: status.DBSizeInUse,
			Leader: status.Leader, RaftIndex: status.Index, RaftTerm: status.Term, RaftAppliedIndex: status.Applied,
			Errors: status.Errors, IsLearner: status.Learner,
		},
	}}}, nil
}

// EtcdAlarmList implements machine.MachineServiceServer.
func (m *machineService) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdAlarmListResponse, error) {
	alarms, err := m.world.EtcdAlarms(ctx, m.node)
	if err != nil {
		return nil, statusOf(err)
	}

	list := &machine.EtcdAlarm{}

	for _, alarm := range alarms {
		list.MemberAlarms = append(list.MemberAlarms, &machine.EtcdMemberAlarm{
			MemberId: alarm.Member,
			Alarm:    machine.EtcdMemberAlarm_AlarmType(machine.EtcdMemberAlarm_AlarmType_value[alarm.Alarm]),
		})
	}

	return &machine.EtcdAlarmListResponse{Messages: []*machine.EtcdAlarm{list}}, nil
}

// EtcdForfeitLeadership implements machine.MachineServiceServer.
func (m *machineService) EtcdForfeitLeadership(
	ctx context.Context, _ *machine.EtcdForfeitLeadershipRequest,
) (*machine.EtcdForfeitLeadershipResponse, error) {
	heir, err := m.world.ForfeitLeadership(ctx, m.node)
	if err != nil {
		return nil, statusOf(err)
	}

	return &machine.EtcdForfeitLeadershipResponse{
		Messages: []*machine.EtcdForfeitLeadership{{Member: heir}},
	}, nil
}
