// SPDX-License-Identifier: MPL-2.0

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
	"time"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// secured is an HTTP server that identifies its clients by their certificates.
type secured struct {
	way

	authority *certificate.Authority
	http      *http.Server
	serving   sync.WaitGroup
}

// secure prepares the server, which answers at the addresses.
func (l *secured) secure(handler http.Handler, addresses ...net.IP) error {
	var err error
	if l.authority, err = certificate.NewAuthority(pkix.Name{CommonName: "kubernetes"}); err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}

	pair, err := l.authority.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: append([]net.IP{net.ParseIP(anywhere)}, addresses...),
	})
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}

	serving, err := pair.TLS()
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}

	l.http = &http.Server{
		Handler: handler,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{serving},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: l.authority.Pool(),
		},
		ReadHeaderTimeout: time.Minute,
		ConnContext:       withConnection,
		// Errors of a connection concern only its client.
		ErrorLog: log.New(io.Discard, "", 0),
	}

	return nil
}

// accept serves the connections of a listener until it is closed.
func (l *secured) accept(listener net.Listener) {
	l.serving.Go(func() { _ = l.http.ServeTLS(listener, "", "") })
}

// end breaks the connections, and waits for the requests under way.
func (l *secured) end() {
	_ = l.http.Close()

	l.serving.Wait()
	l.work.Wait()
}

// refuse makes later requests fail.
func (l *secured) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.stopped = true
}

// identify issues the certificate of an administrator.
func (l *secured) identify(name string) (certificate.Pair, error) {
	return l.authority.Issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// kubeconfig returns that of an administrator for the server at an address, HOST:PORT.
func (l *secured) kubeconfig(address, user, context string) ([]byte, error) {
	identity, err := l.identify(user)
	if err != nil {
		return nil, err
	}

	name := l.server.world.ClusterName()

	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": context,
		"clusters": []any{map[string]any{"name": name, "cluster": map[string]any{
			"server":                     "https://" + address,
			"certificate-authority-data": base64.StdEncoding.EncodeToString(l.authority.PEM),
		}}},
		"users": []any{map[string]any{"name": user, "user": map[string]any{
			"client-certificate-data": base64.StdEncoding.EncodeToString(identity.Certificate),
			"client-key-data":         base64.StdEncoding.EncodeToString(identity.Key),
		}}},
		"contexts": []any{map[string]any{"name": context, "context": map[string]any{"cluster": name, "user": user}}},
	})
}

type connectionKey struct{}

// withConnection makes a connection known to its requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}

	return context.WithValue(ctx, connectionKey{}, conn)
}

// connectionOf returns the connection of a request, and the name in the certificate of its client.
func connectionOf(r *http.Request) (over net.Conn, client string) {
	over, known := r.Context().Value(connectionKey{}).(net.Conn)
	if !known || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		panic(http.ErrAbortHandler)
	}

	return over, r.TLS.PeerCertificates[0].Subject.CommonName
}

// Listener is the way to the API over pipes, with HTTP/2 and mutual TLS.
type Listener struct {
	secured

	network *network
	unwatch func()
}

// Listen lets clients connect until [Listener.Stop].
func (s *Server) Listen(options Options) (*Listener, error) {
	l := &Listener{secured: secured{way: way{server: s, options: options}}, network: newNetwork(s)}

	var addresses []net.IP

	for _, state := range s.world.KubeStates() {
		if state.Role == model.ControlPlane {
			addresses = append(addresses, net.ParseIP(state.Address))
		}
	}

	if err := l.secure(l, addresses...); err != nil {
		return nil, err
	}

	l.unwatch = s.world.OnChange(l.network.follow)
	l.accept(l.network)

	return l, nil
}

// Stop breaks all connections and waits for the requests under way. It may be called
// twice.
func (l *Listener) Stop() {
	l.refuse()
	l.unwatch()

	_ = l.network.Close()

	l.end()
}

// DialContext connects to an API server in memory, for the options of clients: at the address of the kubeconfig to
// any that runs, at that of a control plane with the port 6443 to that one.
func (l *Listener) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return l.network.dial(ctx, address)
}

// Kubeconfig returns that of an administrator with the given name in the history. It is empty if no certificate can
// be issued.
func (l *Listener) Kubeconfig(client string) []byte {
	text, err := l.kubeconfig(net.JoinHostPort(anywhere, port), client, l.server.world.ClusterName())
	if err != nil {
		return nil
	}

	return text
}

// ServeHTTP implements [http.Handler].
func (l *Listener) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	conn, client := connectionOf(r)

	over, known := conn.(*link)
	if !known {
		panic(http.ErrAbortHandler)
	}

	l.serve(out, r, &caller{who: clientNamed(client), machine: over.machine, cut: func() { _ = over.Close() }})
}

// Connections returns how many connections of clients are open.
func (l *Listener) Connections() int {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()

	return len(l.network.open)
}

const (
	// anywhere is the address that leads to any API server that runs, like a virtual IP. Clients never use a proxy
	// for it.
	anywhere = "127.0.0.1"
	port     = "6443"
	pipeSize = 64 << 10
)

// network connects clients to the API servers of the control planes, and breaks the connections to those that stop.
// It is the listener of the HTTP server.
type network struct {
	server   *Server
	arriving chan net.Conn
	done     chan struct{}

	mu    sync.Mutex
	open  map[*link]struct{}
	ended bool
}

func newNetwork(server *Server) *network {
	return &network{server: server, arriving: make(chan net.Conn), done: make(chan struct{}), open: map[*link]struct{}{}}
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
func (n *network) Addr() net.Addr { return pipe.Addr(net.JoinHostPort(anywhere, port)) }

// dial connects to a control plane by its address, or to any that answers. It fails as TCP does if no API server
// listens.
func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	host, at, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	if host == anywhere {
		host = ""
	}

	machine, up := n.server.answering(host)
	if !up || at != port {
		return nil, refused(address)
	}

	near, far, err := pipes()
	if err != nil {
		return nil, err
	}

	made := n.add(far, machine)
	if made == nil {
		return nil, errors.Join(refused(address), near.Close(), far.Close())
	}

	select {
	case n.arriving <- made:
		// The API server may have stopped before the connection was added.
		n.follow(machine)

		return pipe.Patient(near), nil
	case <-n.done:
		return nil, errors.Join(refused(address), near.Close(), made.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), near.Close(), made.Close())
	}
}

// pipes returns the two ends of a connection.
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

// add adds a connection to the open ones; nil if the network has ended.
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

// follow breaks the connections to API servers that do not run any more, including those of machines that have not
// changed themselves: etcd may have lost quorum.
func (n *network) follow(string) {
	n.sever(func(l *link) bool { return !n.server.beside && !n.server.world.APIServerUp(l.machine) })
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
