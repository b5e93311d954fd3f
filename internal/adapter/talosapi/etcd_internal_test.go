// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// What etcd says to a learner that is asked for more than its status and its own
// keys; what it says without a leader.
const (
	notForLearners = "etcdserver: rpc not supported for learner"
	noLeader       = "etcdserver: no leader"
)

func etcdStatus(learner bool) *machineapi.EtcdStatusResponse {
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{
		MemberStatus: &machineapi.EtcdMemberStatus{MemberId: 7, IsLearner: learner},
	}}}
}

// slowly answers after a second, which a call that is cancelled does not see.
func slowly[T any](answer T) func(context.Context) (T, error) {
	return func(ctx context.Context) (none T, err error) {
		select {
		case <-time.After(time.Second):
			return answer, nil
		case <-ctx.Done():
			return silence[T](ctx)
		}
	}
}

func TestEtcdOfALearnerIsItsStatus(t *testing.T) {
	type (
		members = *machineapi.EtcdMemberListResponse
		answer  = *machineapi.EtcdStatusResponse
	)

	listed := &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{
		Members: []*machineapi.EtcdMember{{Id: 7, Hostname: "cp-0", IsLearner: true}},
	}}}

	for name, test := range map[string]struct {
		machine nodeFake
		members int
		want    error
	}{
		"a learner": {machine: nodeFake{
			members: says[members](codes.Unavailable, notForLearners), status: slowly(etcdStatus(true)),
		}},
		"a learner behind a plain error": {machine: nodeFake{
			members: says[members](codes.Unknown, notForLearners), status: slowly(etcdStatus(true)),
		}},
		"a learner that lists members": {members: 1, machine: nodeFake{
			members: gives(listed), status: gives(etcdStatus(true)),
		}},
		"a learner that is silent apart from that": {machine: nodeFake{
			members: silence[members], status: gives(etcdStatus(true)),
		}},
		"a voter that lists no members": {want: cluster.ErrQuorum, machine: nodeFake{
			members: says[members](codes.Unavailable, noLeader), status: gives(etcdStatus(false)),
		}},
		"a member without a status": {want: cluster.ErrDenied, machine: nodeFake{
			members: silence[members], status: says[answer](codes.PermissionDenied, "not authorized"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				view, err := connect(t, &test.machine).Etcd(t.Context(), "10.5.0.2", true)
				if !errors.Is(err, test.want) {
					t.Fatalf("%v, want %v", err, test.want)
				}

				if test.want != nil {
					if view.Status.MemberID != 0 || view.Members != nil {
						t.Errorf("%+v beside an error", view)
					}

					return
				}

				if !view.Status.Learner || view.Status.MemberID != 7 || len(view.Members) != test.members {
					t.Errorf("got %+v", view)
				}
			})
		})
	}
}

// Without a status nothing else is of use, so that nobody waits for it.
func TestEtcdWithoutAStatusIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, &nodeFake{
			members: silence[*machineapi.EtcdMemberListResponse],
			status:  says[*machineapi.EtcdStatusResponse](codes.Unimplemented, "etcd status is only available on control plane nodes"),
		})
		started := time.Now()

		if _, err := c.Etcd(t.Context(), "10.5.0.2", true); !errors.Is(err, cluster.ErrUnsupported) || time.Since(started) > time.Second {
			t.Errorf("%v after %s", err, time.Since(started))
		}
	})
}

func TestEtcdOfALearnerIsNoResultForACallerWhoStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		c := connect(t, &nodeFake{
			members: silence[*machineapi.EtcdMemberListResponse],
			status:  gives(etcdStatus(true)),
		})

		if view, err := c.Etcd(ctx, "10.5.0.2", true); !errors.Is(err, context.DeadlineExceeded) || view.Status.Learner {
			t.Errorf("%+v, %v", view, err)
		}
	})
}
