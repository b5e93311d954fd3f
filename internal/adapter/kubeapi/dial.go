// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// tryTimeout bounds the way to one API server, handshake included, where
	// there are others to try: three fit into one call.
	tryTimeout = 3 * time.Second
	// preferAfter is how long an alternative that answered is asked first,
	// before the server of the kubeconfig gets its next chance.
	preferAfter = time.Minute
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer connects to the API server that the kubeconfig names or, where that
// one is down, to another one of the same cluster. It carries out the handshake
// itself, and always for the name in the kubeconfig: a server that cannot prove
// to be meant is as good as none.
type dialer struct {
	dial dialFunc
	tls  *tls.Config
	// own is host:port of the kubeconfig's server.
	own          string
	alternatives func() []string
	now          func() time.Time

	mu sync.Mutex
	// chosen is the alternative that answered last, at the time since.
	chosen string
	since  time.Time
}

func newDialer(dial dialFunc, config *tls.Config, own string, alternatives func() []string) *dialer {
	config = config.Clone()
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}

	return &dialer{dial: dial, tls: config, own: own, alternatives: alternatives, now: time.Now}
}

// connect is the DialTLSContext of the transport.
func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if address != d.own {
		return d.proxy(ctx, network, address)
	}

	chosen := d.preferred()
	if chosen != "" {
		if conn, err := d.try(ctx, network, chosen); err == nil {
			return conn, nil
		}

		d.choose("")
	}

	conn, err := d.try(ctx, network, d.own)
	if err == nil || ctx.Err() != nil || rejectsCredentials(err.Error()) {
		return conn, err
	}

	return d.elsewhere(ctx, network, chosen, err)
}

// proxy connects to a proxy that the environment names. It is spoken to in
// HTTP/1.1, and called by its own name whatever the kubeconfig calls the server.
func (d *dialer) proxy(ctx context.Context, network, address string) (net.Conn, error) {
	config := d.tls.Clone()
	config.NextProtos, config.ServerName = nil, ""

	proxyCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()

	conn, err := handshake(proxyCtx, d.dial, config, network, address, address)
	if err != nil && proxyCtx.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer from proxy %s within %s: %w", address, dialTimeout, err)
	}

	return conn, err
}

// elsewhere tries the alternatives in turn, but for the one that has failed
// already. The error is the one of the kubeconfig's own server, which is what
// people can look up.
func (d *dialer) elsewhere(ctx context.Context, network, failed string, own error) (net.Conn, error) {
	var tried []string

	if failed != "" {
		tried = append(tried, failed)
	}

	for _, address := range d.alternatives() {
		if address == d.own || slices.Contains(tried, address) || ctx.Err() != nil {
			continue
		}

		conn, err := d.try(ctx, network, address)
		if err == nil {
			d.choose(address)

			return conn, nil
		}

		if rejectsCredentials(err.Error()) {
			address += " (which is not an API server of this cluster)"
		}

		tried = append(tried, address)
	}

	if len(tried) == 0 {
		return nil, own
	}

	return nil, fmt.Errorf("%w; neither could be connected to: %s", own, strings.Join(tried, ", "))
}

func (d *dialer) try(ctx context.Context, network, address string) (net.Conn, error) {
	tryCtx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()

	conn, err := handshake(tryCtx, d.dial, d.tls, network, address, d.own)
	if err != nil && tryCtx.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer from %s within %s: %w", address, tryTimeout, err)
	}

	return conn, err
}

// handshake connects to the address and expects the certificate of the host of
// the other one.
func handshake(ctx context.Context, dial dialFunc, config *tls.Config, network, address, expected string) (net.Conn, error) {
	raw, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}

	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(expected)
		if err != nil {
			return nil, errors.Join(err, raw.Close())
		}

		config = config.Clone()
		config.ServerName = host
	}

	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()

		return nil, err
	}

	return conn, nil
}

// preferred is the alternative to be asked first; empty for none.
func (d *dialer) preferred() string {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.chosen != "" && d.now().Sub(d.since) >= preferAfter {
		d.chosen = ""
	}

	return d.chosen
}

func (d *dialer) choose(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.chosen, d.since = address, d.now()
}
