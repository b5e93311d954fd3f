// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// A real machine returns the text of its etcd client's error, without its code.
func TestEtcd_Learner(t *testing.T) {
	const refused = "rpc not supported for learner"

	inBubble(t, model.Options{ControlPlanes: 3, Faults: struck("cp-1", model.StepEtcd, model.EffectLearner)}, func(r *rig) {
		c := r.client("").MachineClient

		members := func(address string, local bool) func(context.Context) error {
			return func(ctx context.Context) error {
				response, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: local})
				if err == nil && !response.GetMessages()[0].GetMembers()[1].GetIsLearner() {
					r.Errorf("%s does not list a learner: %v", address, response)
				}

				return err
			}
		}

		for name, test := range map[string]struct {
			address string
			ask     func(context.Context) error
			code    codes.Code
			text    string
		}{
			"its own members":     {secondAddress, members(secondAddress, true), codes.Unknown, refused},
			"anybody's members":   {secondAddress, members(secondAddress, false), codes.OK, ""},
			"a voter's members":   {firstAddress, members(firstAddress, true), codes.OK, ""},
			"its own alarms":      {secondAddress, func(ctx context.Context) error { _, err := c.EtcdAlarmList(ctx, &emptypb.Empty{}); return err }, codes.Unknown, refused},
			"a voter's alarms":    {firstAddress, func(ctx context.Context) error { _, err := c.EtcdAlarmList(ctx, &emptypb.Empty{}); return err }, codes.OK, ""},
			"its own status":      {secondAddress, func(ctx context.Context) error { _, err := c.EtcdStatus(ctx, &emptypb.Empty{}); return err }, codes.OK, ""},
			"leadership it lacks": {secondAddress, func(ctx context.Context) error { _, err := c.EtcdForfeitLeadership(ctx, nil); return err }, codes.OK, ""},
		} {
			r.wantCode(name, test.ask(r.at(test.address)), test.code, test.text)
		}
	})
}

// snapshot takes a snapshot of etcd, and returns it with the length of its longest piece.
func (r *rig) snapshot(c *client.Client, address string) (taken []byte, longest int, err error) {
	stream, err := c.MachineClient.EtcdSnapshot(r.at(address), &machine.EtcdSnapshotRequest{})
	if err != nil {
		return nil, 0, err
	}

	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return taken, longest, nil
		}

		if err != nil {
			return taken, longest, err
		}

		taken, longest = append(taken, piece.GetBytes()...), max(longest, len(piece.GetBytes()))
	}
}

func intact(snapshot []byte) bool {
	if len(snapshot)%512 != sha256.Size {
		return false
	}

	body := snapshot[:len(snapshot)-sha256.Size]

	return sha256.Sum256(body) == [sha256.Size]byte(snapshot[len(body):])
}

func TestEtcd_SnapshotByRole(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 2, Workers: 1}, func(r *rig) {
		for _, suffix := range []string{"", wire.ContextOperator, wire.ContextBackup} {
			// Through the endpoint of another machine as well.
			for _, address := range []string{firstAddress, secondAddress} {
				taken, longest, err := r.snapshot(r.client(suffix), address)
				if err != nil || !intact(taken) || len(taken) != model.SnapshotSize+sha256.Size || longest != 32<<10 {
					r.Errorf("%q of %s: %d bytes, %v", suffix, address, len(taken), err)
				}
			}
		}

		_, _, err := r.snapshot(r.client(wire.ContextReader), firstAddress)
		r.wantCode("a reader", err, codes.PermissionDenied, "not authorized")

		_, _, err = r.snapshot(r.client(""), "10.5.0.4")
		r.wantCode("a worker", err, codes.Unimplemented, "is only available on control plane nodes")

		backup := r.client(wire.ContextBackup)

		if _, err := backup.MachineClient.EtcdStatus(r.at(firstAddress), &emptypb.Empty{}); err != nil {
			r.Errorf("the backup asks etcd: %v", err)
		}

		_, err = r.version(backup, firstAddress)
		r.wantCode("the backup asks more", err, codes.PermissionDenied, "not authorized")

		if want := "/machine.MachineService/EtcdSnapshot os:etcd:backup OK"; !slices.Contains(r.log.calls(), want) {
			r.Errorf("%q is not among the calls: %q", want, r.log.calls())
		}
	})
}

func TestEtcd_SnapshotFaults(t *testing.T) {
	for effect, test := range map[model.Effect]struct {
		code codes.Code
		text string
		size int
	}{
		model.EffectFail:           {codes.Unknown, "failed reading etcd snapshot", 0},
		model.EffectCut:            {codes.OK, "", model.SnapshotSize / 2},
		model.EffectConnectionLost: {codes.Unavailable, "EOF", model.SnapshotSize / 2},
		model.EffectCorrupt:        {codes.OK, "", model.SnapshotSize + sha256.Size},
	} {
		inBubble(t, model.Options{ControlPlanes: 1, Faults: struck("cp-0", model.StepEtcdSnapshot, effect)}, func(r *rig) {
			taken, _, err := r.snapshot(r.client(""), firstAddress)
			r.wantCode(string(effect), err, test.code, test.text)

			if len(taken) != test.size || intact(taken) {
				r.Errorf("%s: %d bytes, intact %t", effect, len(taken), intact(taken))
			}
		})
	}
}

func TestEtcd_StalledSnapshotEndsWithItsCaller(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Faults: struck("cp-0", model.StepEtcdSnapshot, model.EffectStall)}, func(r *rig) {
		begun := time.Now()

		taken, _, err := r.snapshot(r.client(""), firstAddress)
		r.wantCode("a stall", err, codes.DeadlineExceeded, "")

		if len(taken) != model.SnapshotSize/2 || time.Since(begun) < 5*time.Minute {
			r.Errorf("%d bytes in %s", len(taken), time.Since(begun))
		}
	})
}

func TestEtcd_Faults(t *testing.T) {
	for effect, test := range map[model.Effect]struct {
		code  codes.Code
		shows func(*machine.EtcdMemberStatus) bool
	}{
		model.EffectAlarmNoSpace: {codes.OK, func(s *machine.EtcdMemberStatus) bool { return len(s.GetErrors()) == 1 }},
		model.EffectAlarmCorrupt: {codes.OK, func(s *machine.EtcdMemberStatus) bool { return len(s.GetErrors()) == 1 }},
		model.EffectLagging:      {codes.OK, func(s *machine.EtcdMemberStatus) bool { return s.GetRaftIndex()-s.GetRaftAppliedIndex() == 5000 }},
		model.EffectBig:          {codes.OK, func(s *machine.EtcdMemberStatus) bool { return s.GetDbSize() == 1996<<20 }},
		model.EffectNoLeader:     {codes.OK, func(s *machine.EtcdMemberStatus) bool { return s.GetLeader() == 0 }},
		model.EffectLearner:      {codes.OK, func(s *machine.EtcdMemberStatus) bool { return s.GetIsLearner() }},
		model.EffectReports:      {codes.OK, func(s *machine.EtcdMemberStatus) bool { return len(s.GetErrors()) == 1 }},
		model.EffectSilent:       {codes.Unavailable, nil},
	} {
		inBubble(t, model.Options{ControlPlanes: 3, Faults: struck("cp-1", model.StepEtcd, effect)}, func(r *rig) {
			c := r.client("-reader")

			response, err := c.MachineClient.EtcdStatus(r.at(secondAddress), &emptypb.Empty{})
			r.wantCode(string(effect), err, test.code, "")

			if err == nil && !test.shows(response.GetMessages()[0].GetMemberStatus()) {
				r.Errorf("%s does not show: %v", effect, response)
			}

			alarms, err := c.MachineClient.EtcdAlarmList(r.at(firstAddress), &emptypb.Empty{})
			if err != nil {
				r.Fatal(err)
			}

			want := map[model.Effect]machine.EtcdMemberAlarm_AlarmType{
				model.EffectAlarmNoSpace: machine.EtcdMemberAlarm_NOSPACE, model.EffectAlarmCorrupt: machine.EtcdMemberAlarm_CORRUPT,
			}[effect]

			if got := alarms.GetMessages()[0].GetMemberAlarms(); (want == 0) != (len(got) == 0) || len(got) == 1 && got[0].GetAlarm() != want {
				r.Errorf("%s: alarms %v", effect, got)
			}
		})
	}
}
