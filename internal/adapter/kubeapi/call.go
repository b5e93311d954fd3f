// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// callTimeout bounds one request, on the real clock.
	callTimeout = 10 * time.Second
	// readRetries is how often client-go repeats a read on a connection that
	// broke. Requests that change something are never repeated.
	readRetries = 1
)

// read carries out a GET and decodes the answer, when it is wanted.
func read(ctx context.Context, what string, request *rest.Request, into runtime.Object) error {
	return do(ctx, operation{what: what}, carryOut(request.MaxRetries(readRetries), into))
}

// readRaw carries out a GET of which the answer is wanted as JSON, and returns
// that as it is. One of more bytes than most is not read to its end: the error
// wraps errTooLarge beside ErrRefused then.
func readRaw(ctx context.Context, what string, request *rest.Request, most int64) ([]byte, error) {
	var answer []byte

	request = request.MaxRetries(readRetries).SetHeader("Accept", runtime.ContentTypeJSON)

	err := do(ctx, operation{what: what}, func(ctx context.Context) (err error) {
		answer, err = readUpTo(ctx, request, most+1)

		return err
	})
	if err != nil {
		return nil, err
	}

	if int64(len(answer)) > most {
		return nil, refuse(what, "the answer is too large", errTooLarge)
	}

	return answer, nil
}

func readUpTo(ctx context.Context, request *rest.Request, most int64) ([]byte, error) {
	stream, err := request.Stream(ctx)

	// As client-go does for requests whose whole answer is read.
	for attempt := 1; attempt <= readRetries && err != nil && broke(err); attempt++ {
		stream, err = request.Stream(ctx)
	}

	if err != nil {
		return nil, err
	}

	answer, err := io.ReadAll(io.LimitReader(stream, most))

	return answer, errors.Join(err, stream.Close())
}

// broke tells that the connection ended before there was an answer.
func broke(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// change carries out any other request, once.
func change(ctx context.Context, what string, request *rest.Request, into runtime.Object) error {
	return do(ctx, operation{what: what, mutates: true}, carryOut(request.MaxRetries(0), into))
}

// carryOut sends a request and decodes the answer, when it is wanted.
func carryOut(request *rest.Request, into runtime.Object) func(context.Context) error {
	return func(ctx context.Context) error {
		result := request.Do(ctx)
		if err := result.Error(); err != nil || into == nil {
			return err
		}

		return result.Into(into)
	}
}

// do bounds what a request takes, and gives its error a meaning.
func do(ctx context.Context, op operation, send func(context.Context) error) error {
	var sent atomic.Bool

	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	// Before there is a connection nothing can have been sent over it.
	callCtx = httptrace.WithClientTrace(callCtx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})

	err := send(callCtx)
	if err == nil {
		return nil
	}

	return explain(ctx, op, sent.Load(), err)
}
