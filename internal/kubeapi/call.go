// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
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
	return do(ctx, operation{what: what}, request.MaxRetries(readRetries), into)
}

// change carries out any other request, once.
func change(ctx context.Context, what string, request *rest.Request, into runtime.Object) error {
	return do(ctx, operation{what: what, mutates: true}, request.MaxRetries(0), into)
}

func do(ctx context.Context, op operation, request *rest.Request, into runtime.Object) error {
	var sent atomic.Bool

	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	// Before there is a connection nothing can have been sent over it.
	callCtx = httptrace.WithClientTrace(callCtx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})

	result := request.Do(callCtx)

	err := result.Error()
	if err == nil && into != nil {
		err = result.Into(into)
	}

	if err == nil {
		return nil
	}

	return explain(ctx, op, sent.Load(), err)
}
