// SPDX-License-Identifier: MPL-2.0

// Package wire serves a simulated cluster over the real Talos API: gRPC with mutual TLS, one endpoint per machine.
// As on Talos, an endpoint is a proxy that knows the caller's roles from its certificate and routes by the metadata
// keys node and nodes; behind it each machine has its own services, those of its own version. An endpoint refuses
// connections while its machine is down or its API does not answer, and comes back at the same address.
//
// director.go is the proxy, authorization.go who may call what (resource.go who may read a sensitive resource).
// Behind it, machine.go, etcd.go and upgrade.go answer for a machine, resource.go and resource_config.go are its
// resources, and strike.go is how scripted faults look over the wire.
package wire

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// Options are the options of a [Server].
type Options struct {
	// World is the cluster to serve; it must outlive the server.
	World *model.World
	// Kubeconfig returns what control planes answer when asked for it; if it is nil, they answer that there is none
	// yet.
	Kubeconfig func() ([]byte, error)
	// InMemory serves over pipes at the machines' own addresses instead of
	// sockets, for testing/synctest bubbles. Clients need [Server.Dialer].
	InMemory bool
	// Sync is called before every call that changes something, so that what other faces answered before is recorded
	// before the effects of the call. Its context has a timeout; its error is ignored.
	Sync func(ctx context.Context) error
	// Intercept, if not nil, decides about each call that reaches an endpoint.
	Intercept Interceptor
}

// Endpoint is where the Talos API of one machine is served.
type Endpoint struct {
	// Node is the machine's name.
	Node string
	Role model.Role
	// Address is host:port on sockets, and an IP address in memory, to which clients add the port of the Talos API.
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
	unknown    *certificate.Authority // of the maintenance mode
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

			return err == nil && (state.Reachable || state.Maintenance)
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

	if s.unknown, err = certificate.NewAuthority(pkix.Name{}); err != nil {
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

// Start listens on the endpoints of all machines that are up and follows their changes until Stop. The context
// bounds only the start.
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

// changed is called with every change of the world; it must not block.
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

// welcome opens endpoints for machines that join, and updates the member list.
func (s *Server) welcome(ctx context.Context) {
	welcomed := 0

	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}

		_ = s.shared.refresh(ctx)

		// Most changes are not machines that join.
		if joined := s.world.Joined(); joined > welcomed && s.admitAll(ctx) {
			welcomed = joined
		}
	}
}

// admitAll opens endpoints for the machines that have none. It returns false if one is left for the next change.
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

// Endpoints lists the endpoints of the machines that are part of the cluster, in the world's order.
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

// Dialer returns a function that connects to the endpoints. If the server is in memory, clients need it as
// grpc.WithContextDialer.
func (s *Server) Dialer() func(ctx context.Context, address string) (net.Conn, error) {
	return s.network.dial
}

// cuttable is a listener that can break everything that it ever accepted, including connections whose handshake is
// not over.
type cuttable struct {
	net.Listener

	mu    sync.Mutex
	open  map[*tracked]struct{}
	ended bool
}

func newCuttable(listener net.Listener) *cuttable {
	return &cuttable{Listener: listener, open: map[*tracked]struct{}{}}
}

// Accept implements net.Listener.
func (c *cuttable) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}

	accepted := &tracked{Conn: conn, owner: c}

	c.mu.Lock()
	defer c.mu.Unlock()

	if c.ended {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}

	c.open[accepted] = struct{}{}

	return accepted, nil
}

// cut stops listening and breaks all connections.
func (c *cuttable) cut() {
	_ = c.Close()

	c.mu.Lock()
	c.ended = true
	open := c.open
	c.open = map[*tracked]struct{}{}
	c.mu.Unlock()

	for conn := range open {
		_ = conn.Conn.Close()
	}
}

// tracked is an accepted connection.
type tracked struct {
	net.Conn
	owner *cuttable
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.owner.mu.Lock()
	delete(t.owner.open, t)
	t.owner.mu.Unlock()

	return t.Conn.Close()
}

// network is where endpoints listen: on sockets of this host, or in memory.
type network interface {
	// reserve reserves an address for a machine for as long as the server lives; nothing listens there until
	// listen.
	reserve(machine string) (address string, err error)
	listen(address string) (net.Listener, error)
	dial(ctx context.Context, address string) (net.Conn, error)
	// close releases all addresses.
	close()
}

// sockets listens on random ports of the loopback interface.
type sockets struct {
	mu    sync.Mutex
	holds []func()
}

func (s *sockets) reserve(string) (string, error) {
	port, release, err := holdPort()
	if err != nil {
		return "", fmt.Errorf("no free port on 127.0.0.1: %w", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.holds = append(s.holds, release)

	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

func (s *sockets) listen(address string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return sharePort(raw)
	}}

	return config.Listen(context.Background(), "tcp", address)
}

func (s *sockets) dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, release := range s.holds {
		release()
	}

	s.holds = nil
}

// memory connects by pipes, at the machines' own addresses. It works inside a
// testing/synctest bubble.
type memory struct {
	// answers reports whether the machine at an address has an API now.
	answers func(address string) bool
	// silent is true if machines that do not answer refuse nothing.
	silent bool

	mu        sync.Mutex
	listeners map[string]*pipe.Listener
}

const pipeSize = 64 << 10

func newMemory(answers func(address string) bool, silent bool) *memory {
	return &memory{answers: answers, silent: silent, listeners: map[string]*pipe.Listener{}}
}

func (m *memory) reserve(machine string) (string, error) { return machine, nil }

func (m *memory) listen(address string) (net.Listener, error) {
	listener := pipe.Listen(pipeSize)

	m.mu.Lock()
	defer m.mu.Unlock()

	m.listeners[address] = listener

	return &memoryListener{Listener: listener, network: m, address: address}, nil
}

func (m *memory) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, strconv.Itoa(constants.ApidPort)
	}

	m.mu.Lock()
	listener := m.listeners[host]
	m.mu.Unlock()

	refused := &net.OpError{
		Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED,
		Addr: pipe.Addr(net.JoinHostPort(host, port)),
	}

	if m.silent && !m.answers(host) {
		<-ctx.Done()

		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded, Addr: refused.Addr}
	}

	if listener == nil || !m.answers(host) || port != strconv.Itoa(constants.ApidPort) {
		return nil, refused
	}

	conn, err := listener.DialContext(ctx)
	if err != nil {
		return nil, refused
	}

	return pipe.Patient(conn), nil
}

func (m *memory) close() {}

// memoryListener leaves its network once it is closed.
type memoryListener struct {
	*pipe.Listener
	network *memory
	address string
}

// Close implements net.Listener.
func (l *memoryListener) Close() error {
	l.network.mu.Lock()

	if l.network.listeners[l.address] == l.Listener {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()

	return l.Listener.Close()
}

// The contexts of the talosconfig besides the cluster's own; the name of each is the cluster's name followed by one
// of these.
const (
	// ContextOperator and ContextReader have certificates of those roles.
	ContextOperator = "-operator"
	ContextReader   = "-reader"
	// ContextBackup may only ask etcd and take a snapshot of it.
	ContextBackup = "-etcd-backup"
	// ContextWorker has only a worker as endpoint.
	ContextWorker = "-worker"
	// ContextExpired has a certificate that is no longer valid.
	ContextExpired = "-expired"
	// ContextForeign belongs to another cluster by its certificates; its endpoints are this one's.
	ContextForeign = "-foreign"
	// ContextDead has an endpoint where nothing ever listens.
	ContextDead = "-dead"
)

const clientLifetime = 365 * 24 * time.Hour

// Talosconfig returns the client configuration as YAML. Its current context is the cluster's name: role admin, with
// all control planes as endpoints. The Context constants name the others; ContextWorker exists only if there is a
// worker.
func (s *Server) Talosconfig() ([]byte, error) {
	planes, workers := s.endpointsOf(model.ControlPlane), s.endpointsOf(model.Worker)
	name := s.world.ClusterName()
	now := time.Now()
	from, to := now.Add(-certificate.Backdate), now.Add(clientLifetime)

	config := &clientconfig.Config{Context: name, Contexts: map[string]*clientconfig.Context{}}

	for _, entry := range []struct {
		suffix    string
		endpoints []string
		issuer    *certificate.Authority
		role      role.Role
		from, to  time.Time
	}{
		{"", planes, s.authority, role.Admin, from, to},
		{ContextOperator, planes, s.authority, role.Operator, from, to},
		{ContextReader, planes, s.authority, role.Reader, from, to},
		{ContextBackup, planes, s.authority, role.EtcdBackup, from, to},
		{ContextWorker, workers[:min(1, len(workers))], s.authority, role.Admin, from, to},
		{ContextExpired, planes, s.authority, role.Admin, now.Add(-2 * certificate.Backdate), now.Add(-certificate.Backdate)},
		{ContextForeign, planes, s.foreign, role.Admin, from, to},
		{ContextDead, []string{s.dead}, s.authority, role.Admin, from, to},
	} {
		if len(entry.endpoints) == 0 {
			continue
		}

		pair, err := entry.issuer.Issue(x509.Certificate{
			Subject: pkix.Name{Organization: []string{string(entry.role)}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			NotBefore: entry.from, NotAfter: entry.to,
		})
		if err != nil {
			return nil, fmt.Errorf("talosconfig: %w", err)
		}

		config.Contexts[name+entry.suffix] = &clientconfig.Context{
			Endpoints: entry.endpoints,
			CA:        base64.StdEncoding.EncodeToString(entry.issuer.PEM),
			Crt:       base64.StdEncoding.EncodeToString(pair.Certificate),
			Key:       base64.StdEncoding.EncodeToString(pair.Key),
		}
	}

	return config.Bytes()
}

func (s *Server) endpointsOf(role model.Role) []string {
	var addresses []string

	for _, endpoint := range s.Endpoints() {
		if endpoint.Role == role {
			addresses = append(addresses, endpoint.Address)
		}
	}

	return addresses
}
