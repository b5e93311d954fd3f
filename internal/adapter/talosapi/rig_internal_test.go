// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The calls by their names on the wire.
const (
	wireVersion   = "/machine.MachineService/Version"
	wireReboot    = "/machine.MachineService/Reboot"
	wireUpgrade   = "/machine.MachineService/Upgrade"
	wireEvents    = "/machine.MachineService/Events"
	wireApply     = "/machine.MachineService/ApplyConfiguration"
	wireOldPull   = "/machine.MachineService/ImagePull"
	wireStatus    = "/machine.MachineService/EtcdStatus"
	wireMembers   = "/machine.MachineService/EtcdMemberList"
	wirePull      = "/machine.ImageService/Pull"
	wireInstall   = "/machine.LifecycleService/Upgrade"
	wireGet       = "/cosi.resource.State/Get"
	catalogueNode = "10.5.0.5"
	catalogueWant = "factory.talos.dev/metal-installer/x:v1.13.4"
)

// wireNode is a node behind an endpoint that gives each call the exact answer of the test, and answers unknown calls
// as an older version does.
type wireNode struct {
	answers map[string]wireAnswer

	mu    sync.Mutex
	calls []wireCall
}

// wireAnswer carries out one call: it sends messages and ends the call.
type wireAnswer func(grpc.ServerStream) error

// wireCall is a call as it arrived.
type wireCall struct {
	method  string
	routing metadata.MD
	request []byte
}

func (n *wireNode) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	routing, _ := metadata.FromIncomingContext(stream.Context())

	var request emptypb.Empty
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}

	n.mu.Lock()
	n.calls = append(n.calls, wireCall{method, routing, request.ProtoReflect().GetUnknown()})
	answer := n.answers[method]
	n.mu.Unlock()

	if answer == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}

	return answer(stream)
}

// of returns the calls of a method so far.
func (n *wireNode) of(method string) []wireCall {
	n.mu.Lock()
	defer n.mu.Unlock()

	var found []wireCall

	for _, call := range n.calls {
		if call.method == method {
			found = append(found, call)
		}
	}

	return found
}

// client connects through one endpoint, in memory, with valid credentials.
func (n *wireNode) client(t *testing.T) *Client {
	t.Helper()

	listener := bufconn.Listen(1 << 16)
	// The server has the policy of a node for pings: that of gRPC.
	server := grpc.NewServer(grpc.UnknownServiceHandler(n.handle))
	served := make(chan error, 1)

	go func() { served <- server.Serve(listener) }()

	dial := dialOptions(Options{DialContext: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }})

	api, err := client.New(t.Context(), client.WithUnixSocket("memory"),
		client.WithGRPCDialOptions(append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	if err != nil {
		t.Fatal(err)
	}

	c := &Client{
		config:    Config{name: "prod", certificate: Certificate{notAfter: time.Now().Add(24 * time.Hour)}},
		endpoints: []*endpoint{{name: "10.5.0.2", host: "10.5.0.2", api: api}},
	}

	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}

		server.Stop()

		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	return c
}

// ends ends a call with a status.
func ends(code codes.Code, text string) wireAnswer {
	return func(grpc.ServerStream) error { return status.Error(code, text) }
}

// sends sends messages and ends the call without an error.
func sends(messages ...proto.Message) wireAnswer { return thenEnds(nil, messages...) }

// thenEnds sends messages and ends the call with an error, if there is one.
func thenEnds(end error, messages ...proto.Message) wireAnswer {
	return func(stream grpc.ServerStream) error {
		for _, message := range messages {
			if err := stream.SendMsg(message); err != nil {
				return err
			}
		}

		return end
	}
}

// after delays an answer; the caller may not wait that long.
func after(pause time.Duration, answer wireAnswer) wireAnswer {
	return func(stream grpc.ServerStream) error {
		select {
		case <-time.After(pause):
			return answer(stream)
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

// inTurn gives the first answer to the first call, and so on; the last one answers all further calls.
func inTurn(answers ...wireAnswer) wireAnswer {
	var (
		mu    sync.Mutex
		count int
	)

	return func(stream grpc.ServerStream) error {
		mu.Lock()
		answer := answers[min(count, len(answers)-1)]
		count++
		mu.Unlock()

		return answer(stream)
	}
}

// event returns an event as machined sends it, with a type URL of its own.
func event(t *testing.T, payload proto.Message) *machineapi.Event {
	t.Helper()

	value, err := proto.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}

	return &machineapi.Event{Data: &anypb.Any{TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName()), Value: value}}
}

// accepted returns the answer of a node that has begun a legacy upgrade.
func accepted() wireAnswer {
	return sends(&machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: "actor"}}})
}

// meant is what an error must mean, must not mean and must say.
type meant struct {
	is, not []error
	heals   bool
	says    []string
}

// only returns an error that means one thing and leaves nothing open.
func only(sentinel error, says ...string) meant {
	not := []error{cluster.ErrOutcomeUnknown}
	for _, other := range []error{cluster.ErrUnreachable, cluster.ErrRefused, cluster.ErrBusy, cluster.ErrNotFound, cluster.ErrDenied, cluster.ErrUnsupported, cluster.ErrCredentials, cluster.ErrQuorum} {
		if other != sentinel { //nolint:errorlint // a list of sentinels
			not = append(not, other)
		}
	}

	return meant{is: []error{sentinel}, not: not, heals: cluster.Heals(sentinel), says: says}
}

// unknownOutcome returns the meaning of a call that was sent and whose answer is lost.
func unknownOutcome(says ...string) meant {
	return meant{is: []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}, not: []error{cluster.ErrRefused, cluster.ErrBusy}, heals: true, says: says}
}

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

// Version implements the call that checks whether an endpoint answers at all.
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

// gives returns an answer that comes at once, says returns one that is an error, and silence returns one that does
// not come before the caller has gone.
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
