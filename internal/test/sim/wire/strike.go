// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/siderolabs/grpc-proxy/proxy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Call is a call that reached an endpoint.
type Call struct {
	// Client is the first word of the caller's user agent.
	Client string
	// Method is the full name, as in "/machine.MachineService/Reboot".
	Method string
	// Node is the machine concerned, by its name if it has one.
	Node string
	// Through is the machine whose endpoint took the call.
	Through string
	// Mutates is true if the method changes a machine.
	Mutates bool
}

// Strike is what happens to a call. The zero value lets it pass.
type Strike struct {
	Cut Cut
	// Replied, if not nil, is called after a call that was not cut has been handled and its reply was sent; the
	// client may not have read it yet.
	Replied func()
}

// Cut is when the connection of a call breaks. All other calls over it break
// with it.
type Cut int

const (
	// CutNot leaves the connection alone.
	CutNot Cut = iota
	// CutBefore breaks it before the call is passed on to the machine.
	CutBefore
	// CutAfter breaks it after the call has been handled. The client gets the messages of the machine except the
	// last one, which has the result.
	CutAfter
	// EndBefore ends the call instead of passing it on, without a message and without an error, and leaves the
	// connection alone: a stream looks like this if its server stops gracefully.
	EndBefore
)

// Interceptor decides about each call that reaches an endpoint, including those that will be refused. It is called
// from several goroutines, and may block until the context ends: when the client gives up or the connection breaks.
type Interceptor func(ctx context.Context, call Call) Strike

// strikes returns the interceptor of an endpoint.
func (s *station) strikes() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if s.server.intercept == nil {
			return handle(server, stream)
		}

		struck := s.server.intercept(stream.Context(), s.call(stream.Context(), info.FullMethod))

		switch struck.Cut {
		case CutBefore:
			return s.server.lines.cut(stream.Context())
		case CutAfter:
			_ = handle(server, &withheld{ServerStream: stream})

			return s.server.lines.cut(stream.Context())
		case EndBefore:
			return nil
		case CutNot:
		}

		err := handle(server, stream)

		if struck.Replied != nil {
			struck.Replied()
		}

		return err
	}
}

// call describes a call by its metadata.
func (s *station) call(ctx context.Context, method string) Call {
	said, _ := metadata.FromIncomingContext(ctx)
	client, _, _ := strings.Cut(strings.Join(said["user-agent"], " "), " ")
	node := strings.Join(append(said["nodes"], said["node"]...), ",")

	if node == "" {
		node = s.address
	}

	return Call{Client: client, Method: method, Node: s.server.nameOf(plain(node)), Through: s.node, Mutates: mutating(method)}
}

// nameOf returns the name of the machine at an address; the address if there is none.
func (s *Server) nameOf(address string) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, station := range s.order {
		if station.address == address && s.stations[station.node] == station {
			return station.node
		}
	}

	return address
}

// withheld is a stream whose last message is not sent: each is sent once there is another one after it.
type withheld struct {
	grpc.ServerStream

	last any
}

// SendMsg implements grpc.ServerStream. The proxy uses one frame for all messages.
func (w *withheld) SendMsg(message any) error {
	content, err := proxy.Codec().Marshal(message)
	if err != nil {
		return err
	}

	before := w.last
	w.last = proxy.NewFrame(content.Materialize())

	if before == nil {
		return nil
	}

	return w.ServerStream.SendMsg(before)
}

// lines are the connections of clients to all endpoints. Each has an address of its own, which pipes do not have,
// to distinguish it from the others.
type lines struct {
	mu   sync.Mutex
	made int
	open map[string]net.Conn
}

func newLines() *lines { return &lines{open: map[string]net.Conn{}} }

// over returns a listener whose connections are among the lines.
func (l *lines) over(listener net.Listener) net.Listener {
	return &lineListener{Listener: listener, lines: l}
}

// cut breaks the connection of a call.
func (l *lines) cut(ctx context.Context) error {
	if caller, ok := peer.FromContext(ctx); ok {
		l.mu.Lock()
		conn := l.open[caller.Addr.String()]
		l.mu.Unlock()

		if conn != nil {
			_ = conn.Close()
		}
	}

	return status.Error(codes.Unavailable, "the connection was cut")
}

// Connections returns how many connections of clients are open.
func (s *Server) Connections() int {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()

	return len(s.lines.open)
}

type lineListener struct {
	net.Listener

	lines *lines
}

// Accept implements net.Listener.
func (l *lineListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()

	l.lines.made++
	accepted := &line{Conn: conn, lines: l.lines, address: lineAddr("line " + strconv.Itoa(l.lines.made))}
	l.lines.open[accepted.address.String()] = accepted

	return accepted, nil
}

// line is the server's end of a connection.
type line struct {
	net.Conn

	lines   *lines
	address lineAddr
}

// RemoteAddr implements net.Conn.
func (l *line) RemoteAddr() net.Addr { return l.address }

// Close implements net.Conn.
func (l *line) Close() error {
	l.lines.mu.Lock()
	delete(l.lines.open, l.address.String())
	l.lines.mu.Unlock()

	return l.Conn.Close()
}

type lineAddr string

func (a lineAddr) Network() string { return "tcp" }
func (a lineAddr) String() string  { return string(a) }

// statusOf returns the status with which a machine's services report an error of the model.
func statusOf(err error) error {
	if err == nil {
		return nil
	}

	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}

	code := codes.Unknown

	for _, known := range []struct {
		err  error
		code codes.Code
	}{
		{model.ErrUnreachable, codes.Unavailable},
		{model.ErrConnectionLost, codes.Unavailable},
		{model.ErrUnknownNode, codes.Unavailable},
		{model.ErrNoLeader, codes.Unavailable},
		{model.ErrEtcdDown, codes.DeadlineExceeded},
		{model.ErrInstallInProgress, codes.FailedPrecondition},
		{model.ErrImageRequired, codes.InvalidArgument},
		{model.ErrImageMissing, codes.Internal},
		{model.ErrInstallNotStarted, codes.Internal},
		{model.ErrImageDamaged, codes.Internal},
		{model.ErrImageNotFound, codes.NotFound},
		{model.ErrNotControlPlane, codes.Unimplemented},
		{model.ErrUnsupported, codes.Unimplemented},
		{model.ErrApplyInvalid, codes.InvalidArgument},
		{model.ErrApplyBusy, codes.FailedPrecondition},
		{model.ErrApplyModeUnsupported, codes.Unimplemented},
	} {
		if errors.Is(err, known.err) {
			code = known.code

			break
		}
	}

	return status.Error(code, err.Error())
}
