// SPDX-License-Identifier: MPL-2.0

package removal

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// node is the state of a node whose errors name it.
func (c *Client) node(_ context.Context, address string) (state.State, error) {
	return nodeState{State: c.states.State(address), address: address}, nil
}

type nodeState struct {
	state.State

	address string
}

// Get is the only call that the checks make.
func (s nodeState) Get(ctx context.Context, pointer resource.Pointer, options ...state.GetOption) (resource.Resource, error) {
	found, err := s.State.Get(ctx, pointer, options...)
	if err != nil && state.IsNotFoundError(err) {
		return found, err
	}

	if pod, ok := found.(*k8s.StaticPod); ok && err == nil {
		found, err = merged(pod)
	}

	if err != nil {
		return nil, &nodeFailure{address: s.address, cause: err}
	}

	return found, nil
}

// nodeFailure is a failed call of a node.
type nodeFailure struct {
	address string
	cause   error
}

func (f *nodeFailure) Error() string { return f.cause.Error() }

func (f *nodeFailure) Unwrap() error { return f.cause }
