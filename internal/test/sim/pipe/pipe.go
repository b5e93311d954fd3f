// SPDX-License-Identifier: MPL-2.0

// Package pipe connects in memory, for simulations in virtual time: it works inside a testing/synctest bubble, also
// under the race detector.
package pipe

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// Listener takes connections that were made with its Dial.
type Listener struct {
	*bufconn.Listener
}

// Listen returns a listener whose connections buffer size bytes in each direction.
func Listen(size int) *Listener { return &Listener{Listener: bufconn.Listen(size)} }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) { return punctual(l.Listener.Accept()) }

// Dial connects to the listener.
func (l *Listener) Dial() (net.Conn, error) { return punctual(l.Listener.Dial()) }

// DialContext connects to the listener, unless the context ends before.
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	return punctual(l.Listener.DialContext(ctx))
}

func punctual(opened net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}

	return conn{Conn: opened}, nil
}

// conn sets no timer that is due at once. In a bubble such a timer runs on the goroutine that made it, with the one
// race context of all timers of the bubble (runtime.(*timer).modify and unlockAndRun, Go 1.26): two of them at a
// time destroy the race detector's memory. Closing a TLS connection and answering an HTTP request set a deadline
// that has passed.
type conn struct {
	net.Conn
}

// SetDeadline implements net.Conn.
func (c conn) SetDeadline(at time.Time) error { return c.Conn.SetDeadline(upcoming(at)) }

// SetReadDeadline implements net.Conn.
func (c conn) SetReadDeadline(at time.Time) error { return c.Conn.SetReadDeadline(upcoming(at)) }

// SetWriteDeadline implements net.Conn.
func (c conn) SetWriteDeadline(at time.Time) error { return c.Conn.SetWriteDeadline(upcoming(at)) }

// upcoming returns a deadline that is still to come, or none.
func upcoming(at time.Time) time.Time {
	if soonest := time.Now().Add(time.Nanosecond); !at.IsZero() && at.Before(soonest) {
		return soonest
	}

	return at
}

// Patient returns a client's end of a pipe that, like a TCP socket, still accepts writes after the other side has
// closed: what that side wrote last can be read before the connection ends.
func Patient(end net.Conn) net.Conn { return &patient{Conn: end} }

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

// Addr is an address of such connections.
type Addr string

// Network implements net.Addr.
func (a Addr) Network() string { return "tcp" }

// String implements net.Addr.
func (a Addr) String() string { return string(a) }
