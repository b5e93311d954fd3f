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

// Listener is the way to the API over pipes, with HTTP/2 and mutual TLS.
type Listener struct {
	way

	authority *certificate.Authority
	network   *network
	http      *http.Server
	unwatch   func()
	serving   sync.WaitGroup
}

// Listen lets clients connect, until [Listener.Stop].
func (s *Server) Listen(options Options) (*Listener, error) {
	l := &Listener{way: way{server: s, options: options}, network: newNetwork(s)}

	var err error
	if l.authority, err = certificate.NewAuthority(pkix.Name{CommonName: "kubernetes"}); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	addresses := []net.IP{net.ParseIP(anywhere)}

	for _, state := range s.world.KubeStates() {
		if state.Role == model.ControlPlane {
			addresses = append(addresses, net.ParseIP(state.Address))
		}
	}

	pair, err := l.authority.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: addresses,
	})
	if err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	serving, err := pair.TLS()
	if err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	l.http = &http.Server{
		Handler: l,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{serving},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: l.authority.Pool(),
		},
		ReadHeaderTimeout: time.Minute,
		ConnContext:       withLink,
		// What goes wrong with a connection is the affair of its client.
		ErrorLog: log.New(io.Discard, "", 0),
	}

	l.unwatch = s.world.OnChange(l.network.follow)

	l.serving.Go(func() {
		// It ends with the network.
		_ = l.http.ServeTLS(l.network, "", "")
	})

	return l, nil
}

// Stop breaks all connections and waits for the requests under way. It may be called
// twice.
func (l *Listener) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()

	l.unwatch()

	_ = l.network.Close()
	_ = l.http.Close()

	l.serving.Wait()
	l.work.Wait()
}

// DialContext connects to an API server in memory, for the options of clients:
// to the address of the kubeconfig, behind which is whichever runs, or to that of
// a control plane with the port 6443.
func (l *Listener) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return l.network.dial(ctx, address)
}

// Kubeconfig is that of an administrator, whom the history shows under a name. It is
// empty if no certificate can be made.
func (l *Listener) Kubeconfig(client string) []byte {
	identity, err := l.authority.Issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: client, Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil
	}

	name := l.server.world.ClusterName()

	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []any{map[string]any{"name": name, "cluster": map[string]any{
			"server":                     "https://" + net.JoinHostPort(anywhere, port),
			"certificate-authority-data": base64.StdEncoding.EncodeToString(l.authority.PEM),
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

// ServeHTTP implements [http.Handler].
func (l *Listener) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	over, known := r.Context().Value(linkKey{}).(*link)
	if !known || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		panic(http.ErrAbortHandler)
	}

	l.serve(out, r, &caller{
		who: clientNamed(r.TLS.PeerCertificates[0].Subject.CommonName), machine: over.machine, cut: func() { _ = over.Close() },
	})
}

type linkKey struct{}

// withLink has the requests of a connection know it.
func withLink(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}

	return context.WithValue(ctx, linkKey{}, conn)
}

// Connections counts the connections of clients that are open.
func (l *Listener) Connections() int {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()

	return len(l.network.open)
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

// dial connects to a control plane by its address, or to whichever answers. It
// fails as TCP does where no API server listens.
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
		// It may have stopped before the connection was known.
		n.follow(machine)

		return pipe.Patient(near), nil
	case <-n.done:
		return nil, errors.Join(refused(address), near.Close(), made.Close())
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
