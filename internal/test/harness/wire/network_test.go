// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// network is how one process reaches the cluster: it knows all of its sockets.
type network struct {
	mu   sync.Mutex
	open map[*socket]struct{}
	// dead tells that the process has ended: its sockets went with it.
	dead bool
	// silent are the hosts that swallow what is sent to them.
	silent map[string]bool
	// fuse is asked of a socket that broke, before its owner learns of it.
	fuse func(host string)
	// made counts the sockets by host.
	made map[string]int
}

func newNetwork() *network {
	return &network{open: map[*socket]struct{}{}, silent: map[string]bool{}, made: map[string]int{}}
}

// dial opens a socket to an address.
func (n *network) dial(ctx context.Context, address string, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}

	n.mu.Lock()
	dead, silent := n.dead, n.silent[host]
	n.mu.Unlock()

	switch {
	case dead:
		return nil, net.ErrClosed
	case silent:
		<-ctx.Done()

		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Cause(ctx)}
	}

	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}

	made := &socket{Conn: conn, network: n, host: host, gone: make(chan struct{})}

	n.mu.Lock()
	defer n.mu.Unlock()

	if n.dead {
		_ = conn.Close()

		return nil, net.ErrClosed
	}

	n.open[made] = struct{}{}
	n.made[host]++

	return made, nil
}

// die closes all sockets, as the end of a process does.
func (n *network) die() {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()

	n.sever(func(string) bool { return true })
}

// sever breaks the sockets to some hosts.
func (n *network) sever(which func(host string) bool) {
	for _, socket := range n.sockets(which) {
		_ = socket.Conn.Close()
	}
}

// silence lets a host lose its power: nothing comes back from it, not even that
// it is gone.
func (n *network) silence(host string) {
	n.mu.Lock()
	n.silent[host] = true
	n.mu.Unlock()

	for _, socket := range n.sockets(func(at string) bool { return at == host }) {
		socket.lose()
	}
}

// revive lets a host answer again; of what it was told before it knows nothing.
func (n *network) revive(host string) {
	n.mu.Lock()
	delete(n.silent, host)
	n.mu.Unlock()
}

func (n *network) sockets(which func(host string) bool) []*socket {
	n.mu.Lock()
	defer n.mu.Unlock()

	var found []*socket

	for socket := range n.open {
		if which(socket.host) {
			found = append(found, socket)
		}
	}

	return found
}

// count are the sockets that are open.
func (n *network) count() int { return len(n.sockets(func(string) bool { return true })) }

// dialled is how often a socket to the host was opened.
func (n *network) dialled(host string) int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.made[host]
}

func (n *network) quiet(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.silent[host]
}

// onBreak arms the fuse.
func (n *network) onBreak(fuse func(host string)) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.fuse = fuse
}

// socket is a client's end of a connection.
type socket struct {
	net.Conn

	network *network
	host    string

	mu sync.Mutex
	// lost tells that the other side is gone and has not said so.
	lost   bool
	closed bool
	gone   chan struct{}
}

// Read implements [net.Conn].
func (s *socket) Read(content []byte) (int, error) {
	count, err := s.Conn.Read(content)

	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()

	if lost {
		// Nothing comes any more, until somebody closes this end.
		<-s.gone

		return 0, net.ErrClosed
	}

	if err != nil {
		s.network.mu.Lock()
		fuse := s.network.fuse
		s.network.mu.Unlock()

		if fuse != nil {
			fuse(s.host)
		}
	}

	return count, err
}

// Write implements [net.Conn].
func (s *socket) Write(content []byte) (int, error) {
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()

	switch {
	case !lost:
		return s.Conn.Write(content)
	case s.network.quiet(s.host):
		return len(content), nil
	default:
		// Whoever is there now has never heard of the connection.
		_ = s.Close()

		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	}
}

// Close implements [net.Conn].
func (s *socket) Close() error {
	s.network.mu.Lock()
	delete(s.network.open, s)
	s.network.mu.Unlock()

	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.gone)
	}
	s.mu.Unlock()

	return s.Conn.Close()
}

// lose has the other side vanish.
func (s *socket) lose() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
}
