// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"net"
	"sync"
)

// lines are the connections of a client, so that none outlives it: a transport
// keeps one that was still being made when its idle connections were closed.
type lines struct {
	open dialFunc

	mu     sync.Mutex
	made   map[*line]struct{}
	closed bool
}

func newLines(open dialFunc) *lines { return &lines{open: open, made: map[*line]struct{}{}} }

// dial makes a connection. The error is net.ErrClosed after the end.
func (l *lines) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.ended() {
		return nil, net.ErrClosed
	}

	conn, err := l.open(ctx, network, address)
	if err != nil {
		return nil, err
	}

	made := &line{Conn: conn, of: l}

	if !l.add(made) {
		_ = conn.Close()

		return nil, net.ErrClosed
	}

	return made, nil
}

func (l *lines) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.closed
}

// add is false after the end.
func (l *lines) add(made *line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.closed {
		l.made[made] = struct{}{}
	}

	return !l.closed
}

func (l *lines) remove(gone *line) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.made, gone)
}

func (l *lines) close() {
	l.mu.Lock()
	l.closed = true
	left := l.made
	l.made = map[*line]struct{}{}
	l.mu.Unlock()

	for conn := range left {
		_ = conn.Conn.Close()
	}
}

// line is one connection.
type line struct {
	net.Conn

	of *lines
}

// Close implements [net.Conn].
func (l *line) Close() error {
	l.of.remove(l)

	return l.Conn.Close()
}
