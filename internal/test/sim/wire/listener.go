// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"errors"
	"net"
	"sync"
)

// cuttable is a listener that can break everything it ever accepted, also
// connections whose handshake is not over.
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
