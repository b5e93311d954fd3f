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
