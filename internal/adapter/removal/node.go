// SPDX-License-Identifier: MPL-2.0

package removal

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// nodeState is the state of a node. Its errors name the node.
type nodeState struct {
	state.State

	address string
	seen    *watch
}

// Get implements [state.CoreState]. It is the only method that the checks call.
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
			s.seen.note(component{s.address, cluster.Kubelet, read.TypedSpec().Args, kubeletGates(read.TypedSpec())})
		}
	}

	if err != nil {
		return nil, &nodeFailure{address: s.address, cause: err}
	}

	return found, nil
}

// read returns a static pod in a form that the checks can read, and records its arguments.
func (s nodeState) read(pod *k8s.StaticPod) (*k8s.StaticPod, error) {
	name, command, err := commandOf(pod)
	if err != nil {
		return nil, err
	}

	s.seen.note(component{s.address, cluster.Component(pod.Metadata().ID()), command, commandGates(command)})

	return merged(pod, name, command), nil
}

// noteProxy records the arguments that a control plane renders for kube-proxy, if it does.
func (c *Client) noteProxy(ctx context.Context, address string, seen *watch) error {
	rendered, err := safe.StateGet[*k8s.BootstrapManifestsConfig](ctx, c.states.State(address), k8s.NewBootstrapManifestsConfig().Metadata())

	switch {
	case state.IsNotFoundError(err):
	case err != nil:
		return &nodeFailure{address: address, cause: err}
	case rendered.TypedSpec().ProxyEnabled:
		command := mergeFlag(rendered.TypedSpec().ProxyArgs, featureGates)
		seen.note(component{address, cluster.Proxy, command, commandGates(command)})
	}

	return nil
}

// nodeFailure is the error of a call to a node.
type nodeFailure struct {
	address string
	cause   error
}

func (f *nodeFailure) Error() string { return f.cause.Error() }

func (f *nodeFailure) Unwrap() error { return f.cause }
