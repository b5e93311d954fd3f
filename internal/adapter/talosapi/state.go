// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"fmt"
	"strings"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	cosiclient "github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/siderolabs/talos/pkg/machinery/client"
	_ "github.com/siderolabs/talos/pkg/machinery/resources/k8s" // registers the types that are decoded
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// State is the state of one node for libraries that want one: Get and List,
// through any endpoint and with the deadlines of every other read. The rest of
// it answers with an error that [state.IsUnsupportedError] knows. Errors wrap
// the sentinels of package cluster; [state.IsNotFoundError] works as well.
func (c *Client) State(address string) state.State {
	return state.WrapCore(nodeState{client: c, address: address})
}

// nodeState reads the resources of one node.
type nodeState struct {
	client  *Client
	address string
}

// Get implements state.CoreState.
func (s nodeState) Get(ctx context.Context, at resource.Pointer, options ...state.GetOption) (resource.Resource, error) {
	var found resource.Resource

	err := s.read(ctx, fmt.Sprintf("read %s/%s", at.Type(), at.ID()), func(ctx context.Context, core state.CoreState) (err error) {
		found, err = core.Get(ctx, at, options...)

		return err
	})

	return found, err
}

// List implements state.CoreState.
func (s nodeState) List(ctx context.Context, of resource.Kind, options ...state.ListOption) (resource.List, error) {
	var found resource.List

	err := s.read(ctx, "list "+of.Type(), func(ctx context.Context, core state.CoreState) (err error) {
		found, err = core.List(ctx, of, options...)

		return err
	})

	return found, err
}

func (s nodeState) read(ctx context.Context, what string, do func(context.Context, state.CoreState) error) error {
	op := operation{what: what + " of " + place(s.address), node: s.address, timeout: readTimeout}
	missing := false

	err := s.client.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		err := do(ctx, cosiclient.NewAdapter(cosi.NewStateClient(api.Conn()), cosiclient.WithDisableWatchRetry()))

		missing = state.IsNotFoundError(err)
		if missing {
			// The adapter hides the code of the answer.
			return status.Error(codes.NotFound, strings.TrimPrefix(err.Error(), "rpc error: code = NotFound desc = "))
		}

		return err
	})
	if missing && err != nil {
		return notFoundError{err}
	}

	return err
}

// Create implements state.CoreState.
func (s nodeState) Create(context.Context, resource.Resource, ...state.CreateOption) error {
	return s.unsupported("create a resource")
}

// Update implements state.CoreState.
func (s nodeState) Update(context.Context, resource.Resource, ...state.UpdateOption) error {
	return s.unsupported("update a resource")
}

// Destroy implements state.CoreState.
func (s nodeState) Destroy(context.Context, resource.Pointer, ...state.DestroyOption) error {
	return s.unsupported("destroy a resource")
}

// Watch implements state.CoreState.
func (s nodeState) Watch(context.Context, resource.Pointer, chan<- state.Event, ...state.WatchOption) error {
	return s.unsupported("watch a resource")
}

// WatchKind implements state.CoreState.
func (s nodeState) WatchKind(context.Context, resource.Kind, chan<- state.Event, ...state.WatchKindOption) error {
	return s.unsupported("watch resources")
}

// WatchKindAggregated implements state.CoreState.
func (s nodeState) WatchKindAggregated(context.Context, resource.Kind, chan<- []state.Event, ...state.WatchKindOption) error {
	return s.unsupported("watch resources")
}

func (s nodeState) unsupported(what string) error {
	return unsupportedError{fmt.Errorf("unable to %s of %s: %w: this state is only for reading", what, place(s.address), cluster.ErrUnsupported)}
}

// notFoundError is what the COSI library takes for a missing resource.
type notFoundError struct{ error }

func (e notFoundError) Unwrap() error { return e.error }

// NotFoundError implements state.ErrNotFound.
func (notFoundError) NotFoundError() {}

// unsupportedError is what the COSI library takes for a call that is not there.
type unsupportedError struct{ error }

func (e unsupportedError) Unwrap() error { return e.error }

// UnsupportedError implements state.ErrUnsupported.
func (unsupportedError) UnsupportedError() {}
