// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// clockedNode is an endpoint whose certificate and clock are what a test wants.
type clockedNode struct {
	machineapi.UnimplementedMachineServiceServer

	*testing.T

	caKey     *ecdsa.PrivateKey
	authority *x509.Certificate

	mu       sync.Mutex
	listener *pipe.Listener
}

func newClockedNode(t *testing.T) *clockedNode {
	t.Helper()

	key, der := issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(24 * time.Hour),
	}, nil, nil)

	authority, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return &clockedNode{T: t, caKey: key, authority: authority}
}

func (n *clockedNode) Reboot(context.Context, *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	return &machineapi.RebootResponse{}, nil
}

// serve answers with a certificate that is valid in that time, until the returned function is called.
func (n *clockedNode) serve(from, to time.Time) (stop func()) {
	n.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		n.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.ParseIP(cp0)}}

	der, err := x509.CreateCertificate(rand.Reader, template, n.authority, &key.PublicKey, n.caKey)
	if err != nil {
		n.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(n.authority)

	listener := pipe.Listen(1 << 16)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12,
	})))
	machineapi.RegisterMachineServiceServer(server, n)

	served := make(chan error, 1)

	go func() { served <- server.Serve(listener) }()

	n.mu.Lock()
	n.listener = listener
	n.mu.Unlock()

	return func() {
		server.Stop()

		if err := <-served; err != nil {
			n.Error(err)
		}
	}
}

// client connects to whatever serves now, with a certificate that is valid until
// then.
func (n *clockedNode) client(until time.Time) *talosapi.Client {
	n.Helper()

	key, leaf := issue(n.T, &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"os:admin"}}, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, n.authority, n.caKey)

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		n.Fatal(err)
	}

	config, err := talosapi.ConfigFromParts([]string{cp0}, armour("CERTIFICATE", n.authority.Raw), armour("CERTIFICATE", leaf), armour("PRIVATE KEY", der))
	if err != nil {
		n.Fatal(err)
	}

	made, err := talosapi.New(config, talosapi.Options{DialContext: func(ctx context.Context, _ string) (net.Conn, error) {
		n.mu.Lock()
		listener := n.listener
		n.mu.Unlock()

		return listener.DialContext(ctx)
	}})
	if err != nil {
		n.Fatal(err)
	}

	n.Cleanup(func() {
		if err := made.Close(); err != nil {
			n.Error(err)
		}
	})

	return made
}

// failsWith reboots a node and fails the test unless that ends at once, with
// nothing done, for that reason.
func (n *clockedNode) failsWith(c *talosapi.Client, want error, says ...string) {
	n.Helper()

	started := time.Now()

	err := c.Reboot(n.Context(), cp0, cluster.RebootDefault)
	if !errors.Is(err, want) || errors.Is(err, cluster.ErrOutcomeUnknown) || cluster.Heals(err) != cluster.Heals(want) {
		n.Errorf("%v, want %q", err, want)
	}

	for _, part := range says {
		if err != nil && !strings.Contains(err.Error(), part) {
			n.Errorf("%v, want it to say %q", err, part)
		}
	}

	if took := time.Since(started); took > 10*time.Second {
		n.Errorf("it took %s", took)
	}
}

// All of these have the code of a node that reboots, and none of them heals.
func TestCatalogue27CertificateExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, now := newClockedNode(t), time.Now()

		stop := node.serve(now.Add(-time.Hour), now.Add(time.Hour))
		node.failsWith(node.client(now.Add(-time.Minute)), cluster.ErrCredentials, "the client certificate expired on "+now.Add(-time.Minute).UTC().Format(time.RFC3339))

		foreign := newClockedNode(t)
		foreign.listener = node.listener
		foreign.failsWith(foreign.client(now.Add(time.Hour)), cluster.ErrCredentials, "belongs to another cluster or is out of date")
		stop()

		stop = node.serve(now.Add(-2*time.Hour), now.Add(-time.Hour))
		node.failsWith(node.client(now.Add(time.Hour)), cluster.ErrCredentials, "certificate has expired or is not yet valid", "clock")
		stop()
	})
}

// A clock that is wrong makes a certificate of today look expired. Where the
// credentials were never accepted that fails at once and speaks of clocks. Where
// they were, it is the clock of a node that has just booted, and heals.
func TestCatalogue28ClockSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, now := newClockedNode(t), time.Now()
		valid := now.Add(time.Hour)

		for name, skewed := range map[string]func() (stop func()){
			"the node issued its own in our future":       func() func() { return node.serve(now.Add(30*time.Minute), valid) },
			"the node issued its own in our distant past": func() func() { return node.serve(now.Add(-48*time.Hour), now.Add(-24*time.Hour)) },
		} {
			stop := skewed()
			node.failsWith(node.client(valid), cluster.ErrCredentials, "clock")
			stop()

			stop = node.serve(now.Add(-time.Hour), valid)
			known := node.client(valid)

			if err := known.Reboot(t.Context(), cp0, cluster.RebootDefault); err != nil {
				t.Fatalf("%s: before: %v", name, err)
			}

			stop()
			// What the connection still has to say about that is not meant.
			synctest.Wait()

			stop = skewed()
			node.failsWith(known, cluster.ErrUnreachable, "clock")
			stop()

			stop = node.serve(now.Add(-time.Hour), valid)

			// The connection is tried again after a pause of its own.
			time.Sleep(3 * time.Second)

			if err := known.Reboot(t.Context(), cp0, cluster.RebootDefault); err != nil {
				t.Errorf("%s: with its clock right: %v", name, err)
			}

			stop()
		}
	})
}
