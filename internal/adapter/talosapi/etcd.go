// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Etcd returns the state of etcd as the control plane at the address sees it. A member lists the members only after
// it has caught up with the leader: without a leader there is no list, and the lists of several members differ only
// while members come and go. For a learner the status alone is a result: it refuses everything but its status and
// reads of its own keys (isRPCSupportedForLearner in etcd). Alarms are not listed, because the status repeats them
// (maintenanceServer.Status in etcd).
func (c *Client) Etcd(ctx context.Context, address string, members bool) (cluster.EtcdView, error) {
	if !members {
		status, err := c.etcdStatus(ctx, address)

		return cluster.EtcdView{Status: status}, err
	}

	var (
		view                  cluster.EtcdView
		statusErr, membersErr error
		group                 errgroup.Group
	)

	rest, cancel := context.WithCancel(ctx)
	defer cancel()

	// The two write different fields, so no lock is needed. The status is useful without the members, but not the
	// other way round.
	group.Go(func() error {
		if view.Status, statusErr = c.etcdStatus(ctx, address); statusErr != nil {
			cancel()
		}

		return nil
	})
	group.Go(func() error { view.Members, membersErr = c.etcdMembers(rest, address); return nil })

	_ = group.Wait()

	if statusErr != nil {
		return cluster.EtcdView{}, statusErr
	}

	if membersErr != nil && (!view.Status.Learner || ctx.Err() != nil) {
		return cluster.EtcdView{}, membersErr
	}

	return view, nil
}

// ForfeitLeadership makes the member at the address give up etcd leadership.
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
		// Without QueryLocal the node would ask any of the control planes.
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

// hosts returns the hosts of URLs such as https://10.5.0.2:2380.
func hosts(urls []string) []string {
	var names []string

	for _, text := range urls {
		if parsed, err := url.Parse(text); err == nil && parsed.Hostname() != "" {
			names = append(names, parsed.Hostname())
		}
	}

	return names
}

const (
	// snapshotTimeout is enough for the largest database that etcd recommends, 8 GiB, over a line of 20 Mbit/s.
	snapshotTimeout = time.Hour
	// stallLimit is how long a snapshot may bring no data before it is cancelled.
	stallLimit = time.Minute
)

// EtcdSnapshot streams a snapshot of the member at the address. If a stream breaks off after data was passed on, it
// is not started again. A node may also end a stream early as if it were complete (Talos before 1.14 does), so the
// reader has to verify the checksum. An error of the writer is wrapped.
func (c *Client) EtcdSnapshot(ctx context.Context, address string, to io.Writer) error {
	target := &counter{to: to}
	op := operation{
		what: "take a snapshot of etcd on " + place(address), node: address, timeout: snapshotTimeout,
		begun: func() bool { return target.count > 0 || target.failure != nil },
	}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		return receive(ctx, api.MachineClient, target)
	})
	if err != nil && target.failure != nil {
		return fmt.Errorf("unable to %s: %w", op.what, target.failure)
	}

	return err
}

// receive passes on the data of one stream. It fails if no data comes for [stallLimit], not counting the time that
// the writer takes.
func receive(ctx context.Context, api machineapi.MachineServiceClient, target *counter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	stalled := make(chan struct{})
	watchdog := time.AfterFunc(stallLimit, func() { close(stalled); cancel() })

	defer watchdog.Stop()

	err := copyStream(ctx, api, target, watchdog)

	select {
	case <-stalled:
		if err != nil && target.failure == nil {
			return status.Error(codes.DeadlineExceeded, fmt.Sprintf("no data came for %s, after %d bytes", stallLimit, target.count))
		}
	default:
	}

	return err
}

func copyStream(ctx context.Context, api machineapi.MachineServiceClient, target *counter, watchdog *time.Timer) error {
	stream, err := api.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		return err
	}

	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		// Some versions of the client library take this for the end of the data.
		if trouble := data.GetMetadata().GetError(); trouble != "" { //nolint:staticcheck // how a proxy of Talos says that the stream broke
			return status.Error(codes.Unavailable, trouble)
		}

		if len(data.GetBytes()) == 0 {
			continue
		}

		watched := watchdog.Stop()

		if _, err := target.Write(data.GetBytes()); err != nil {
			return err
		}

		// If the watchdog fired while the data arrived, it is not started again: the context is cancelled.
		if watched {
			watchdog.Reset(stallLimit)
		}
	}
}

// counter is a writer that remembers how much it has written and the error that stopped it.
type counter struct {
	to      io.Writer
	count   int64
	failure error
}

// Write implements [io.Writer].
func (c *counter) Write(data []byte) (int, error) {
	written, err := c.to.Write(data)
	c.count += int64(written)

	if err == nil && written < len(data) {
		err = io.ErrShortWrite
	}

	c.failure = err

	return written, err
}
