// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// A real machine passes on the text of what its etcd client says, and no code of
// its own.
func TestLearnerOnTheWire(t *testing.T) {
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
