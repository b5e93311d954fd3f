// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
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

func TestPull_UsesTheOldCallWhereTheNewOneIsMissing(t *testing.T) {
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

// script is a stream that gives the answers of the test, and then ends.
type script[T any] struct {
	answers []T
	end     error
}

func (s *script[T]) Recv() (T, error) {
	if len(s.answers) == 0 {
		var none T

		return none, s.end
	}

	answer := s.answers[0]
	s.answers = s.answers[1:]

	return answer, nil
}

func said(text string) *machineapi.LifecycleServiceUpgradeResponse {
	return &machineapi.LifecycleServiceUpgradeResponse{Progress: &machineapi.LifecycleServiceInstallProgress{
		Response: &machineapi.LifecycleServiceInstallProgress_Message{Message: text},
	}}
}

func exited(code int32) *machineapi.LifecycleServiceUpgradeResponse {
	return &machineapi.LifecycleServiceUpgradeResponse{Progress: &machineapi.LifecycleServiceInstallProgress{
		Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: code},
	}}
}

func TestStream_FollowTakesOnlyAnExitCodeForAnEnd(t *testing.T) {
	t.Parallel()

	broken := errors.New("connection broken")

	for name, test := range map[string]struct {
		answers []*machineapi.LifecycleServiceUpgradeResponse
		end     error
		exit    string
		fails   bool
	}{
		"success":                     {[]*machineapi.LifecycleServiceUpgradeResponse{said("a"), exited(0)}, io.EOF, "0", false},
		"failure":                     {[]*machineapi.LifecycleServiceUpgradeResponse{said("a"), exited(4)}, io.EOF, "4", false},
		"no exit code":                {[]*machineapi.LifecycleServiceUpgradeResponse{said("a")}, io.EOF, "none", false},
		"broken":                      {[]*machineapi.LifecycleServiceUpgradeResponse{said("a")}, broken, "none", true},
		"broken after the exit code":  {[]*machineapi.LifecycleServiceUpgradeResponse{exited(0)}, broken, "0", false},
		"broken before anything came": {nil, broken, "none", true},
	} {
		exit, err := follow(&script[*machineapi.LifecycleServiceUpgradeResponse]{test.answers, test.end}, &lines{})

		got := "none"
		if exit != nil {
			got = fmt.Sprint(*exit)
		}

		if got != test.exit || (err != nil) != test.fails {
			t.Errorf("%s: exit code %s, error %v; want %s, error %t", name, got, err, test.exit, test.fails)
		}
	}
}

func TestStream_DrainTakesOnlyTheImageNameForSuccess(t *testing.T) {
	t.Parallel()

	progress := &machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{}}
	name := &machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_Name{Name: "x@sha256:1"}}
	broken := errors.New("connection broken")

	for what, test := range map[string]struct {
		stream *script[*machineapi.ImageServicePullResponse]
		want   error
	}{
		"pulled":        {&script[*machineapi.ImageServicePullResponse]{[]*machineapi.ImageServicePullResponse{progress, name}, io.EOF}, nil},
		"was there":     {&script[*machineapi.ImageServicePullResponse]{[]*machineapi.ImageServicePullResponse{name}, io.EOF}, nil},
		"ended early":   {&script[*machineapi.ImageServicePullResponse]{[]*machineapi.ImageServicePullResponse{progress}, io.EOF}, io.EOF},
		"broke in time": {&script[*machineapi.ImageServicePullResponse]{[]*machineapi.ImageServicePullResponse{progress}, broken}, broken},
	} {
		if err := drain(test.stream); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", what, err, test.want)
		}
	}
}

func TestStream_LinesJoinsChunksAndKeepsTheLast(t *testing.T) {
	t.Parallel()

	var output lines

	for _, chunk := range []string{"one\ntw", "o\n", "\n", "thr", "ee"} {
		output.write(chunk)
	}

	if got := output.last(); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("%q, want one, two, three", got)
	}

	for range 1000 {
		output.write(strings.Repeat("x", 1000) + "\n")
	}

	got := output.last()
	if len(got) != keptLines || len(got[0]) != keptLength {
		t.Errorf("%d lines of %d bytes, want %d of %d", len(got), len(got[0]), keptLines, keptLength)
	}
}
