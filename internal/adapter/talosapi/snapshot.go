// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// snapshotTimeout is enough for the largest database that etcd recommends, of
	// 8 GiB, over a line of 20 Mbit/s.
	snapshotTimeout = time.Hour
	// stallLimit is how long a snapshot may bring no data before it is given up.
	stallLimit = time.Minute
)

// EtcdSnapshot streams a snapshot of the member at the address. Of a stream that
// broke off nothing is asked for again: what came of it was handed on. A node
// may also end a stream early as if that were its end (Talos before 1.14 does),
// so that the reader has to verify the checksum. The error of the writer comes
// back as it is.
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

// receive hands on the data of one stream. It ends when no data came for
// [stallLimit], in which the time that the writer takes does not count.
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

		// The client library has versions that take this for the end of the data.
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

		// A watchdog that went off while the data came stays off: the context is
		// cancelled.
		if watched {
			watchdog.Reset(stallLimit)
		}
	}
}

// counter is a writer that remembers how far it got, and why not further.
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
