// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/types/known/emptypb"
)

// endpoint is one way into the cluster, with a connection of its own: gRPC's
// round robin over several would send any call into a rebooting machine.
type endpoint struct {
	name string
	host string
	api  *client.Client
	// local tells that the endpoint refused to forward calls to other nodes.
	local atomic.Bool
}

func (e *endpoint) state() connectivity.State { return e.api.Conn().GetState() }

// settle waits until the endpoint is connected or known not to be. It is
// bounded by the connect timeout of gRPC.
func (e *endpoint) settle(ctx context.Context) connectivity.State {
	for {
		state := e.state()

		switch state {
		case connectivity.Ready, connectivity.TransientFailure, connectivity.Shutdown:
			return state
		case connectivity.Idle:
			e.api.Conn().Connect()
		case connectivity.Connecting:
		}

		if !e.api.Conn().WaitForStateChange(ctx, state) {
			return state
		}
	}
}

// alive asks the endpoint about itself. A machine that lost its power leaves a
// connection behind that looks healthy.
func (e *endpoint) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()

	_, err := e.api.MachineClient.Version(ctx, &emptypb.Empty{})

	return err == nil
}

// candidates are all endpoints, the most promising first: the one that
// answered last, then others that are connected, then those not tried yet, and
// at the end the ones known to be down or not to forward. A node that is about
// to be disturbed is not asked through itself while there is another way.
func (c *Client) candidates(avoid string) []*endpoint {
	type ranked struct {
		*endpoint
		rank int
	}

	count := len(c.endpoints)
	ordered := make([]ranked, 0, count)

	// Ranks are taken once: states change while the list is being sorted.
	for i := range count {
		candidate := c.endpoints[(int(c.preferred.Load())+i)%count]
		ordered = append(ordered, ranked{candidate, candidate.rank(avoid)})
	}

	slices.SortStableFunc(ordered, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })

	endpoints := make([]*endpoint, count)
	for i, candidate := range ordered {
		endpoints[i] = candidate.endpoint
	}

	return endpoints
}

// rank is lower for a more promising endpoint.
func (e *endpoint) rank(avoid string) int {
	rank := 0

	switch e.state() {
	case connectivity.Ready:
	case connectivity.Idle, connectivity.Connecting:
		rank = 1
	case connectivity.TransientFailure, connectivity.Shutdown:
		rank = 2
	}

	if avoid != "" && e.host == avoid {
		rank += 4
	}

	if e.local.Load() {
		rank += 8
	}

	return rank
}

// wake connects every endpoint as long as none is connected, and returns when
// the first one is, or when all have failed. Without it a single endpoint that
// swallows packets would cost each call the whole connect timeout.
func (c *Client) wake(ctx context.Context) {
	if len(c.endpoints) == 1 || slices.ContainsFunc(c.endpoints, func(e *endpoint) bool {
		return e.state() == connectivity.Ready && !e.local.Load()
	}) {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()

	states := make(chan connectivity.State, len(c.endpoints))

	for _, e := range c.endpoints {
		go func() { states <- e.settle(ctx) }()
	}

	for range c.endpoints {
		if <-states == connectivity.Ready {
			return
		}
	}
}

// prefer makes the endpoint the first choice of later calls.
func (c *Client) prefer(chosen *endpoint) {
	c.proven.Store(true)

	if index := slices.Index(c.endpoints, chosen); index >= 0 {
		c.preferred.Store(int64(index))
	}
}
