// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

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
	world    *model.World
	arriving chan net.Conn
	done     chan struct{}

	mu    sync.Mutex
	open  map[*link]struct{}
	ended bool
}

func newNetwork(world *model.World) *network {
	return &network{world: world, arriving: make(chan net.Conn), done: make(chan struct{}), open: map[*link]struct{}{}}
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
func (n *network) Addr() net.Addr { return pipeAddr(net.JoinHostPort(anywhere, port)) }

// dial connects to a control plane by its address, or to whichever answers. It
// fails as TCP does where no API server listens.
func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED, Addr: pipeAddr(address)}

	host, at, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	machine := n.machine(host)
	if machine == "" || at != port {
		return nil, refused
	}

	near, far, err := pipes()
	if err != nil {
		return nil, err
	}

	made := n.add(far, machine)
	if made == nil {
		return nil, errors.Join(refused, near.Close(), far.Close())
	}

	select {
	case n.arriving <- made:
		// It may have stopped before the connection was known.
		n.follow(machine)

		return &patient{Conn: near}, nil
	case <-n.done:
		return nil, errors.Join(refused, near.Close(), made.Close())
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

// machine is the control plane behind an address whose API server runs; empty
// for none.
func (n *network) machine(host string) string {
	for _, state := range n.world.Nodes() {
		if state.Role == model.ControlPlane && (host == anywhere || host == state.Address || host == state.Other) && n.world.APIServerUp(state.Name) {
			return state.Name
		}
	}

	return ""
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
	n.sever(func(l *link) bool { return !n.world.APIServerUp(l.machine) })
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

type pipeAddr string

func (a pipeAddr) Network() string { return "tcp" }
func (a pipeAddr) String() string  { return string(a) }

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

// patient is a client's end of a pipe that, like a TCP socket, still takes what
// is written after the other side has closed: what that side said last can be
// read before the connection ends.
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
