// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"

	k8spb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/k8s"
	v1alpha1pb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/v1alpha1"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// finalPrefix marks the configurations that static pods are made from, from
// Talos 1.14 on. What has no prefix is then only what they are merged from, and
// its version says nothing about pods.
const finalPrefix = "final-"

// Component asks the node about its kubelet, one of its static pods, or what it
// renders for kube-proxy. The error wraps cluster.ErrNotFound when the node has
// no configuration for it, as a worker for all but the kubelet, or when the
// configuration switches it off.
func (c *Client) Component(ctx context.Context, address string, component cluster.Component) (cluster.ComponentStatus, error) {
	switch component {
	case cluster.Kubelet:
		return c.kubelet(ctx, address)
	case cluster.APIServer:
		return staticPod(ctx, c, address, component, kindAPIServer(), &k8spb.APIServerConfigSpec{})
	case cluster.ControllerManager:
		return staticPod(ctx, c, address, component, kindController(), &k8spb.ControllerManagerConfigSpec{})
	case cluster.Scheduler:
		return staticPod(ctx, c, address, component, kindScheduler(), &k8spb.SchedulerConfigSpec{})
	case cluster.Proxy:
		return c.proxy(ctx, address)
	case cluster.Installer, cluster.Manifests:
	}

	return cluster.ComponentStatus{}, fmt.Errorf("unable to ask %s about %s: %w: machines run no such component by themselves",
		place(address), component, cluster.ErrRefused)
}

// staticPod reads the image and the version of a static pod's configuration.
// The rest of it, the arguments above all, means something else from one
// version of Talos to the next.
func staticPod[S interface {
	proto.Message
	GetImage() string
}](ctx context.Context, c *Client, address string, component cluster.Component, of kind, spec S) (cluster.ComponentStatus, error) {
	metadata, err := c.read(ctx, address, of, finalPrefix+string(component), spec)
	if errors.Is(err, cluster.ErrNotFound) {
		metadata, err = c.read(ctx, address, of, string(component), spec)
	}

	if err != nil {
		return cluster.ComponentStatus{}, err
	}

	// The API server cannot be switched off, and has no such field.
	if optional, ok := any(spec).(interface{ GetEnabled() bool }); ok && !optional.GetEnabled() {
		return cluster.ComponentStatus{}, fmt.Errorf("%w: the configuration of %s switches %s off", cluster.ErrNotFound, place(address), component)
	}

	return cluster.ComponentStatus{Image: spec.GetImage(), ConfigVersion: metadata.GetVersion()}, nil
}

// kubelet reads what the kubelet is to run, and how its service does. There is
// no service for a moment while the kubelet restarts.
func (c *Client) kubelet(ctx context.Context, address string) (cluster.ComponentStatus, error) {
	var (
		spec    k8spb.KubeletSpecSpec
		service v1alpha1pb.ServiceSpec
	)

	if _, err := c.read(ctx, address, kindKubeletSpec(), string(cluster.Kubelet), &spec); err != nil {
		return cluster.ComponentStatus{}, err
	}

	status := cluster.ComponentStatus{Image: spec.GetImage()}

	metadata, err := c.read(ctx, address, kindService(), string(cluster.Kubelet), &service)
	if errors.Is(err, cluster.ErrNotFound) {
		return status, nil
	}

	if err != nil {
		return cluster.ComponentStatus{}, err
	}

	status.Running, status.Healthy = service.GetRunning(), service.GetHealthy()

	if created := metadata.GetCreated(); created.IsValid() {
		status.Since = created.AsTime()
	}

	return status, nil
}
