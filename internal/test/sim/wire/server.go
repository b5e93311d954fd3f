// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Options of a [Server].
type Options struct {
	// World is the cluster to serve; it must outlive the server.
	World *model.World
	// Kubeconfig is what control planes answer when asked for it; nil lets
	// them answer that there is none yet.
	Kubeconfig func() ([]byte, error)
	// InMemory serves over pipes at the machines' own addresses instead of
	// sockets, for testing/synctest bubbles. Clients need [Server.Dialer].
	InMemory bool
	// Sync is called before every call that changes something, so that what
	// other faces have answered before is recorded before what the call
	// brings about. It is bounded by a context; its error is of no account.
	Sync func(ctx context.Context) error
	// Intercept, when not nil, decides about each call that reaches an endpoint.
	Intercept Interceptor
}

// Endpoint is where one machine's Talos API is served.
type Endpoint struct {
	// Node is the machine's name.
	Node string
	Role model.Role
	// Address is host:port on sockets, and an IP address in memory, where
	// clients add the port of the Talos API.
	Address string
}

// Server serves the Talos API of a simulated cluster.
type Server struct {
	world      *model.World
	kubeconfig func() ([]byte, error)
	sync       func(ctx context.Context) error
	intercept  Interceptor
	lines      *lines
	network    network
	authority  *certificate.Authority
	foreign    *certificate.Authority
	dead       string
	shared     *sharedResources

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	stations map[string]*station
	order    []*station
	forget   func()
	wake     chan struct{}
}

// New prepares a server: certificates and addresses exist, nothing listens.
func New(options Options) (*Server, error) {
	if options.World == nil {
		return nil, errors.New("wire: no world to serve")
	}

	s := &Server{
		world: options.World, kubeconfig: options.Kubeconfig, sync: options.Sync,
		stations: map[string]*station{}, wake: make(chan struct{}, 1),
		network: &sockets{}, intercept: options.Intercept, lines: newLines(),
	}

	if options.InMemory {
		s.network = newMemory(func(address string) bool {
			state, err := s.world.Node(address)

			return err == nil && state.Reachable
		}, s.world.Silent())
	}

	if err := s.prepare(); err != nil {
		s.network.close()

		return nil, fmt.Errorf("wire: %w", err)
	}

	return s, nil
}

func (s *Server) prepare() error {
	const nobody = "10.5.255.254"

	var err error

	if s.authority, err = certificate.NewAuthority(pkix.Name{Organization: []string{"talos"}}); err != nil {
		return err
	}

	if s.foreign, err = certificate.NewAuthority(pkix.Name{Organization: []string{"talos"}}); err != nil {
		return err
	}

	if s.dead, err = s.network.reserve(nobody); err != nil {
		return err
	}

	if s.shared, err = newSharedResources(s.world); err != nil {
		return err
	}

	for _, state := range s.world.Nodes() {
		if _, err := s.admit(state); err != nil {
			return err
		}
	}

	return nil
}

// admit reserves an endpoint for a machine.
func (s *Server) admit(state model.NodeState) (*station, error) {
	address, err := s.network.reserve(state.Address)
	if err != nil {
		return nil, err
	}

	pair, err := s.authority.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: state.Name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{state.Name, "localhost"}, IPAddresses: []net.IP{net.ParseIP(state.Address), net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return nil, err
	}

	serving, err := pair.TLS()
	if err != nil {
		return nil, err
	}

	added := newStation(s, state, address, serving)

	s.mu.Lock()
	defer s.mu.Unlock()

	s.stations[state.Name] = added
	s.order = append(s.order, added)

	return added, nil
}

// Start listens on the endpoints of all machines that are up and follows what
// becomes of them, until Stop. The context bounds only the start.
func (s *Server) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	s.life, s.end = context.WithCancel(context.Background())

	for _, station := range s.order {
		if err := station.follow(); err != nil {
			s.Stop()

			return fmt.Errorf("wire: %s: %w", station.node, err)
		}

		s.work.Go(func() { station.run(s.life) })
	}

	s.forget = s.world.OnChange(s.changed)
	s.work.Go(func() { s.welcome(s.life) })

	return nil
}

// Stop closes all endpoints and ends all calls. It may be called twice, and
// without Start.
func (s *Server) Stop() {
	if s.forget != nil {
		s.forget()
	}

	if s.end != nil {
		s.end()
	}

	s.work.Wait()
	s.network.close()
}

// changed is told of every change of the world; it must not block.
func (s *Server) changed(node string) {
	s.mu.Lock()
	station := s.stations[node]
	s.mu.Unlock()

	if station != nil {
		station.notice()
	}

	signal(s.wake)
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// welcome opens endpoints for machines that join and keeps the member list.
func (s *Server) welcome(ctx context.Context) {
	welcomed := 0

	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}

		_ = s.shared.refresh(ctx)

		// Few of the changes are machines that join.
		if joined := s.world.Joined(); joined > welcomed && s.admitAll(ctx) {
			welcomed = joined
		}
	}
}

// admitAll opens endpoints for the machines that have none; false where one is left for
// the next change.
func (s *Server) admitAll(ctx context.Context) bool {
	all := true

	for _, state := range s.world.Nodes() {
		s.mu.Lock()
		known := s.stations[state.Name]
		s.mu.Unlock()

		if known != nil && known.address == state.Address {
			continue
		}

		added, err := s.admit(state)
		if err != nil {
			all = false

			continue
		}

		added.notice()
		s.work.Go(func() { added.run(ctx) })
	}

	return all
}

// Endpoints lists where each machine that is part of the cluster is served,
// in the world's order.
func (s *Server) Endpoints() []Endpoint {
	var endpoints []Endpoint

	for _, state := range s.world.Nodes() {
		s.mu.Lock()
		station := s.stations[state.Name]
		s.mu.Unlock()

		if station != nil {
			endpoints = append(endpoints, Endpoint{Node: state.Name, Role: state.Role, Address: station.endpoint})
		}
	}

	return endpoints
}

// Dialer connects to the endpoints; clients need it where the server is in
// memory, as grpc.WithContextDialer.
func (s *Server) Dialer() func(ctx context.Context, address string) (net.Conn, error) {
	return s.network.dial
}
