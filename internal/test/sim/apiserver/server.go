// SPDX-License-Identifier: MPL-2.0

// Package apiserver is a Kubernetes API server in memory: HTTP/2 over TLS, in
// JSON and protobuf, over pipes, so that the real adapter can be used inside a
// testing/synctest bubble. It serves what [ports.Cluster] holds, so the model,
// the history and the ports see one truth, and it is as strict as the real one
// where a client depends on it: resource versions, preconditions, selectors,
// pages that expire, dry runs, and evictions that ask the budgets.
//
//	server, err := apiserver.New(cluster, apiserver.Options{Client: "run-1", Intercept: ...})
//	server.Start()
//	defer server.Stop()
//	kubeapi.New(server.Kubeconfig(), "", kubeapi.Options{DialContext: server.DialContext, ...})
//
// It serves the requests that the packages kubeapi and publish make, and answers
// all others with 404, 405 or 415. Nodes can be watched, with the versions, bookmarks
// and ends of the real one, and nothing else; there is no server-side apply.
package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// Server serves the Kubernetes API of a simulated cluster. It is safe for
// concurrent use.
type Server struct {
	cluster   *ports.Cluster
	options   Options
	authority *certificate.Authority
	network   *network
	http      *http.Server
	codec     *codec
	resources []*resource
	unwatch   func()

	work sync.WaitGroup
	// turn has requests handled one after the other.
	turn sync.Mutex
	// revisions, pages and kept are those of the objects served; with the turn.
	revisions revisions
	pages     pages
	kept      map[string]metadata
	written   written
	// nodeChanges are those that watches tell of, claims what the nodes carry for clients that
	// follow them.
	nodeChanges *changes
	claims      map[string]string

	mu              sync.Mutex
	number, changes int
	stopped         bool
	// stalled: watches stand still. change is closed when a node may have changed,
	// broken when the watches of now are to end.
	stalled        bool
	change, broken chan struct{}
}

// New prepares a server; nothing can be reached yet. The cluster must outlive it.
func New(cluster *ports.Cluster, options Options) (*Server, error) {
	if cluster == nil {
		return nil, errors.New("apiserver: no cluster to serve")
	}

	s := &Server{
		cluster: cluster, options: options, network: newNetwork(cluster.World()),
		revisions: revisions{}, pages: pages{}, kept: map[string]metadata{},
		nodeChanges: newChanges(), claims: map[string]string{}, change: make(chan struct{}), broken: make(chan struct{}),
	}
	s.resources = s.table()

	var err error

	if s.codec, err = newCodec(); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	if s.authority, err = certificate.NewAuthority(pkix.Name{CommonName: "kubernetes"}); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	addresses := []net.IP{net.ParseIP(anywhere)}

	for _, state := range cluster.World().Nodes() {
		if state.Role == model.ControlPlane {
			addresses = append(addresses, net.ParseIP(state.Address))
		}
	}

	pair, err := s.authority.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: addresses,
	})
	if err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	serving, err := pair.TLS()
	if err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serve),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{serving},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: s.authority.Pool(),
		},
		ReadHeaderTimeout: time.Minute,
		ConnContext:       withLink,
		// What goes wrong with a connection is the affair of its client.
		ErrorLog: log.New(io.Discard, "", 0),
	}

	return s, nil
}

// Start lets clients connect, until Stop.
func (s *Server) Start() {
	unwatch, unnotice := s.cluster.World().OnChange(s.network.follow), s.cluster.World().OnChange(s.notice)
	s.unwatch = func() {
		unwatch()
		unnotice()
	}

	s.work.Go(func() {
		// It ends with the network.
		_ = s.http.ServeTLS(s.network, "", "")
	})
}

// Stop breaks all connections and waits for the requests under way. It may be
// called twice, and without Start.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()

	if s.unwatch != nil {
		s.unwatch()
	}

	_ = s.network.Close()
	_ = s.http.Close()

	s.work.Wait()
}

// DialContext connects to an API server in memory, for the options of clients:
// to the address of the kubeconfig, behind which is whichever runs, or to that of
// a control plane with the port 6443.
func (s *Server) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return s.network.dial(ctx, address)
}

// Kubeconfig is that of an administrator, whom the history shows under the name
// in the options.
func (s *Server) Kubeconfig() []byte { return s.KubeconfigFor(s.options.Client) }

// KubeconfigFor is Kubeconfig for somebody else. It is empty if no certificate can
// be made.
func (s *Server) KubeconfigFor(client string) []byte {
	identity, err := s.authority.Issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: client, Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil
	}

	name := s.cluster.World().ClusterName()

	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []any{map[string]any{"name": name, "cluster": map[string]any{
			"server":                     "https://" + net.JoinHostPort(anywhere, port),
			"certificate-authority-data": base64.StdEncoding.EncodeToString(s.authority.PEM),
		}}},
		"users": []any{map[string]any{"name": client, "user": map[string]any{
			"client-certificate-data": base64.StdEncoding.EncodeToString(identity.Certificate),
			"client-key-data":         base64.StdEncoding.EncodeToString(identity.Key),
		}}},
		"contexts": []any{map[string]any{"name": name, "context": map[string]any{"cluster": name, "user": client}}},
	})
	if err != nil {
		return nil
	}

	return text
}

// Requests counts the requests so far, and those among them that may have
// changed something.
func (s *Server) Requests() (all, mutating int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.number, s.changes
}

// begin numbers a request; false when the server has stopped.
func (s *Server) begin(request *Request, mutates bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.stopped {
		return false
	}

	s.work.Add(1)
	s.number++
	request.Number = s.number

	if mutates {
		s.changes++
		request.Mutation = s.changes
	}

	return true
}

type linkKey struct{}

// withLink has the requests of a connection know it.
func withLink(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}

	return context.WithValue(ctx, linkKey{}, conn)
}

// linkOf is the connection of a request.
func linkOf(ctx context.Context) *link {
	found, _ := ctx.Value(linkKey{}).(*link)

	return found
}

// Options of a [Server].
type Options struct {
	// Client is the name under which the history shows who uses Kubeconfig.
	Client string
	// Intercept, when not nil, decides about each request before it is handled,
	// also about those that will be refused. It is called from several
	// goroutines, and may block until the context ends, which it does when the
	// client gives up or the connection breaks.
	Intercept func(ctx context.Context, request Request) Strike
	// Older refuses a watch that is to begin with the objects that there are, as API
	// servers do that do not know that.
	Older bool
}

// Request is a request that arrived.
type Request struct {
	// Client is the name under which the history shows who makes it.
	Client string
	// Verb is get, list, watch, create, update, patch, delete or evict.
	Verb string
	// Resource is the plural of the kind, in lower case.
	Resource string
	// Namespace and Name are those of the object, empty in a list; of a create,
	// the name is only known to its body and is empty as well.
	Namespace, Name string
	// Node is the name of the node concerned: that of a Node object, or where the
	// pod runs; empty otherwise.
	Node string
	// Number counts the server's requests from 1.
	Number int
	// Mutation counts those that may change something from 1; 0 for the others,
	// dry runs among them.
	Mutation int
}

// String names a request the way a person finds it again.
func (r Request) String() string {
	name := r.Resource
	if r.Name != "" {
		name += " " + r.Name
	}

	return fmt.Sprintf("%s %s (request %d, mutation %d)", r.Verb, name, r.Number, r.Mutation)
}

// Strike is what becomes of a request. The zero value lets it pass.
type Strike struct {
	Cut Cut
	// RetryAfter, when not zero, has the request refused with 429 and these seconds.
	RetryAfter time.Duration
	// Replied, when not nil, is called once the reply of a request that was not
	// cut is on its way; whether the client has read it is open.
	Replied func()
}

// Cut is when the connection of a request breaks. All other requests over it
// break with it.
type Cut int

const (
	// CutNot leaves the connection alone.
	CutNot Cut = iota
	// CutBefore breaks it before the request is handled.
	CutBefore
	// CutAfter breaks it when the request has been handled, without a reply.
	CutAfter
)

// Connections counts the connections of clients that are open.
func (s *Server) Connections() int {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()

	return len(s.network.open)
}

const (
	// anywhere is the address that leads to whichever API server runs, like a
	// virtual IP. Clients never ask a proxy about it.
	anywhere = "127.0.0.1"
	port     = "6443"
	pipeSize = 64 << 10
)

// network leads clients to the API servers of the control planes, and breaks
// the connections to those that stop. It is the listener of the HTTP server.
type network struct {
	world    *model.World
	arriving chan net.Conn
	done     chan struct{}

	mu    sync.Mutex
	open  map[*link]struct{}
	ended bool
}

func newNetwork(world *model.World) *network {
	return &network{world: world, arriving: make(chan net.Conn), done: make(chan struct{}), open: map[*link]struct{}{}}
}

// Accept implements net.Listener.
func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.arriving:
		return conn, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (n *network) Addr() net.Addr { return pipeAddr(net.JoinHostPort(anywhere, port)) }

// dial connects to a control plane by its address, or to whichever answers. It
// fails as TCP does where no API server listens.
func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED, Addr: pipeAddr(address)}

	host, at, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	machine := n.machine(host)
	if machine == "" || at != port {
		return nil, refused
	}

	near, far, err := pipes()
	if err != nil {
		return nil, err
	}

	made := n.add(far, machine)
	if made == nil {
		return nil, errors.Join(refused, near.Close(), far.Close())
	}

	select {
	case n.arriving <- made:
		// It may have stopped before the connection was known.
		n.follow(machine)

		return &patient{Conn: near}, nil
	case <-n.done:
		return nil, errors.Join(refused, near.Close(), made.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), near.Close(), made.Close())
	}
}

// pipes are the two ends of a connection.
func pipes() (near, far net.Conn, err error) {
	listener := pipe.Listen(pipeSize)
	accepted := make(chan net.Conn, 1)

	go func() {
		conn, err := listener.Accept()
		if err == nil {
			accepted <- conn
		}

		close(accepted)
	}()

	near, err = listener.Dial()
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}

	return near, <-accepted, listener.Close()
}

// machine is the control plane behind an address whose API server runs; empty
// for none.
func (n *network) machine(host string) string {
	for _, state := range n.world.Nodes() {
		if state.Role == model.ControlPlane && (host == anywhere || host == state.Address || host == state.Other) && n.world.APIServerUp(state.Name) {
			return state.Name
		}
	}

	return ""
}

// add keeps a connection in mind; nil when the network has ended.
func (n *network) add(conn net.Conn, machine string) *link {
	made := &link{Conn: conn, network: n, machine: machine}

	n.mu.Lock()
	defer n.mu.Unlock()

	if n.ended {
		return nil
	}

	n.open[made] = struct{}{}

	return made
}

// follow breaks the connections to API servers that do not run any more, also
// those whose machines have not changed themselves: etcd may have lost quorum.
func (n *network) follow(string) {
	n.sever(func(l *link) bool { return !n.world.APIServerUp(l.machine) })
}

func (n *network) sever(condemned func(*link) bool) {
	n.mu.Lock()

	open := make([]*link, 0, len(n.open))
	for one := range n.open {
		open = append(open, one)
	}
	n.mu.Unlock()

	for _, one := range open {
		if condemned(one) {
			_ = one.Close()
		}
	}
}

// Close implements net.Listener: it breaks all connections as well.
func (n *network) Close() error {
	n.mu.Lock()
	first := !n.ended
	n.ended = true
	n.mu.Unlock()

	if first {
		close(n.done)
	}

	n.sever(func(*link) bool { return true })

	return nil
}

type pipeAddr string

func (a pipeAddr) Network() string { return "tcp" }
func (a pipeAddr) String() string  { return string(a) }

// link is a machine's end of a connection.
type link struct {
	net.Conn
	network *network
	machine string
}

// Close implements net.Conn.
func (l *link) Close() error {
	l.network.mu.Lock()
	delete(l.network.open, l)
	l.network.mu.Unlock()

	return l.Conn.Close()
}

// patient is a client's end of a pipe that, like a TCP socket, still takes what
// is written after the other side has closed: what that side said last can be
// read before the connection ends.
type patient struct {
	net.Conn
	closed atomic.Bool
}

// Write implements net.Conn.
func (p *patient) Write(content []byte) (int, error) {
	written, err := p.Conn.Write(content)
	if errors.Is(err, io.ErrClosedPipe) && !p.closed.Load() {
		return len(content), nil
	}

	return written, err
}

// Close implements net.Conn.
func (p *patient) Close() error {
	p.closed.Store(true)

	return p.Conn.Close()
}
