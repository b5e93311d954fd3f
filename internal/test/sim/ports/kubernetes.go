// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// request is a Kubernetes request that changes something about a node, or about
// the cluster where node is empty.
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

// look is a Kubernetes request that changes nothing.
func (c *Client) look(ctx context.Context, method, node string, do func() error) error {
	return c.read(ctx, method, node, func(context.Context) error {
		if err := c.cluster.serving(); err != nil {
			return err
		}

		return do()
	})
}

func (c *Client) actor() actor { return actor{by: "client", client: c.name} }

// UID implements [cluster.Kubernetes].
func (c *Client) UID(ctx context.Context) (uid string, err error) {
	err = c.look(ctx, "UID", "", func() error {
		uid = "uid-of-kube-system-" + c.cluster.world.ClusterName()

		return nil
	})

	return uid, err
}

// Nodes implements [cluster.Kubernetes].
func (c *Client) Nodes(ctx context.Context) (nodes []cluster.KubeNode, err error) {
	return c.nodes(ctx, "Nodes", "")
}

// FollowNodes implements [cluster.Kubernetes]: there is nothing that could be old.
func (c *Client) FollowNodes(context.Context) (stop func()) { return func() {} }

// NodesNow implements [cluster.Kubernetes].
func (c *Client) NodesNow(ctx context.Context, claim string) ([]cluster.KubeNode, error) {
	return c.nodes(ctx, "NodesNow", claim)
}

// Node implements [cluster.Kubernetes].
func (c *Client) Node(ctx context.Context, name string) (node cluster.KubeNode, err error) {
	err = c.look(ctx, "Node", name, func() error {
		c.cluster.mu.Lock()
		defer c.cluster.mu.Unlock()

		registered := false

		state, err := c.cluster.world.KubeState(name)
		if err == nil && state.Name == name {
			node, registered = c.cluster.kubeNode(state)
		}

		if !registered {
			return fmt.Errorf("node %s: %w", name, cluster.ErrNotFound)
		}

		return nil
	})

	return node, err
}

func (c *Client) nodes(ctx context.Context, method, claim string) (nodes []cluster.KubeNode, err error) {
	err = c.look(ctx, method, claim, func() error {
		nodes = c.cluster.kubeNodes()
		c.cluster.record("", history.KindRead, map[string]string{"what": "nodes", "client": c.name})

		return nil
	})

	return nodes, err
}

// ComponentPods implements [cluster.Kubernetes].
func (c *Client) ComponentPods(ctx context.Context) (pods []cluster.ComponentPod, err error) {
	err = c.look(ctx, "ComponentPods", "", func() error {
		pods = c.cluster.componentPods(c.cluster.world.Nodes)

		return nil
	})

	return pods, err
}

// StaticPods implements [cluster.Kubernetes].
func (c *Client) StaticPods(ctx context.Context) (pods []cluster.ComponentPod, err error) {
	err = c.look(ctx, "StaticPods", "", func() error {
		pods = c.cluster.componentPods(func() []model.NodeState { return c.cluster.world.NodesOf(model.ControlPlane) })
		pods = slices.DeleteFunc(pods, func(pod cluster.ComponentPod) bool { return !pod.Component.Static() })

		return nil
	})

	return pods, err
}

// Cordon implements [cluster.Kubernetes].
func (c *Client) Cordon(ctx context.Context, node, run string) (ours bool, err error) {
	err = c.request(ctx, "Cordon", node, func(context.Context) (err error) {
		ours, err = c.cluster.cordon(c.name, node, run)

		return err
	})

	return ours && err == nil, err
}

// Uncordon implements [cluster.Kubernetes].
func (c *Client) Uncordon(ctx context.Context, node string) error {
	return c.request(ctx, "Uncordon", node, func(context.Context) error {
		c.cluster.uncordon(c.name, node)

		return nil
	})
}

// PodsToEvict implements [cluster.Kubernetes].
func (c *Client) PodsToEvict(ctx context.Context, node string) (pods []cluster.Pod, err error) {
	err = c.look(ctx, "PodsToEvict", node, func() error {
		pods = c.cluster.podsOn(node)

		return nil
	})

	return pods, err
}

// Evict implements [cluster.Kubernetes].
func (c *Client) Evict(ctx context.Context, pod cluster.Pod) error {
	return c.request(ctx, "Evict", "", func(context.Context) error {
		return c.cluster.evict(c.actor(), pod)
	})
}

// DeletePod implements [cluster.Kubernetes].
func (c *Client) DeletePod(ctx context.Context, pod cluster.Pod) error {
	return c.request(ctx, "DeletePod", "", func(context.Context) error {
		c.cluster.delete(c.actor(), pod)

		return nil
	})
}

// Lease implements [cluster.Kubernetes].
func (c *Client) Lease(ctx context.Context) (lease cluster.Lease, err error) {
	err = c.look(ctx, "Lease", "", func() error {
		c.cluster.mu.Lock()
		defer c.cluster.mu.Unlock()

		lease = c.cluster.lease

		return nil
	})

	return lease, err
}

// WriteLease implements [cluster.Kubernetes].
func (c *Client) WriteLease(ctx context.Context, lease cluster.Lease) (written cluster.Lease, err error) {
	err = c.request(ctx, "WriteLease", "", func(context.Context) (err error) {
		written, err = c.cluster.writeLease("client", lease)

		return err
	})
	if err != nil {
		return cluster.Lease{}, err
	}

	return written, nil
}

// WriteSuspension implements [cluster.Kubernetes].
func (c *Client) WriteSuspension(ctx context.Context, lease cluster.Lease, reason *string) (written cluster.Lease, err error) {
	err = c.request(ctx, "WriteSuspension", "", func(context.Context) (err error) {
		written, err = c.cluster.writeSuspension(c.name, lease, reason)

		return err
	})
	if err != nil {
		return cluster.Lease{}, err
	}

	return written, nil
}

// Journal implements [cluster.Kubernetes].
func (c *Client) Journal(ctx context.Context) (journal cluster.Journal, err error) {
	err = c.look(ctx, "Journal", "", func() error {
		journal = c.cluster.Journal()

		return nil
	})

	return journal, err
}

// WriteJournal implements [cluster.Kubernetes].
func (c *Client) WriteJournal(ctx context.Context, journal cluster.Journal) (written cluster.Journal, err error) {
	err = c.request(ctx, "WriteJournal", "", func(context.Context) (err error) {
		written, err = c.cluster.writeJournal(c.name, journal)

		return err
	})
	if err != nil {
		return cluster.Journal{}, err
	}

	return written, nil
}

// Annotate sets annotations of the published object, by key without prefix; an
// empty value takes the key away.
func (c *Client) Annotate(ctx context.Context, changes map[string]string) error {
	return c.request(ctx, "Annotate", "", func(context.Context) error {
		c.cluster.annotate(c.name, changes)

		return nil
	})
}

// Forget implements [cluster.Kubernetes].
func (c *Client) Forget(ctx context.Context, id string) (kept []string, err error) {
	err = c.request(ctx, "Forget", "", func(ctx context.Context) (err error) {
		if id != "" && id != c.cluster.world.ClusterID() {
			kept = []string{fmt.Sprintf("everything: it belongs to cluster %s", c.cluster.world.ClusterID())}

			return nil
		}

		kept, err = c.cluster.forget(ctx, c.name)

		return err
	})

	return kept, err
}
