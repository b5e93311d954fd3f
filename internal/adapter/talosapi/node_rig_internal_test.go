// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"net"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
)

// nodeFake is a node that answers as it is told to.
type nodeFake struct {
	machineapi.UnimplementedMachineServiceServer

	members func(context.Context) (*machineapi.EtcdMemberListResponse, error)
	status  func(context.Context) (*machineapi.EtcdStatusResponse, error)
	mounts  func(context.Context) (*machineapi.MountsResponse, error)
}

func (m *nodeFake) EtcdMemberList(ctx context.Context, _ *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	return m.members(ctx)
}

func (m *nodeFake) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	return m.status(ctx)
}

func (m *nodeFake) Mounts(ctx context.Context, _ *emptypb.Empty) (*machineapi.MountsResponse, error) {
	return m.mounts(ctx)
}

// Version implements the question whether an endpoint is there at all.
func (m *nodeFake) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return &machineapi.VersionResponse{}, nil
}

// connect connects to the machine in memory, without credentials.
func connect(t *testing.T, m machineapi.MachineServiceServer) *Client {
	t.Helper()

	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	machineapi.RegisterMachineServiceServer(server, m)

	go func() { _ = server.Serve(listener) }()

	dial := dialOptions(Options{DialContext: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }})

	api, err := client.New(t.Context(), client.WithUnixSocket("memory"),
		client.WithGRPCDialOptions(append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	if err != nil {
		t.Fatal(err)
	}

	c := &Client{endpoints: []*endpoint{{name: "memory", api: api}}}

	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}

		server.Stop()
	})

	return c
}

// gives is an answer that comes at once, says one that is an error, and silence
// none until the caller has gone.
func gives[T any](answer T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return answer, nil }
}

func says[T any](code codes.Code, text string) func(context.Context) (T, error) {
	return func(context.Context) (none T, err error) { return none, status.Error(code, text) }
}

func silence[T any](ctx context.Context) (none T, err error) {
	<-ctx.Done()

	return none, status.FromContextError(ctx.Err()).Err()
}
