// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
)

// server is an API server with one namespace, over HTTP/2 as the real one.
type server struct {
	*httptest.Server

	requests atomic.Int32
}

func (s *server) address() string { return s.Listener.Addr().String() }

func newServer(t *testing.T, certificate func(*httptest.Server)) *server {
	t.Helper()

	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		s.requests.Add(1)

		if request.ProtoMajor != 2 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)

			return
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u"}}`)
	}))
	s.EnableHTTP2 = true

	if certificate != nil {
		certificate(s.Server)
	}

	s.StartTLS()
	t.Cleanup(s.Close)

	return s
}

// front is where connections really go: addresses that a test invents, each of
// which leads to a server or is down.
type front struct {
	mu    sync.Mutex
	ways  map[string]string
	dials []string
	conns []*frozenConn
}

// frozenConn is a connection that can be made to say nothing any more.
type frozenConn struct {
	net.Conn

	frozen atomic.Bool
}

func (c *frozenConn) Read(buffer []byte) (int, error) {
	for {
		count, err := c.Conn.Read(buffer)
		if err != nil || !c.frozen.Load() {
			return count, err
		}
	}
}

func (c *frozenConn) Write(data []byte) (int, error) {
	if c.frozen.Load() {
		return len(data), nil
	}

	return c.Conn.Write(data)
}

// freeze silences every connection that is open.
func (f *front) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, conn := range f.conns {
		conn.frozen.Store(true)
	}
}

func (f *front) leads(address, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.ways[address] = to
}

// taken are the addresses that were dialled since the last call.
func (f *front) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	taken := f.dials
	f.dials = nil

	return taken
}

func (f *front) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dials = append(f.dials, address)
	to := f.ways[address]
	f.mu.Unlock()

	switch to {
	case "":
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case "nowhere":
		<-ctx.Done()

		return nil, ctx.Err()
	}

	raw, err := (&net.Dialer{}).DialContext(ctx, network, to)
	if err != nil {
		return nil, err
	}

	conn := &frozenConn{Conn: raw}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.conns = append(f.conns, conn)

	return conn, nil
}

// own is the server of the kubeconfig. The certificate of test servers is for
// this name.
const own = "example.com:6443"

func (f *front) client(t *testing.T, issuer *server, extra string, alternatives ...string) *kubeapi.Client {
	t.Helper()

	if !strings.Contains(extra, "insecure") {
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw})
		extra += ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(authority)
	}

	kubeconfig := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q%s}}]\ncontexts: [{name: a, context: {cluster: c}}]\n", "https://"+own, extra)

	client, err := kubeapi.New([]byte(kubeconfig), "", kubeapi.Options{
		DialContext: f.dial, Alternatives: func() []string { return alternatives },
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	return client
}

// foreignCertificate gives a server a certificate for the same name by another
// authority.
func foreignCertificate(t *testing.T) func(*httptest.Server) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}

	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	return func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	}
}
