// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The messages of etcd to a learner that is asked for more than its status and its own keys, and without a leader.
const (
	notForLearners = "etcdserver: rpc not supported for learner"
	noLeader       = "etcdserver: no leader"
)

func etcdStatus(learner bool) *machineapi.EtcdStatusResponse {
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{
		MemberStatus: &machineapi.EtcdMemberStatus{MemberId: 7, IsLearner: learner},
	}}}
}

// slowly answers after a second, unless the call is canceled before.
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

func TestEtcd_OfALearnerIsItsStatus(t *testing.T) {
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

// Without a status, nothing else is useful, so the call does not wait for it.
func TestEtcd_WithoutAStatusIsNotWaitedFor(t *testing.T) {
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

func TestEtcd_OfALearnerIsNoResultForACallerWhoStopped(t *testing.T) {
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

// tape is a node that streams a snapshot of etcd, with a pause before each piece, and closes the stream when its
// caller does.
type tape struct {
	machineapi.MachineServiceClient
	grpc.ClientStream

	ctx    context.Context
	pieces []piece
	end    error
	// endless keeps the stream open after the last piece.
	endless bool
	opening error
}

type piece struct {
	pause   time.Duration
	bytes   string
	trouble string
}

func (t *tape) EtcdSnapshot(
	ctx context.Context, _ *machineapi.EtcdSnapshotRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[common.Data], error) {
	t.ctx = ctx

	return t, t.opening
}

func (t *tape) Recv() (*common.Data, error) {
	if len(t.pieces) == 0 {
		if t.endless {
			<-t.ctx.Done()

			return nil, status.FromContextError(t.ctx.Err()).Err()
		}

		return nil, t.end
	}

	next := t.pieces[0]
	t.pieces = t.pieces[1:]

	select {
	case <-time.After(next.pause):
	case <-t.ctx.Done():
		return nil, status.FromContextError(t.ctx.Err()).Err()
	}

	data := &common.Data{Bytes: []byte(next.bytes)}
	if next.trouble != "" {
		data.Metadata = &common.Metadata{Error: next.trouble} //nolint:staticcheck // what a proxy writes
	}

	return data, nil
}

// sink pauses before each write, and fails once it is full.
type sink struct {
	bytes.Buffer

	pause time.Duration
	room  int
}

var errFull = errors.New("no space left on device")

func (s *sink) Write(data []byte) (int, error) {
	time.Sleep(s.pause)

	if s.room > 0 && s.Len()+len(data) > s.room {
		return 0, errFull
	}

	return s.Buffer.Write(data)
}

func TestSnapshot_IsHandedOnAsItComes(t *testing.T) {
	const hour = time.Hour

	denied := status.Error(codes.PermissionDenied, "not authorized")
	lost := status.Error(codes.Unavailable, "connection reset")

	for name, test := range map[string]struct {
		tape  tape
		sink  sink
		want  string
		fails codes.Code
		says  string
		// after is how long the call takes.
		after time.Duration
	}{
		"pieces":                   {tape: tape{pieces: []piece{{bytes: "one"}, {bytes: "two"}}, end: io.EOF}, want: "onetwo"},
		"nothing":                  {tape: tape{end: io.EOF}},
		"empty pieces in between":  {tape: tape{pieces: []piece{{}, {bytes: "one"}, {}, {bytes: "two"}}, end: io.EOF}, want: "onetwo"},
		"a slow node":              {tape: tape{pieces: []piece{{50 * time.Second, "one", ""}, {50 * time.Second, "two", ""}}, end: io.EOF}, want: "onetwo", after: 100 * time.Second},
		"a slow disk":              {tape: tape{pieces: []piece{{bytes: "one"}, {bytes: "two"}}, end: io.EOF}, sink: sink{pause: hour}, want: "onetwo", after: 2 * hour},
		"denied":                   {tape: tape{opening: denied}, fails: codes.PermissionDenied, says: "not authorized"},
		"broken":                   {tape: tape{pieces: []piece{{bytes: "one"}}, end: lost}, want: "one", fails: codes.Unavailable, says: "reset"},
		"an error beside the data": {tape: tape{pieces: []piece{{bytes: "one"}, {trouble: "context deadline exceeded"}}, end: io.EOF}, want: "one", fails: codes.Unavailable, says: "deadline"},
		"never anything":           {tape: tape{endless: true}, fails: codes.DeadlineExceeded, says: "no data came for 1m0s, after 0 bytes", after: time.Minute},
		"stalled":                  {tape: tape{pieces: []piece{{30 * time.Second, "one", ""}}, endless: true}, want: "one", fails: codes.DeadlineExceeded, says: "after 3 bytes", after: 90 * time.Second},
		"a stall with empty pieces": {
			tape: tape{pieces: []piece{{bytes: "one"}, {pause: 40 * time.Second}, {pause: 40 * time.Second}}, endless: true},
			want: "one", fails: codes.DeadlineExceeded, says: "after 3 bytes", after: time.Minute,
		},
		"a full disk": {tape: tape{pieces: []piece{{bytes: "one"}, {bytes: "two"}}, end: io.EOF}, sink: sink{room: 4}, want: "one", fails: codes.Unknown, says: "no space"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := &counter{to: &test.sink}
				start := time.Now()

				err := receive(t.Context(), &test.tape, target)
				if status.Code(err) != test.fails || err != nil && !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want %s, saying %q", err, test.fails, test.says)
				}

				if got := test.sink.String(); got != test.want || target.count != int64(len(test.want)) {
					t.Errorf("%q and a count of %d, want %q", got, target.count, test.want)
				}

				if (target.failure != nil) != (test.sink.room > 0) {
					t.Errorf("failure of the writer: %v", target.failure)
				}

				if took := time.Since(start); took != test.after {
					t.Errorf("it took %s, want %s", took, test.after)
				}

				// The stream would leak otherwise.
				if test.tape.ctx.Err() == nil {
					t.Error("the stream was left open")
				}
			})
		})
	}
}

func TestSnapshot_EndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()

		start := time.Now()

		err := receive(ctx, &tape{endless: true}, &counter{to: io.Discard})
		if status.Code(err) != codes.DeadlineExceeded || strings.Contains(err.Error(), "no data") || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %s, want the deadline of the caller", err, time.Since(start))
		}
	})
}

func TestSnapshot_ShortWriteFails(t *testing.T) {
	t.Parallel()

	target := &counter{to: short{}}
	if _, err := target.Write([]byte("abc")); !errors.Is(err, io.ErrShortWrite) || target.failure == nil || target.count != 2 {
		t.Errorf("%v, count %d", err, target.count)
	}
}

type short struct{}

func (short) Write(data []byte) (int, error) { return len(data) - 1, nil }
