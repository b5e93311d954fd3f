// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Workloads lists all pods that have not finished, all budgets and all nodes.
// Where the credentials may not list controllers or volumes, their part is left
// out: the replicas are then 0, and the nodes that a pod fits are those without
// regard to its volumes. Pods of the same constraints share one list of nodes,
// which must not be changed. DaemonSets that may not be listed are read one by
// one; ErrDenied means that they may not be read either, or that pods, budgets or
// nodes may not be listed.
func (c *Client) Workloads(ctx context.Context) (cluster.Workloads, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	var (
		drafts  []*draft
		budgets []*budget
		nodes   []*corev1.Node
	)

	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() (err error) { drafts, err = c.drafts(firstCtx); return err })
	first.Go(func() (err error) { budgets, err = c.budgets(firstCtx); return err })
	first.Go(func() (err error) { nodes, err = c.placementNodes(firstCtx); return err })

	if err := first.Wait(); err != nil {
		return cluster.Workloads{}, err
	}

	// Only what the pods refer to is asked for, and after them: what a pod refers
	// to and is not there then does not exist any more.
	var (
		owners  *owners
		volumes *volumes
	)

	second, secondCtx := errgroup.WithContext(ctx)
	second.Go(func() (err error) { owners, err = c.owners(secondCtx, drafts); return err })
	second.Go(func() (err error) { volumes, err = c.volumes(secondCtx, drafts); return err })

	if err := second.Wait(); err != nil {
		return cluster.Workloads{}, err
	}

	if err := complete(drafts, owners, volumes, newPlacement(nodes)); err != nil {
		return cluster.Workloads{}, err
	}

	found := cluster.Workloads{Budgets: cover(budgets, drafts), Rooms: rooms(nodes)}
	for _, one := range drafts {
		found.Pods = append(found.Pods, one.pod)
	}

	return found, nil
}

// complete adds what only the other objects tell.
func complete(drafts []*draft, owners *owners, volumes *volumes, placement *placement) error {
	for _, one := range drafts {
		stays, err := staysBehind(&one.meta, func(name string) (bool, error) {
			return owners.daemons[one.meta.Namespace+"/"+name], nil
		})
		if err != nil {
			return err
		}

		one.pod.Stays = stays
		one.pod.Owner, one.pod.Replicas = owners.of(one)

		if stays {
			// Nothing but its own node could take it, and an affinity for each pod
			// of a DaemonSet would be worked out for nothing.
			one.pod.Fits = onlyNode(one.pod.Node)

			continue
		}

		one.pod.Fits = placement.fits(one, volumes.of(one))
	}

	return nil
}

func onlyNode(name string) []string {
	if name == "" {
		return nil
	}

	return []string{name}
}

// drafts reads the pods that have not finished, sorted by namespace and name.
func (c *Client) drafts(ctx context.Context) ([]*draft, error) {
	drafts, err := listOf(ctx, "list the pods of the cluster",
		func() *rest.Request { return c.core.Get().Resource("pods") },
		func() *corev1.PodList { return &corev1.PodList{} },
		func(page *corev1.PodList) []*draft {
			var drafts []*draft

			for i := range page.Items {
				if pod := &page.Items[i]; !finished(pod) {
					drafts = append(drafts, newDraft(pod))
				}
			}

			return drafts
		})

	slices.SortFunc(drafts, func(a, b *draft) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})

	return drafts, err
}

// budgets reads the disruption budgets, sorted by namespace and name.
func (c *Client) budgets(ctx context.Context) ([]*budget, error) {
	found, err := listOf(ctx, "list the disruption budgets of the cluster",
		func() *rest.Request { return c.core.Get().AbsPath("/apis/policy/v1").Resource("poddisruptionbudgets") },
		func() *policyv1.PodDisruptionBudgetList { return &policyv1.PodDisruptionBudgetList{} },
		func(page *policyv1.PodDisruptionBudgetList) []*budget {
			var found []*budget
			for i := range page.Items {
				found = append(found, newBudget(&page.Items[i]))
			}

			return found
		})

	slices.SortFunc(found, func(a, b *budget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return found, err
}

// placementNodes reads the nodes, sorted by name, and keeps what decides about
// the pods they take.
func (c *Client) placementNodes(ctx context.Context) ([]*corev1.Node, error) {
	nodes, err := listOf(ctx, "list the nodes of the cluster",
		func() *rest.Request { return c.core.Get().Resource("nodes") },
		func() *corev1.NodeList { return &corev1.NodeList{} },
		func(page *corev1.NodeList) []*corev1.Node {
			var nodes []*corev1.Node

			for i := range page.Items {
				kept := &corev1.Node{}
				kept.Name, kept.Labels = page.Items[i].Name, page.Items[i].Labels
				kept.Spec.Taints = page.Items[i].Spec.Taints
				kept.Status.Allocatable = page.Items[i].Status.Allocatable
				nodes = append(nodes, kept)
			}

			return nodes
		})

	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })

	return nodes, err
}

func rooms(nodes []*corev1.Node) []cluster.Room {
	rooms := make([]cluster.Room, 0, len(nodes))

	for _, node := range nodes {
		allocatable := node.Status.Allocatable
		rooms = append(rooms, cluster.Room{
			Node: node.Name, CPU: allocatable.Cpu().MilliValue(), Memory: allocatable.Memory().Value(), Pods: allocatable.Pods().Value(),
		})
	}

	return rooms
}
