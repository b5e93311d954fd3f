// SPDX-License-Identifier: MPL-2.0

package removal

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// nodeState is the state of a node whose errors name it.
type nodeState struct {
	state.State

	address string
	gates   *gateWatch
}

// Get is the only call that the checks make.
func (s nodeState) Get(ctx context.Context, pointer resource.Pointer, options ...state.GetOption) (resource.Resource, error) {
	found, err := s.State.Get(ctx, pointer, options...)
	if err != nil && state.IsNotFoundError(err) {
		return found, err
	}

	if err == nil {
		switch read := found.(type) {
		case *k8s.StaticPod:
			found, err = s.read(read)
		case *k8s.KubeletSpec:
			s.gates.note(gatesOf{s.address, cluster.Kubelet, kubeletGates(read.TypedSpec())})
		}
	}

	if err != nil {
		return nil, &nodeFailure{address: s.address, cause: err}
	}

	return found, nil
}

// read makes of a static pod what the checks can read.
func (s nodeState) read(pod *k8s.StaticPod) (*k8s.StaticPod, error) {
	name, command, err := commandOf(pod)
	if err != nil {
		return nil, err
	}

	s.gates.note(gatesOf{s.address, cluster.Component(pod.Metadata().ID()), commandGates(command)})

	return merged(pod, name, command), nil
}

// nodeFailure is a failed call of a node.
type nodeFailure struct {
	address string
	cause   error
}

func (f *nodeFailure) Error() string { return f.cause.Error() }

func (f *nodeFailure) Unwrap() error { return f.cause }
