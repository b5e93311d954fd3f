// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// attempt is one try of a call through one endpoint.
type attempt struct {
	// sent tells that the request may have left this machine. As long as it is
	// false, trying again elsewhere cannot do anything twice.
	sent bool
}

type attemptKey struct{}

func withAttempt(ctx context.Context, attempt *attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, attempt)
}

// noteUnary records whether a unary call got as far as a connection: gRPC
// knows the peer only then.
func noteUnary(
	ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	var reached peer.Peer

	err := invoke(ctx, method, request, reply, conn, append(options, grpc.Peer(&reached))...)

	if noted, ok := ctx.Value(attemptKey{}).(*attempt); ok && reached.Addr != nil {
		noted.sent = true
	}

	return err
}

// noteStream records the same for a stream, whose request is sent right after
// it was opened.
func noteStream(
	ctx context.Context, description *grpc.StreamDesc,
	conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, description, conn, method, options...)

	if noted, ok := ctx.Value(attemptKey{}).(*attempt); ok && err == nil {
		noted.sent = true
	}

	return stream, err
}
