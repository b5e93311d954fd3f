// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// What follows are the ports that the shipped adapter serves, each call by way of the
// interceptor.

// asked is a call that changes nothing.
func asked[T any](ctx context.Context, c *Client, method, node string, call func(context.Context) (T, error)) (T, error) {
	return answered(ctx, c, method, node, false, call)
}

// changed is a call that changes something.
func changed[T any](ctx context.Context, c *Client, method, node string, call func(context.Context) (T, error)) (T, error) {
	return answered(ctx, c, method, node, true, call)
}

func answered[T any](
	ctx context.Context, c *Client, method, node string, mutates bool, call func(context.Context) (T, error),
) (answer T, err error) {
	err = c.through(ctx, method, node, mutates, func(ctx context.Context) error {
		answer, err = call(ctx)

		return err
	})
	if err != nil {
		var none T

		return none, err
	}

	return answer, nil
}

// UID implements [cluster.Kubernetes].
func (c *Client) UID(ctx context.Context) (string, error) {
	return asked(ctx, c, "UID", "", c.kube.UID)
}

// Nodes implements [cluster.Kubernetes].
func (c *Client) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	return asked(ctx, c, "Nodes", "", c.kube.Nodes)
}

// FollowNodes implements [cluster.Kubernetes].
func (c *Client) FollowNodes(ctx context.Context) (stop func()) { return c.kube.FollowNodes(ctx) }

// NodesNow implements [cluster.Kubernetes].
func (c *Client) NodesNow(ctx context.Context, claim string) ([]cluster.KubeNode, error) {
	return asked(ctx, c, "NodesNow", claim, func(ctx context.Context) ([]cluster.KubeNode, error) { return c.kube.NodesNow(ctx, claim) })
}

// Node implements [cluster.Kubernetes].
func (c *Client) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return asked(ctx, c, "Node", name, func(ctx context.Context) (cluster.KubeNode, error) { return c.kube.Node(ctx, name) })
}

// ComponentPods implements [cluster.Kubernetes].
func (c *Client) ComponentPods(ctx context.Context) ([]cluster.ComponentPod, error) {
	return asked(ctx, c, "ComponentPods", "", c.kube.ComponentPods)
}

// StaticPods implements [cluster.Kubernetes].
func (c *Client) StaticPods(ctx context.Context, node string, components ...cluster.Component) ([]cluster.ComponentPod, error) {
	return asked(ctx, c, "StaticPods", node, func(ctx context.Context) ([]cluster.ComponentPod, error) {
		return c.kube.StaticPods(ctx, node, components...)
	})
}

// Cordon implements [cluster.Kubernetes].
func (c *Client) Cordon(ctx context.Context, node, run string) (ours bool, err error) {
	return changed(ctx, c, "Cordon", node, func(ctx context.Context) (bool, error) { return c.kube.Cordon(ctx, node, run) })
}

// Uncordon implements [cluster.Kubernetes].
func (c *Client) Uncordon(ctx context.Context, node string) error {
	return c.change(ctx, "Uncordon", node, func(ctx context.Context) error { return c.kube.Uncordon(ctx, node) })
}

// PodsToEvict implements [cluster.Kubernetes].
func (c *Client) PodsToEvict(ctx context.Context, node string) ([]cluster.Pod, error) {
	return asked(ctx, c, "PodsToEvict", node, func(ctx context.Context) ([]cluster.Pod, error) { return c.kube.PodsToEvict(ctx, node) })
}

// VolumesLeft implements [cluster.Kubernetes].
func (c *Client) VolumesLeft(ctx context.Context, node string) ([]cluster.Volume, error) {
	return asked(ctx, c, "VolumesLeft", node, func(ctx context.Context) ([]cluster.Volume, error) { return c.kube.VolumesLeft(ctx, node) })
}

// Evict implements [cluster.Kubernetes].
func (c *Client) Evict(ctx context.Context, pod cluster.Pod) error {
	return c.change(ctx, "Evict", "", func(ctx context.Context) error { return c.kube.Evict(ctx, pod) })
}

// DeletePod implements [cluster.Kubernetes].
func (c *Client) DeletePod(ctx context.Context, pod cluster.Pod) error {
	return c.change(ctx, "DeletePod", "", func(ctx context.Context) error { return c.kube.DeletePod(ctx, pod) })
}

// Lease implements [cluster.Kubernetes].
func (c *Client) Lease(ctx context.Context) (cluster.Lease, error) {
	return asked(ctx, c, "Lease", "", c.kube.Lease)
}

// WriteLease implements [cluster.Kubernetes].
func (c *Client) WriteLease(ctx context.Context, lease cluster.Lease) (cluster.Lease, error) {
	return changed(ctx, c, "WriteLease", "", func(ctx context.Context) (cluster.Lease, error) { return c.kube.WriteLease(ctx, lease) })
}

// WriteSuspension implements [cluster.Kubernetes].
func (c *Client) WriteSuspension(ctx context.Context, lease cluster.Lease, reason *string) (cluster.Lease, error) {
	return changed(ctx, c, "WriteSuspension", "", func(ctx context.Context) (cluster.Lease, error) {
		return c.kube.WriteSuspension(ctx, lease, reason)
	})
}

// Journal implements [cluster.Kubernetes].
func (c *Client) Journal(ctx context.Context) (cluster.Journal, error) {
	return asked(ctx, c, "Journal", "", c.kube.Journal)
}

// WriteJournal implements [cluster.Kubernetes].
func (c *Client) WriteJournal(ctx context.Context, journal cluster.Journal) (cluster.Journal, error) {
	return changed(ctx, c, "WriteJournal", "", func(ctx context.Context) (cluster.Journal, error) { return c.kube.WriteJournal(ctx, journal) })
}

// Forget implements [cluster.Kubernetes].
func (c *Client) Forget(ctx context.Context, id string) (kept []string, err error) {
	return changed(ctx, c, "Forget", "", func(ctx context.Context) ([]string, error) { return c.kube.Forget(ctx, id) })
}

// Workloads implements [cluster.WorkloadReader].
func (c *Client) Workloads(ctx context.Context) (cluster.Workloads, error) {
	return asked(ctx, c, "Workloads", "", c.kube.Workloads)
}

// Objects implements [cluster.Objects].
func (c *Client) Objects(ctx context.Context, query cluster.ObjectQuery) ([]map[string]any, error) {
	return asked(ctx, c, "Objects", "", func(ctx context.Context) ([]map[string]any, error) { return c.kube.Objects(ctx, query) })
}

// Annotate sets annotations of the published object, by key without prefix; an
// empty value takes the key away.
func (c *Client) Annotate(ctx context.Context, changes map[string]string) error {
	c.mu.Lock()
	c.annotated++
	c.mu.Unlock()

	return c.request(ctx, "Annotate", "", func(context.Context) error {
		c.cluster.Annotate(c.name, changes)

		return nil
	})
}

// Annotations are those that were published, by whomever.
func (c *Client) Annotations() map[string]string { return c.cluster.Annotations() }

// request is a Kubernetes request that the adapter does not make: one that changes
// something about a node, or about the cluster where node is empty.
func (c *Client) request(ctx context.Context, method, node string, do func(context.Context) error) error {
	return c.change(ctx, method, node, func(ctx context.Context) error {
		if err := c.cluster.serving(); err != nil {
			return err
		}

		if err := do(ctx); err != nil {
			return err
		}

		return c.lostReply(c.cluster.nameOf(node))
	})
}

// look is one that changes nothing.
func (c *Client) look(ctx context.Context, method, node string, do func() error) error {
	return c.read(ctx, method, node, func(context.Context) error {
		if err := c.cluster.serving(); err != nil {
			return err
		}

		return do()
	})
}
