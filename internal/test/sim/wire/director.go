// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/grpc-proxy/proxy"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// director routes the calls that reach one endpoint while its machine is up.
type director struct {
	server  *Server
	own     string // address of the endpoint's machine
	forward bool   // control planes forward, workers do not
	local   *grpc.ClientConn

	mu    sync.Mutex
	peers map[string]*pause
	dials map[string]time.Duration // when an attempt began that is under way
}

// pause is how long a proxy does not try again to reach a machine that it could not reach before.
type pause struct {
	length time.Duration
	until  time.Duration // simulated time
}

// direct implements proxy.StreamDirector.
func (d *director) direct(ctx context.Context, method string) (proxy.Mode, []proxy.Backend, error) {
	roles := certificateRoles(ctx)
	local := &backend{roles: roles, connect: func(context.Context) (*grpc.ClientConn, error) { return d.local, nil }}

	routing, _ := metadata.FromIncomingContext(ctx)
	node, nodes := routing["node"], routing["nodes"]

	if len(routing["proxyfrom"]) > 0 {
		return proxy.One2One, []proxy.Backend{local}, nil
	}

	if node != nil && len(node) != 1 {
		return proxy.One2One, nil, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}

	if !d.forward {
		if len(node) == 1 && node[0] == d.own {
			node = nil
		}

		if len(nodes) == 1 && nodes[0] == d.own {
			nodes = nil
		}
	}

	switch {
	case nodes != nil && !manyAllowed(method):
		return proxy.One2One, nil, status.Errorf(codes.InvalidArgument,
			"one-2-many proxying is not supported for method %s", method)
	case nodes != nil:
		backends, err := d.remote(nodes, roles)

		return proxy.One2Many, backends, err
	case node != nil:
		backends, err := d.remote(node, roles)

		return proxy.One2One, backends, err
	default:
		return proxy.One2One, []proxy.Backend{local}, nil
	}
}

func (d *director) remote(targets, roles []string) ([]proxy.Backend, error) {
	if !d.forward {
		return nil, status.Error(codes.PermissionDenied, "no request forwarding")
	}

	backends := make([]proxy.Backend, len(targets))

	for i, target := range targets {
		if target == "" || withPort(target) {
			return nil, status.Errorf(codes.Internal, "invalid target %q", target)
		}

		backends[i] = &backend{
			target: target, roles: roles,
			connect: func(ctx context.Context) (*grpc.ClientConn, error) { return d.connect(ctx, target) },
		}
	}

	return backends, nil
}

// withPort reports whether a target has a port, as apid does with AddressContainsPort of github.com/siderolabs/net:
// an IPv6 address has colons of its own.
func withPort(target string) bool {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return false
	}

	_, err = netip.ParseAddr(host)

	return !strings.Contains(host, ":") || err == nil
}

// plain returns an address as the world spells it: apid dials it however a caller writes it, with brackets or
// without.
func plain(target string) string {
	target = strings.Trim(target, "[]")

	if address, err := netip.ParseAddr(target); err == nil {
		return address.String()
	}

	return target
}

// dialTimeout is how long a proxy tries to reach a silent machine.
const dialTimeout = 20 * time.Second

// LongestPause is how long a proxy that could not reach a machine waits at most before it tries again.
const LongestPause = 15 * time.Second

// connect connects to a machine's services, unless that failed a short while ago. Calls to a silent machine wait
// for the end of the attempt that is under way.
func (d *director) connect(ctx context.Context, target string) (*grpc.ClientConn, error) {
	const first, factor = time.Second, 1.6

	d.mu.Lock()
	defer d.mu.Unlock()

	now := d.server.world.Now()

	waiting := d.peers[target]
	if waiting != nil && now < waiting.until {
		return nil, d.unanswered(target)
	}

	conn, err := d.server.services(target)
	if err != nil && d.server.world.Silent() && !d.server.maintained(target) {
		begun, dialling := d.dials[target]
		if !dialling {
			begun = now
			d.dials[target] = begun
		}

		d.mu.Unlock()

		ended := d.server.world.Clock().Sleep(ctx, begun+dialTimeout-now)

		d.mu.Lock()

		now = d.server.world.Now()
		if ended != nil && now-begun < dialTimeout {
			return nil, status.FromContextError(ended).Err()
		}

		delete(d.dials, target)

		if waiting = d.peers[target]; waiting != nil && now < waiting.until {
			return nil, d.unanswered(target)
		}

		if conn, err = d.server.services(target); err != nil {
			err = d.unanswered(target)
		}
	}

	if err == nil {
		delete(d.peers, target)

		return conn, nil
	}

	if waiting == nil {
		waiting = &pause{length: first}
		d.peers[target] = waiting
	} else {
		waiting.length = min(LongestPause, time.Duration(float64(waiting.length)*factor))
	}

	waiting.until = now + waiting.length

	return nil, err
}

// unanswered returns the error of the last attempt to reach a machine.
func (d *director) unanswered(target string) error {
	if d.server.maintained(target) {
		return unissued()
	}

	if d.server.world.Silent() {
		return timedOut(target)
	}

	return refused(target)
}

// services returns the connection to the services of a machine by its address.
func (s *Server) services(target string) (*grpc.ClientConn, error) {
	address := plain(target)

	state, err := s.world.Node(address)
	if err != nil || address == state.Name {
		return nil, unroutable(address)
	}

	if state.Maintenance {
		return nil, unissued()
	}

	if !state.Reachable {
		return nil, refused(address)
	}

	s.mu.Lock()
	station := s.stations[state.Name]
	s.mu.Unlock()

	if station == nil {
		return nil, refused(address)
	}

	if conn := station.connection(); conn != nil {
		return conn, nil
	}

	return nil, refused(address)
}

// maintained reports whether a machine is in maintenance mode.
func (s *Server) maintained(target string) bool {
	state, err := s.world.Node(plain(target))

	return err == nil && state.Maintenance
}

// certificateRoles returns the organizations of the caller's certificate.
func certificateRoles(ctx context.Context) []string {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}

	info, ok := caller.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}

	return info.State.PeerCertificates[0].Subject.Organization
}

func manyAllowed(method string) bool {
	for _, service := range []string{
		"/machine.MachineService/", "/cluster.ClusterService/", "/inspect.InspectService/",
		"/storage.StorageService/", "/time.TimeService/",
	} {
		if strings.HasPrefix(method, service) {
			return true
		}
	}

	return false
}

// streamed reports whether a method answers with a stream, for one-to-many calls.
func streamed(method string) bool {
	switch method {
	case "/machine.MachineService/Copy", "/machine.MachineService/DiskUsage", "/machine.MachineService/Dmesg",
		"/machine.MachineService/EtcdSnapshot", "/machine.MachineService/Events", "/machine.MachineService/ImageList",
		"/machine.MachineService/Kubeconfig", "/machine.MachineService/List", "/machine.MachineService/Logs",
		"/machine.MachineService/PacketCapture", "/machine.MachineService/Read",
		"/cluster.ClusterService/HealthCheck":
		return true
	default:
		return false
	}
}

// forwards reports whether machines of a role have the certificate to call others.
func forwards(role model.Role) bool { return role == model.ControlPlane }

// backend connects a proxied call to one machine's services.
type backend struct {
	// target is the machine as the caller named it; empty for the endpoint's own.
	target string
	// roles are those of the caller.
	roles []string
	// connect finds the machine's services; its error is a gRPC status.
	connect func(context.Context) (*grpc.ClientConn, error)
}

// String implements proxy.Backend.
func (b *backend) String() string { return b.target }

// GetConnection implements proxy.Backend. It drops the routing keys, and sets the caller's roles to those that the
// endpoint found.
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

// AppendInfo implements proxy.Backend: it puts the machine's name into the field metadata of a response. Responses
// of unary calls hold one message in their first field; those of streams are the message itself. As the field is
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

// BuildError implements proxy.Backend: in one-to-many calls an error is a message with only metadata.
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

// apid returns the address of a machine's API.
func apid(address string) string {
	return net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(constants.ApidPort))
}

// refused returns what a proxy says about a machine that refuses connections.
func refused(address string) error {
	return status.Errorf(codes.Unavailable,
		"connection error: desc = \"transport: Error while dialing: dial tcp %s: connect: connection refused\"",
		apid(address))
}

// unissued returns what a proxy says about a machine in maintenance mode.
func unissued() error {
	return status.Errorf(codes.Unavailable, "connection error: desc = \"transport: %v\"", model.ErrUnconfigured)
}

// timedOut returns what a proxy says about a silent machine.
func timedOut(address string) error {
	return status.Errorf(codes.Unavailable,
		"connection error: desc = \"transport: Error while dialing: dial tcp %s: i/o timeout\"",
		apid(address))
}

// unroutable returns what a proxy says about an address without a machine.
func unroutable(address string) error {
	return status.Errorf(codes.Unavailable,
		"connection error: desc = \"transport: Error while dialing: dial tcp %s: connect: no route to host\"",
		apid(address))
}

// station serves one machine. While the machine's API answers it has an outlet.
type station struct {
	server      *Server
	node        string
	role        model.Role
	address     string // of the machine
	endpoint    string // of its endpoint
	certificate tls.Certificate
	resources   *nodeResources
	wake        chan struct{}

	mu     sync.Mutex
	outlet *outlet
}

// outlet is a machine's API while it answers: the services, and the endpoint
// in front of them. In maintenance mode there are no services.
type outlet struct {
	bootID   string
	services *grpc.Server
	conn     *grpc.ClientConn
	front    *grpc.Server
	listener *cuttable
	serving  sync.WaitGroup
}

func (o *outlet) maintained() bool { return o.services == nil }

func newStation(s *Server, state model.NodeState, endpoint string, certificate tls.Certificate) *station {
	return &station{
		server: s, node: state.Name, role: state.Role, address: state.Address,
		endpoint: endpoint, certificate: certificate,
		resources: newNodeResources(s.world, state.Name, s.shared),
		wake:      make(chan struct{}, 1),
	}
}

// notice notes that the machine has changed, and wakes the station.
func (s *station) notice() {
	s.resources.stale.Store(true)
	signal(s.wake)
}

// run follows the machine until the server stops or the machine is removed.
func (s *station) run(ctx context.Context) {
	defer s.close()

	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}

		if _, err := s.server.world.Node(s.address); err != nil {
			return
		}

		// If a listener cannot be opened again, the next change tries it again.
		_ = s.follow()
	}
}

// follow opens or closes the outlet as the machine's state demands, and updates its resources for those who watch
// them.
func (s *station) follow() error {
	state, err := s.server.world.Node(s.address)
	if err != nil {
		return err
	}

	s.mu.Lock()
	current := s.outlet
	s.mu.Unlock()

	if current != nil && (!state.Reachable && !state.Maintenance || current.bootID != state.BootID || current.maintained() != state.Maintenance) {
		s.close()

		current = nil
	}

	if state.Maintenance && current == nil {
		return s.maintain(state)
	}

	if !state.Reachable {
		return nil
	}

	if err := s.resources.refresh(context.Background()); err != nil {
		return err
	}

	if current != nil {
		return nil
	}

	return s.open(state)
}

func (s *station) close() {
	s.mu.Lock()
	current := s.outlet
	s.outlet = nil
	s.mu.Unlock()

	if current == nil {
		return
	}

	// The connections of clients break first, like those of a real machine.
	current.listener.cut()
	current.front.Stop()

	if !current.maintained() {
		current.services.Stop()
		_ = current.conn.Close()
	}

	current.serving.Wait()
}

// connection returns the connection to the machine's services; nil while it has none.
func (s *station) connection() *grpc.ClientConn {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.outlet == nil {
		return nil
	}

	return s.outlet.conn
}

func (s *station) open(state model.NodeState) error {
	listener, err := s.server.network.listen(s.endpoint)
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", s.endpoint, err)
	}

	inner := pipe.Listen(pipeSize)

	conn, err := grpc.NewClient("passthrough:///"+s.address,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inner.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize),
			grpc.ForceCodecV2(proxy.Codec())),
	)
	if err != nil {
		_ = listener.Close()

		return fmt.Errorf("services of %s: %w", s.node, err)
	}

	opened := &outlet{bootID: state.BootID, conn: conn, services: s.services(state), listener: newCuttable(s.server.lines.over(listener))}
	opened.front = s.front(conn)

	opened.serving.Go(func() { _ = opened.services.Serve(inner) })
	opened.serving.Go(func() { _ = opened.front.Serve(opened.listener) })

	s.mu.Lock()
	defer s.mu.Unlock()

	s.outlet = opened

	return nil
}

// maintain opens the outlet of a machine in maintenance mode: it has its own certificate, asks for none, and offers
// nothing that this project calls.
func (s *station) maintain(state model.NodeState) error {
	pair, err := s.server.unknown.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: constants.MaintenanceServiceCommonName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(state.Address), net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return err
	}

	own, err := pair.TLS()
	if err != nil {
		return err
	}

	listener, err := s.server.network.listen(s.endpoint)
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", s.endpoint, err)
	}

	opened := &outlet{
		bootID: state.BootID, listener: newCuttable(s.server.lines.over(listener)),
		front: grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}}))),
	}

	opened.serving.Go(func() { _ = opened.front.Serve(opened.listener) })

	s.mu.Lock()
	defer s.mu.Unlock()

	s.outlet = opened

	return nil
}

// front returns the endpoint, which requires a certificate and proxies.
func (s *station) front(local *grpc.ClientConn) *grpc.Server {
	route := &director{
		server: s.server, own: s.address, forward: forwards(s.role), local: local,
		peers: map[string]*pause{}, dials: map[string]time.Duration{},
	}

	return grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{s.certificate},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    s.server.authority.Pool(),
		})),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.WaitForHandlers(true),
		grpc.ForceServerCodecV2(proxy.Codec()),
		grpc.StreamInterceptor(s.strikes()),
		grpc.UnknownServiceHandler(proxy.TransparentHandler(route.direct, proxy.WithStreamedDetector(streamed))),
	)
}
