// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// backend leads a proxied call to one machine's services.
type backend struct {
	// target is the machine as the caller named it, empty for the endpoint's own.
	target string
	// roles are the caller's.
	roles []string
	// connect finds the machine's services; its error is a gRPC status.
	connect func(context.Context) (*grpc.ClientConn, error)
}

// String implements proxy.Backend.
func (b *backend) String() string { return b.target }

// GetConnection implements proxy.Backend. Routing keys end here, and the
// caller's roles are those the endpoint vouches for.
func (b *backend) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	outgoing := incoming.Copy()

	for _, key := range []string{":authority", "node", "nodes", "proxyfrom"} {
		delete(outgoing, key)
	}

	outgoing.Set(constants.APIAuthzRoleMetadataKey, b.roles...)

	conn, err := b.connect(ctx)

	return metadata.NewOutgoingContext(ctx, outgoing), conn, err
}

// AppendInfo implements proxy.Backend: it puts the machine's name into the
// field metadata of a response. Responses of unary calls hold one message in
// their first field; those of streams are the message itself. As the field is
// not set yet, appending it to the encoded message is enough.
func (b *backend) AppendInfo(streaming bool, response []byte) ([]byte, error) {
	info, err := proto.Marshal(&common.Empty{
		Metadata: &common.Metadata{Hostname: b.target}, //nolint:staticcheck // what Talos sends
	})
	if err != nil || streaming {
		return append(response, info...), err
	}

	const messages = 1

	field, kind, tagged := protowire.ConsumeTag(response)
	if tagged < 0 || field != messages || kind != protowire.BytesType {
		return nil, fmt.Errorf("a response of %s is not a list of messages", b.target)
	}

	message, length := protowire.ConsumeBytes(response[tagged:])
	if length < 0 {
		return nil, protowire.ParseError(length)
	}

	named := protowire.AppendTag(nil, messages, protowire.BytesType)
	named = protowire.AppendBytes(named, slices.Concat(message, info))

	return append(named, response[tagged+length:]...), nil
}

// BuildError implements proxy.Backend: in one-to-many calls an error is a
// message with nothing but metadata.
func (b *backend) BuildError(streaming bool, failure error) ([]byte, error) {
	empty := &common.Empty{
		Metadata: &common.Metadata{ //nolint:staticcheck // what Talos sends
			Hostname: b.target,                        //nolint:staticcheck // what Talos sends
			Error:    failure.Error(),                 //nolint:staticcheck // what Talos sends
			Status:   status.Convert(failure).Proto(), //nolint:staticcheck // what Talos sends
		},
	}

	if streaming {
		return proto.Marshal(empty)
	}

	return proto.Marshal(&common.EmptyResponse{Messages: []*common.Empty{empty}})
}

// apid is where a machine is asked.
func apid(address string) string {
	return net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(constants.ApidPort))
}

// refused is what a proxy says of a machine it cannot connect to.
func refused(address string) error {
	return status.Errorf(codes.Unavailable,
		"connection error: desc = \"transport: Error while dialing: dial tcp %s: connect: connection refused\"",
		apid(address))
}

// timedOut is what a proxy says of a machine that is silent.
func timedOut(address string) error {
	return status.Errorf(codes.Unavailable,
		"connection error: desc = \"transport: Error while dialing: dial tcp %s: i/o timeout\"",
		apid(address))
}

// unroutable is what a proxy says of an address without a machine.
func unroutable(address string) error {
	return status.Errorf(codes.Unavailable,
		"connection error: desc = \"transport: Error while dialing: dial tcp %s: connect: no route to host\"",
		apid(address))
}
