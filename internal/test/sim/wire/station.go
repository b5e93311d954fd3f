// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/siderolabs/grpc-proxy/proxy"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// station is where one machine is served. Whenever the machine's API answers
// it has an outlet.
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
// in front of them.
type outlet struct {
	bootID   string
	services *grpc.Server
	conn     *grpc.ClientConn
	front    *grpc.Server
	listener *cuttable
	serving  sync.WaitGroup
}

func newStation(s *Server, state model.NodeState, endpoint string, certificate tls.Certificate) *station {
	return &station{
		server: s, node: state.Name, role: state.Role, address: state.Address,
		endpoint: endpoint, certificate: certificate,
		resources: newNodeResources(s.world, state.Name, s.shared),
		wake:      make(chan struct{}, 1),
	}
}

// notice tells the station that its machine has changed.
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

		// A listener that cannot be opened again is tried at the next change.
		_ = s.follow()
	}
}

// follow opens or closes the outlet as the machine's state demands, and brings
// its resources up to date for those who watch them.
func (s *station) follow() error {
	state, err := s.server.world.Node(s.address)
	if err != nil {
		return err
	}

	s.mu.Lock()
	current := s.outlet
	s.mu.Unlock()

	if current != nil && (!state.Reachable || current.bootID != state.BootID) {
		s.close()

		current = nil
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

	// The connections of clients break first, as those of a machine do.
	current.listener.cut()
	current.front.Stop()
	current.services.Stop()
	_ = current.conn.Close()
	current.serving.Wait()
}

// connection leads to the machine's services, nil while it has none.
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

// front is the endpoint: it asks for a certificate and proxies.
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
