// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// network is where endpoints listen: on sockets of this host, or in memory.
type network interface {
	// reserve takes an address for a machine for as long as the server lives;
	// nothing listens there until listen.
	reserve(machine string) (address string, err error)
	listen(address string) (net.Listener, error)
	dial(ctx context.Context, address string) (net.Conn, error)
	// close gives all addresses back.
	close()
}

// sockets listens on random ports of the loopback interface.
type sockets struct {
	mu    sync.Mutex
	holds []func()
}

func (s *sockets) reserve(string) (string, error) {
	port, release, err := holdPort()
	if err != nil {
		return "", fmt.Errorf("no free port on 127.0.0.1: %w", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.holds = append(s.holds, release)

	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

func (s *sockets) listen(address string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return sharePort(raw)
	}}

	return config.Listen(context.Background(), "tcp", address)
}

func (s *sockets) dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, release := range s.holds {
		release()
	}

	s.holds = nil
}
