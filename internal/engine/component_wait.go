// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// awaitRunning waits until the component runs from the image and is healthy.
// What kube-proxy runs from is decided when the manifests are synced: of it,
// this node has nothing but the configuration.
func (c *componentUpgrade) awaitRunning(ctx context.Context) error {
	var try look

	switch {
	case c.step.Component.Static():
		try = c.staticPodRuns
	case c.step.Component == cluster.Kubelet:
		try = c.kubeletRuns
	default:
		return nil
	}

	what := fmt.Sprintf("%s on %s to run %s", c.step.Component, c.step.Node, c.step.To)
	if err := c.run.engine.waitClosely(ctx, c.step.Node, what, pollComponents, try); err != nil {
		return err
	}

	c.run.coordinator.acted(c.step.Role)

	return nil
}

// staticPodRuns wants the static pod to be made from the configuration that names the
// image, and to be Ready. Either alone is not enough: the old pod is Ready as
// well, and a new one may never be.
func (c *componentUpgrade) staticPodRuns(ctx context.Context) (bool, string, error) {
	status, err := c.run.engine.talos.Component(ctx, c.step.Address, c.step.Component)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	if status.Image != c.step.Image {
		return false, "the node means to run " + status.Image, nil
	}

	pods, err := c.run.engine.kubernetes.ComponentPods(ctx)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	for _, pod := range pods {
		if pod.Node != c.step.Node || pod.Component != c.step.Component {
			continue
		}

		switch {
		case pod.Image != c.step.Image:
			return false, "its pod still runs " + pod.Image + troubled(pod), nil
		case pod.ConfigVersion != status.ConfigVersion:
			return false, fmt.Sprintf("its pod was made from version %s of its configuration, and %s is the newest", pod.ConfigVersion, status.ConfigVersion), nil
		case !pod.Ready:
			return false, "its pod is not Ready" + troubled(pod), nil
		default:
			return c.apiServerRuns(ctx, pods)
		}
	}

	return false, "it has no pod", nil
}

// apiServerRuns wants the API server of the node to be the one that its node has made
// last, and Ready: there are versions of Talos that make it anew with the scheduler
// as well.
func (c *componentUpgrade) apiServerRuns(ctx context.Context, pods []cluster.ComponentPod) (bool, string, error) {
	machine, err := c.run.engine.talos.Machine(ctx, c.step.Address)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	for _, pod := range pods {
		if pod.Node != c.step.Node || pod.Component != cluster.APIServer {
			continue
		}

		if seen := unready(machine, pod); seen != "" {
			return false, seen, nil
		}
	}

	return true, "", nil
}

func troubled(pod cluster.ComponentPod) string {
	if pod.Trouble == "" {
		return ""
	}

	return " (" + pod.Trouble + ")"
}

// kubeletRuns wants the service to be healthy after its restart, and the node
// to be Ready as the new kubelet reports it: a kubelet writes its version
// together with what it knows of the node.
func (c *componentUpgrade) kubeletRuns(ctx context.Context) (bool, string, error) {
	status, err := c.run.engine.talos.Component(ctx, c.step.Address, cluster.Kubelet)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	switch {
	case status.Image != c.step.Image:
		return false, "the node means to run " + status.Image, nil
	case !status.Running:
		return false, "its kubelet does not run", nil
	case !status.Healthy:
		return false, "its kubelet is not healthy", nil
	case c.before.Image != c.step.Image && status.Since.Equal(c.before.Since):
		return false, "its kubelet has not restarted yet", nil
	}

	nodes, err := c.run.engine.kubernetes.Nodes(ctx)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	for _, node := range nodes {
		if node.Name != c.step.Node {
			continue
		}

		switch {
		case !node.Kubelet.Equal(c.step.To):
			return false, fmt.Sprintf("its kubelet reports version %s", node.Kubelet), nil
		case !node.Ready:
			return false, "the node is not Ready: " + node.ReadyReason, nil
		default:
			c.ready = node.ReadySince

			return true, "", nil
		}
	}

	return false, "it has no Node object in Kubernetes", nil
}
