// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout bounds a connection to a process on the same machine.
const dialTimeout = 5 * time.Second

// gate is a port on the loopback that leads to the real API server while it is
// open. While it is closed the port refuses connections, and closing it resets
// those that exist, as a machine that goes down does.
type gate struct {
	port   int
	target string
	// lose is asked before each piece of an answer goes to its client whether it is to
	// be lost, and cuts the connections then; nil never does.
	lose func(cut func()) bool
	// sent are the bytes that clients were answered.
	sent atomic.Int64

	mutex sync.Mutex
	// owner is who new connections belong to.
	owner    string
	listener net.Listener
	// live holds both ends of each connection, with its owner.
	live map[*link]string
	wait sync.WaitGroup
}

// link is one connection through a gate.
type link struct{ client, server net.Conn }

// newGate reserves a port and leaves it open.
func newGate(target, owner string, lose func(cut func()) bool) (*gate, error) {
	listener, err := listenAnywhere()
	if err != nil {
		return nil, err
	}

	g := &gate{
		port:   portOf(listener),
		target: target,
		owner:  owner,
		lose:   lose,
		live:   map[*link]string{},
	}
	g.serve(listener)

	return g, nil
}

// open lets new connections in, on behalf of the owner; those of other owners
// are reset.
func (g *gate) open(owner string) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	g.owner = owner
	g.cut(func(other string) bool { return other != owner })

	if g.listener != nil {
		return nil
	}

	listener, err := net.Listen("tcp", hostPort(g.port))
	if err != nil {
		return fmt.Errorf("taking port %d back: %w", g.port, err)
	}

	g.serve(listener)

	return nil
}

// close refuses new connections and resets the live ones.
func (g *gate) close() {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	if g.listener != nil {
		// Closing a listener fails only when it is closed already.
		_ = g.listener.Close()
		g.listener = nil
	}

	g.cut(func(string) bool { return true })
}

// stop closes the gate for good and waits for everything that runs in it.
func (g *gate) stop() {
	g.close()
	g.wait.Wait()
}

// cut resets the connections of the owners in question; with the lock held.
func (g *gate) cut(doomed func(owner string) bool) {
	for connection, owner := range g.live {
		if doomed(owner) {
			connection.reset()
			delete(g.live, connection)
		}
	}
}

// serve accepts from the listener until it is closed; with the lock held, or
// before anybody else knows the gate.
func (g *gate) serve(listener net.Listener) {
	g.listener = listener

	g.wait.Go(func() {
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}

			if err == nil {
				g.wait.Go(func() { g.pass(listener, client) })
			}
		}
	})
}

// pass copies bytes in both directions until either side ends.
func (g *gate) pass(listener net.Listener, client net.Conn) {
	server, err := net.DialTimeout("tcp", g.target, dialTimeout)
	if err != nil {
		_ = client.Close()

		return
	}

	connection := &link{client: client, server: server}

	if !g.admit(listener, connection) {
		connection.reset()

		return
	}

	var copying sync.WaitGroup

	copying.Go(func() { forward(server, client) })
	copying.Go(func() { forward(client, &answer{Conn: server, gate: g}) })
	copying.Wait()

	g.mutex.Lock()
	delete(g.live, connection)
	g.mutex.Unlock()

	connection.close()
}

// admit registers a connection, unless the gate was closed while it was made.
func (g *gate) admit(listener net.Listener, connection *link) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	if g.listener != listener {
		return false
	}

	g.live[connection] = g.owner

	return true
}

// forward copies until from ends, and then tells to. An error of either side is
// the end of the connection and nothing else.
func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)

	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}

// answer is what a server sends, as far as it is to reach the client.
type answer struct {
	net.Conn

	gate *gate
}

// Read returns a piece of the answer unless it is to be lost.
func (a *answer) Read(piece []byte) (int, error) {
	count, err := a.Conn.Read(piece)

	if count > 0 && a.gate.lose != nil && a.gate.lose(a.gate.cutAll) {
		return 0, net.ErrClosed
	}

	a.gate.sent.Add(int64(count))

	return count, err
}

// cutAll resets all connections.
func (g *gate) cutAll() {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	g.cut(func(string) bool { return true })
}

func (l *link) reset() {
	for _, side := range []net.Conn{l.client, l.server} {
		if tcp, ok := side.(*net.TCPConn); ok {
			// A reset instead of an orderly end, and no port left in TIME_WAIT.
			_ = tcp.SetLinger(0)
		}
	}

	l.close()
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}
