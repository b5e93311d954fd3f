// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"syscall"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// Kubeconfig returns the kubeconfig of clients that reach the API by a [Transport].
func Kubeconfig() []byte {
	return []byte("{apiVersion: v1, kind: Config, current-context: memory," +
		" clusters: [{name: memory, cluster: {server: 'http://" + anywhere + "'}}]," +
		" contexts: [{name: memory, context: {cluster: memory}}]}")
}

// Transport carries requests to the API without a connection.
type Transport struct {
	way

	who    actor
	direct bool
}

var _ http.RoundTripper = (*Transport)(nil)

// Transport returns the transport of a client with the given name in the history.
func (s *Server) Transport(client string) *Transport {
	return &Transport{way: way{server: s}, who: clientNamed(client)}
}

// TransportOfPerson returns the transport of somebody else.
func (s *Server) TransportOfPerson() *Transport {
	return &Transport{way: way{server: s}, who: person()}
}

// Direct returns a transport of somebody else that needs no running API server.
func (s *Server) Direct() *Transport {
	return &Transport{way: way{server: s}, who: person(), direct: true}
}

// RoundTrip implements [http.RoundTripper]. A watch continues until its body is closed or its context ends.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()

	// The caller's own request stays as it is.
	request = request.WithContext(ctx)

	if request.Body == nil {
		request.Body = http.NoBody
	}
	defer request.Body.Close()

	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}

	machine, up := t.server.answering("")
	if !up && !t.direct {
		return nil, refused(request.URL.Host)
	}

	// Callers learn from the connection whether the request was sent.
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}

	by := &caller{who: t.who, machine: machine, direct: t.direct, cut: func() {}}

	if request.URL.Query().Has("watch") {
		return t.stream(request, by)
	}

	written := &buffer{header: http.Header{}}

	if err := t.guarded(written, request, by); err != nil {
		return nil, err
	}

	return response(request, written.code, written.header, io.NopCloser(&written.body)), nil
}

// guarded serves a request; if the connection breaks, it returns an error.
func (t *Transport) guarded(out http.ResponseWriter, request *http.Request, by *caller) (err error) {
	defer func() {
		switch ended := recover(); ended {
		case nil:
		case http.ErrAbortHandler:
			err = io.ErrUnexpectedEOF

			if cause := context.Cause(request.Context()); cause != nil {
				err = cause
			}
		default:
			panic(ended)
		}
	}()

	t.serve(out, request, by)

	return nil
}

func response(request *http.Request, code int, header http.Header, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: -1, Request: request,
	}
}

// buffer is a reply that is read once it is complete.
type buffer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(code int) { b.code = code }

func (b *buffer) Write(content []byte) (int, error) { return b.body.Write(content) }

// stream serves a watch, whose body is read while it is written.
func (t *Transport) stream(request *http.Request, by *caller) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	reader, writer := io.Pipe()
	out := &streamed{header: http.Header{}, body: writer, begun: make(chan struct{})}

	// The body is not read after the client has gone, or after the end.
	release, stop := context.AfterFunc(ctx, func() { _ = writer.CloseWithError(context.Cause(ctx)) }), context.AfterFunc(t.server.life, cancel)

	go func() {
		defer cancel()
		defer release()
		defer stop()

		err := t.guarded(out, request.WithContext(ctx), by)
		_ = writer.CloseWithError(err)

		out.begin(err)
	}()

	<-out.begun

	if out.failed != nil {
		return nil, out.failed
	}

	return response(request, out.code, out.header, &streamBody{PipeReader: reader, cancel: cancel}), nil
}

// streamed is a reply that is read while it is written.
type streamed struct {
	header http.Header
	body   *io.PipeWriter
	code   int

	once   sync.Once
	begun  chan struct{}
	failed error
}

func (s *streamed) Header() http.Header { return s.header }

func (s *streamed) WriteHeader(code int) {
	s.code = code
	s.begin(nil)
}

func (s *streamed) Write(content []byte) (int, error) { return s.body.Write(content) }

// Flush implements [http.Flusher]: nothing is held back.
func (s *streamed) Flush() {}

func (s *streamed) begin(failed error) {
	s.once.Do(func() {
		s.failed = failed
		close(s.begun)
	})
}

// streamBody ends its watch when it is closed.
type streamBody struct {
	*io.PipeReader

	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (b *streamBody) Close() error {
	b.cancel()

	return b.PipeReader.Close()
}

// refused returns the error of TCP if nothing listens.
func refused(address string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED, Addr: pipe.Addr(address)}
}
