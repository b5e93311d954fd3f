// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// memory connects by pipes, at the machines' own addresses. It works inside a
// testing/synctest bubble.
type memory struct {
	// answers tells whether the machine at an address has an API just now.
	answers func(address string) bool
	// silent machines that do not answer refuse nothing.
	silent bool

	mu        sync.Mutex
	listeners map[string]*pipe.Listener
}

const pipeSize = 64 << 10

func newMemory(answers func(address string) bool, silent bool) *memory {
	return &memory{answers: answers, silent: silent, listeners: map[string]*pipe.Listener{}}
}

func (m *memory) reserve(machine string) (string, error) { return machine, nil }

func (m *memory) listen(address string) (net.Listener, error) {
	listener := pipe.Listen(pipeSize)

	m.mu.Lock()
	defer m.mu.Unlock()

	m.listeners[address] = listener

	return &memoryListener{Listener: listener, network: m, address: address}, nil
}

func (m *memory) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, strconv.Itoa(constants.ApidPort)
	}

	m.mu.Lock()
	listener := m.listeners[host]
	m.mu.Unlock()

	refused := &net.OpError{
		Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED,
		Addr: memoryAddr(net.JoinHostPort(host, port)),
	}

	if m.silent && !m.answers(host) {
		<-ctx.Done()

		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded, Addr: refused.Addr}
	}

	if listener == nil || !m.answers(host) || port != strconv.Itoa(constants.ApidPort) {
		return nil, refused
	}

	conn, err := listener.DialContext(ctx)
	if err != nil {
		return nil, refused
	}

	return &patient{Conn: conn}, nil
}

func (m *memory) close() {}

// memoryListener is gone from its network once it is closed.
type memoryListener struct {
	*pipe.Listener
	network *memory
	address string
}

// Close implements net.Listener.
func (l *memoryListener) Close() error {
	l.network.mu.Lock()

	if l.network.listeners[l.address] == l.Listener {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()

	return l.Listener.Close()
}

type memoryAddr string

func (a memoryAddr) Network() string { return "tcp" }
func (a memoryAddr) String() string  { return string(a) }

// patient is a client's end of a pipe that, like a TCP socket, still takes
// what is written after the other side has closed: what that side said last
// can be read before the connection ends.
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
