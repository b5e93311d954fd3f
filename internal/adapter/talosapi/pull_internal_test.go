// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"net"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// halfNode says that it runs 1.13 and has none of its services, as a build in
// between may.
type halfNode struct {
	machineapi.UnimplementedMachineServiceServer

	pulled []*machineapi.ImagePullRequest
}

func (n *halfNode) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.13.0"}}}}, nil
}

func (n *halfNode) ImagePull(_ context.Context, request *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	n.pulled = append(n.pulled, request)

	return &machineapi.ImagePullResponse{}, nil
}

func TestAComponentIsPulledTheOldWayWhereTheNewOneIsMissing(t *testing.T) {
	t.Parallel()

	node, listener, server := &halfNode{}, bufconn.Listen(1<<16), grpc.NewServer()
	machineapi.RegisterMachineServiceServer(server, node)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	api, err := client.New(t.Context(), client.WithUnixSocket("unused"), client.WithGRPCDialOptions(
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithChainUnaryInterceptor(noteUnary), grpc.WithChainStreamInterceptor(noteStream),
	))
	if err != nil {
		t.Fatal(err)
	}

	c := &Client{endpoints: []*endpoint{{name: "10.5.0.2", host: "10.5.0.2", api: api}}}

	if err := c.PullComponent(t.Context(), "10.5.0.5", cluster.Kubelet, newImage); err != nil {
		t.Error(err)
	}

	if len(node.pulled) != 1 || node.pulled[0].GetReference() != newImage || node.pulled[0].GetNamespace() != common.ContainerdNamespace_NS_SYSTEM {
		t.Errorf("it pulled %v, want %s once", node.pulled, newImage)
	}

	if err := c.Close(); err != nil {
		t.Error(err)
	}

	server.Stop()

	if err := <-served; err != nil {
		t.Error(err)
	}
}
