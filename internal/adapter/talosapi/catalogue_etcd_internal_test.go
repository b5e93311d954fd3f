// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// member is a voter that says of itself what it is told to.
func member(status *machineapi.EtcdMemberStatus) *machineapi.EtcdStatusResponse {
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: status}}}
}

// etcdNode is a control plane that is well, but for what is replaced.
func etcdNode(replaced map[string]wireAnswer) *wireNode {
	node := &wireNode{answers: map[string]wireAnswer{
		wireVersion: sends(&machineapi.VersionResponse{}),
		wireStatus:  sends(member(&machineapi.EtcdMemberStatus{MemberId: 7, Leader: 7})),
		wireMembers: sends(&machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{
			Members: []*machineapi.EtcdMember{{Id: 7, Hostname: "cp-0"}},
		}}}),
	}}

	for method, answer := range replaced {
		node.answers[method] = answer
	}

	return node
}

// refusedUpgrade has a node refuse a legacy upgrade before it has done anything.
func refusedUpgrade(t *testing.T, code codes.Code, text string) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{wireUpgrade: ends(code, text)}}

		_, err := node.client(t).Upgrade(t.Context(), catalogueNode, catalogueWant, cluster.RebootDefault, nil)
		only(cluster.ErrRefused, text, catalogueWant).check(t, text, err)

		if asked, followed := len(node.of(wireUpgrade)), len(node.of(wireEvents)); asked != 1 || followed != 0 {
			t.Errorf("asked for %d times and followed %d times", asked, followed)
		}
	})
}

func TestCatalogue12LegacyEtcdChecks(t *testing.T) {
	for _, text := range []string{
		"error validating etcd for upgrade: etcd member count(2) is insufficient to maintain quorum if upgrade commences",
		"error validating etcd for upgrade: etcd member 0000000000000007 is not started, all members must be running to perform an upgrade",
		"error validating etcd for upgrade: etcd member 0000000000000007 is not healthy; all members must be healthy to perform an upgrade: context deadline exceeded",
	} {
		refusedUpgrade(t, codes.Unknown, text)
	}
}

func TestCatalogue13UpgradeMutexHeld(t *testing.T) {
	refusedUpgrade(t, codes.Unknown, "failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: mutex: Locked by another session")
	refusedUpgrade(t, codes.Unknown, "failed to create etcd client: error building etcd client: context deadline exceeded")
}

// Without a leader nobody lists members. Of a member that answers all the same,
// its status says that it follows nobody.
func TestCatalogue14EtcdWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := etcdNode(map[string]wireAnswer{wireMembers: ends(codes.Unavailable, noLeader)}).client(t).Etcd(t.Context(), catalogueNode, true)
		only(cluster.ErrQuorum, noLeader).check(t, "no leader", err)
	})

	synctest.Test(t, func(t *testing.T) {
		_, err := etcdNode(map[string]wireAnswer{wireMembers: ends(codes.DeadlineExceeded, "context deadline exceeded")}).client(t).Etcd(t.Context(), catalogueNode, true)
		only(cluster.ErrUnreachable).check(t, "in time", err)
	})

	synctest.Test(t, func(t *testing.T) {
		alone := member(&machineapi.EtcdMemberStatus{MemberId: 7, Errors: []string{noLeader}})

		view, err := etcdNode(map[string]wireAnswer{wireStatus: sends(alone)}).client(t).Etcd(t.Context(), catalogueNode, true)
		if err != nil || view.Status.Leader != 0 || !slices.Equal(view.Status.Errors, []string{noLeader}) {
			t.Errorf("got %+v, %v; want a member that follows nobody", view, err)
		}
	})
}

// A database without space raises an alarm, which the member repeats.
func TestCatalogue15NoSpaceAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const repeated = "memberID:7 alarm:NOSPACE "

		view, err := etcdNode(map[string]wireAnswer{
			wireStatus: sends(member(&machineapi.EtcdMemberStatus{MemberId: 7, Leader: 7, Errors: []string{repeated}})),
		}).client(t).Etcd(t.Context(), catalogueNode, true)

		if err != nil || !slices.Equal(view.Status.Errors, []string{repeated}) {
			t.Errorf("got %+v, %v; want the alarm", view, err)
		}
	})

	// The lock of a legacy upgrade is a write. Talos may hand on the code of etcd.
	for _, code := range []codes.Code{codes.Unknown, codes.ResourceExhausted} {
		refusedUpgrade(t, code, "failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: etcdserver: mvcc: database space exceeded")
	}
}

// A learner refuses linearizable reads; what it says of itself is enough.
func TestCatalogue16Learner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := ends(codes.Unavailable, notForLearners)

		view, err := etcdNode(map[string]wireAnswer{
			wireStatus:  sends(member(&machineapi.EtcdMemberStatus{MemberId: 7, Leader: 1, IsLearner: true})),
			wireMembers: refusal,
		}).client(t).Etcd(t.Context(), catalogueNode, true)

		if err != nil || !view.Status.Learner || !view.Mute() {
			t.Errorf("got %+v, %v; want a learner", view, err)
		}
	})
}

// A member that is on its way back does not answer yet. That is no refusal, and
// no word about quorum.
func TestCatalogue17MemberSlowToRejoin(t *testing.T) {
	for text, code := range map[string]codes.Code{
		"failed to create etcd client: error building etcd client: context deadline exceeded":                                                                codes.Unknown,
		"failed to create etcd client: context deadline exceeded":                                                                                            codes.Unavailable,
		`connection error: desc = "transport: Error while dialing: dial unix /system/etcd.sock: connect: connection refused"`:                                codes.Unavailable,
		`rpc error: code = Unavailable desc = last connection error: connection error: desc = "transport: Error while dialing: connect: connection refused"`: codes.Unavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := etcdNode(map[string]wireAnswer{wireStatus: ends(code, text)}).client(t).Etcd(t.Context(), catalogueNode, true)
			if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrQuorum) || !cluster.Heals(err) || !strings.Contains(err.Error(), catalogueNode) {
				t.Errorf("%s: %v, want it unreachable", text, err)
			}
		})
	}
}
