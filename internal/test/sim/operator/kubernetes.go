// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var errOneMinor = errors.New("can only upgrade one minor version at a time")

// roll is an upgrade of Kubernetes: the control planes component by component, then the kubelets, then what is
// rendered for the cluster.
type roll struct {
	hands *hands
	to    string

	// part is what it waits for, since is since when.
	part   string
	since  time.Time
	synced bool
}

// step continues as far as it can without waiting. node is where it is; the error is in the operator's words.
func (r *roll) step(ctx context.Context) (done bool, node string, err error) {
	for _, look := range []func() (bool, string, error){r.controlPlanes, r.kubelets, r.configureProxy} {
		if ready, node, err := look(); !ready || err != nil {
			return false, node, err
		}
	}

	if !r.synced {
		if err := r.sync(ctx); err != nil {
			return false, "", fmt.Errorf("unable to sync the manifests: %w", err)
		}

		r.synced = true
	}

	for _, state := range r.world().Nodes() {
		if state.Components.Proxy != "" && state.Components.Proxy != r.to {
			return false, state.Name, r.wait(state.Name, model.ProxyName)
		}
	}

	return true, "", nil
}

func (r *roll) world() *model.World { return r.hands.options.World }

// controlPlanes brings the static pods to the version, one after the other.
func (r *roll) controlPlanes() (ready bool, node string, err error) {
	for _, state := range r.world().Nodes() {
		if state.Role != model.ControlPlane {
			continue
		}

		for _, component := range []string{model.APIServerName, model.ControllerManagerName, model.SchedulerName} {
			pod := state.StaticPods[component]

			switch {
			case pod.Disabled:
			case !runs(pod.Image, r.to):
				return false, state.Name, r.set(state.Name, component, pod.Image)
			case !pod.Ready || !runs(pod.PodImage, r.to):
				return false, state.Name, r.wait(state.Name, component)
			}
		}
	}

	return true, "", nil
}

// kubelets brings the kubelets to the version, one after the other.
func (r *roll) kubelets() (ready bool, node string, err error) {
	for _, state := range r.world().Nodes() {
		service := state.KubeletService

		switch {
		case !runs(service.Image, r.to):
			if r.hands.fails(state.Name) {
				return false, state.Name, fmt.Errorf("kubelet of node %s did not become healthy", state.Name)
			}

			return false, state.Name, r.set(state.Name, model.KubeletName, service.Image)
		case !service.Healthy || !state.Kubelet.Ready || state.Kubelet.Version != r.to:
			return false, state.Name, r.wait(state.Name, model.KubeletName)
		}
	}

	return true, "", nil
}

// configureProxy makes every control plane render the version of kube-proxy.
func (r *roll) configureProxy() (ready bool, node string, err error) {
	for _, state := range r.world().Nodes() {
		if state.ProxyImage != "" && !runs(state.ProxyImage, r.to) {
			return false, state.Name, r.set(state.Name, model.ProxyName, state.ProxyImage)
		}
	}

	return true, "", nil
}

// sync brings what the first control plane renders into the cluster.
func (r *roll) sync(ctx context.Context) error {
	states := r.world().Nodes()

	if sync := r.hands.options.Sync; sync != nil {
		return sync(ctx, states[0].Name)
	}

	for _, state := range states {
		if states[0].ProxyImage != "" {
			r.world().SetProxy(state.Name, r.to)
		}
	}

	return nil
}

// set changes the image of a component. If the machine does not answer, it is tried again.
func (r *roll) set(node, component, standing string) error {
	repository, _ := splitImage(standing)

	err := r.world().SetImage(node, component, repository+":v"+r.to)
	if err == nil || errors.Is(err, model.ErrUnreachable) || errors.Is(err, model.ErrConnectionLost) {
		return r.wait(node, component)
	}

	return fmt.Errorf("node %s: %w", node, err)
}

// wait returns an error only if it took too long.
func (r *roll) wait(node, component string) error {
	now := r.hands.options.Clock.Now()

	if part := node + "/" + component; r.part != part {
		r.part, r.since = part, now
	}

	if now.Sub(r.since) > r.hands.options.Patience {
		return fmt.Errorf("%s of node %s did not become ready", component, node)
	}

	return nil
}

// atKubernetes reports whether a machine runs only the version.
func atKubernetes(state model.NodeState, to string) bool {
	for _, running := range versionsOf(state) {
		if running != to {
			return false
		}
	}

	return true
}

// versionsOf returns the versions of Kubernetes that a machine runs.
func versionsOf(state model.NodeState) []string {
	running := []string{state.Kubelet.Version}

	if state.Role == model.ControlPlane {
		running = append(running, state.Components.APIServer, state.Components.ControllerManager, state.Components.Scheduler)
	}

	return slices.DeleteFunc(running, func(version string) bool { return version == "" })
}

// lowestKubernetes returns the oldest version of Kubernetes that runs.
func lowestKubernetes(world *model.World) version.Version {
	var running []version.Version

	for _, state := range world.Nodes() {
		for _, text := range versionsOf(state) {
			if parsed, err := version.Parse(text); err == nil {
				running = append(running, parsed)
			}
		}
	}

	return version.Lowest(running...)
}

// checkKubernetes returns why Kubernetes cannot be brought to the version, in the operator's words, regardless of
// Talos.
func checkKubernetes(world *model.World, to version.Version) error {
	running := lowestKubernetes(world)

	switch {
	case to.Less(running):
		return fmt.Errorf("target version %s is not newer than the current version %s", to, running)
	case to.Minor().Compare(running.Minor().Next()) > 0:
		return errOneMinor
	default:
		return nil
	}
}
