// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDial_OwnServerIsTriedAgain(t *testing.T) {
	t.Parallel()

	now := time.Unix(1000, 0)
	d := &dialer{now: func() time.Time { return now }}

	if got := d.preferred(); got != "" {
		t.Errorf("at first %q is preferred", got)
	}

	d.choose("10.0.0.2:6443")

	for after, want := range map[time.Duration]string{0: "10.0.0.2:6443", preferAfter - 1: "10.0.0.2:6443"} {
		now = time.Unix(1000, 0).Add(after)

		if got := d.preferred(); got != want {
			t.Errorf("after %s %q is preferred, want %q", after, got, want)
		}
	}

	now = time.Unix(1000, 0).Add(preferAfter)

	if got := d.preferred(); got != "" {
		t.Errorf("after %s %q is still preferred", preferAfter, got)
	}
}

// TestDial_ProxyIsCalledByItsOwnName: a proxy cannot prove the name that the kubeconfig gives the API server
// (tls-server-name).
func TestDial_ProxyIsCalledByItsOwnName(t *testing.T) {
	t.Parallel()

	proxy := httptest.NewTLSServer(nil)
	t.Cleanup(proxy.Close)

	transport, ok := proxy.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatalf("the transport is %T", proxy.Client().Transport)
	}

	config := transport.TLSClientConfig.Clone()
	config.ServerName = "kubernetes.default.svc"

	d := newDialer((&net.Dialer{}).DialContext, config, "10.0.0.1:6443", func() []string { return nil })

	conn, err := d.connect(t.Context(), "tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	encrypted, ok := conn.(*tls.Conn)
	if !ok {
		t.Fatalf("the connection is %T", conn)
	}

	if state := encrypted.ConnectionState(); state.NegotiatedProtocol != "" || state.ServerName == config.ServerName {
		t.Errorf("%q is spoken to %q", state.NegotiatedProtocol, state.ServerName)
	}

	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestDial_SilentProxyIsNotWaitedFor(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		d := newDialer(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, &tls.Config{}, "10.0.0.1:6443", nil)

		go func() { _, _ = io.Copy(io.Discard, theirs) }()

		started := time.Now()

		_, err := d.connect(t.Context(), "tcp", "proxy.example.com:3128")
		if took := time.Since(started); !errors.Is(err, context.DeadlineExceeded) || took != dialTimeout || !strings.Contains(err.Error(), "proxy.example.com:3128") {
			t.Errorf("%v after %s, want the end after %s", err, took, dialTimeout)
		}
	})
}

func TestDial_ConnectionsEndTogether(t *testing.T) {
	t.Parallel()

	var far []net.Conn

	all := newLines(func(context.Context, string, string) (net.Conn, error) {
		near, end := net.Pipe()
		far = append(far, end)

		return near, nil
	})

	dial := func() net.Conn {
		conn, err := all.dial(t.Context(), "tcp", "10.0.0.1:6443")
		if err != nil {
			t.Fatal(err)
		}

		return conn
	}

	dial()

	if err := dial().Close(); err != nil || len(all.made) != 1 {
		t.Errorf("%v, %d connections are remembered, want the one that is open", err, len(all.made))
	}

	all.close()

	for index, conn := range far {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("connection %d: %v, want its end", index, err)
		}
	}

	if _, err := all.dial(t.Context(), "tcp", "10.0.0.1:6443"); !errors.Is(err, net.ErrClosed) || len(far) != 2 {
		t.Errorf("%v after the end, with %d connections", err, len(far))
	}
}
