// SPDX-License-Identifier: MPL-2.0

// Package apiserver is a Kubernetes API server in memory: HTTP/2 over TLS, in
// JSON and protobuf, over pipes, so that the real adapter can be used inside a
// testing/synctest bubble. It serves what [ports.Cluster] holds, so the model,
// the history and the ports see one truth, and it is as strict as the real one
// where a client depends on it: resource versions, preconditions, selectors,
// pages that expire, dry runs, and evictions that ask the budgets.
//
//	server, err := apiserver.New(cluster, apiserver.Options{Client: "run-1", Intercept: ...})
//	server.Start()
//	defer server.Stop()
//	kubeapi.New(server.Kubeconfig(), "", kubeapi.Options{DialContext: server.DialContext, ...})
//
// It serves the requests that the packages kubeapi and publish make, and answers
// all others with 404, 405 or 415. Nodes can be watched, with the versions, bookmarks
// and ends of the real one, and nothing else; there is no server-side apply.
package apiserver

import (
	"context"
	"fmt"
	"time"
)

// Options of a [Server].
type Options struct {
	// Client is the name under which the history shows who uses Kubeconfig.
	Client string
	// Intercept, when not nil, decides about each request before it is handled,
	// also about those that will be refused. It is called from several
	// goroutines, and may block until the context ends, which it does when the
	// client gives up or the connection breaks.
	Intercept func(ctx context.Context, request Request) Strike
	// Older refuses a watch that is to begin with the objects that there are, as API
	// servers do that do not know that.
	Older bool
}

// Request is a request that arrived.
type Request struct {
	// Client is the name under which the history shows who makes it.
	Client string
	// Verb is get, list, watch, create, update, patch, delete or evict.
	Verb string
	// Resource is the plural of the kind, in lower case.
	Resource string
	// Namespace and Name are those of the object, empty in a list; of a create,
	// the name is only known to its body and is empty as well.
	Namespace, Name string
	// Node is the name of the node concerned: that of a Node object, or where the
	// pod runs; empty otherwise.
	Node string
	// Number counts the server's requests from 1.
	Number int
	// Mutation counts those that may change something from 1; 0 for the others,
	// dry runs among them.
	Mutation int
}

// String names a request the way a person finds it again.
func (r Request) String() string {
	name := r.Resource
	if r.Name != "" {
		name += " " + r.Name
	}

	return fmt.Sprintf("%s %s (request %d, mutation %d)", r.Verb, name, r.Number, r.Mutation)
}

// Strike is what becomes of a request. The zero value lets it pass.
type Strike struct {
	Cut Cut
	// RetryAfter, when not zero, has the request refused with 429 and these seconds.
	RetryAfter time.Duration
	// Replied, when not nil, is called once the reply of a request that was not
	// cut is on its way; whether the client has read it is open.
	Replied func()
}

// Cut is when the connection of a request breaks. All other requests over it
// break with it.
type Cut int

const (
	// CutNot leaves the connection alone.
	CutNot Cut = iota
	// CutBefore breaks it before the request is handled.
	CutBefore
	// CutAfter breaks it when the request has been handled, without a reply.
	CutAfter
)
