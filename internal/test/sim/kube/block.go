// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// labelBlocked marks what the scripted fault "a PodDisruptionBudget blocks the
// drain" consists of; its value is the node.
const labelBlocked = "talossim.vitistack.io/blocks-drain-of"

func blockName(node string) string { return "blocks-drain-of-" + node }

// reconcileBlock keeps a pod on the node that may not be evicted, for as long
// as the script says so. The pod belongs to a ReplicaSet, since a drain treats
// pods of nobody differently, and can run on this node only.
func (p *play) reconcileBlock(ctx context.Context, node string) error {
	if !slices.Contains(p.options.World.BlockedDrains(), node) {
		return p.removeBlock(ctx, node)
	}

	sets := p.client.AppsV1().ReplicaSets(namespaceWorkload)

	_, err := sets.Get(ctx, blockName(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = sets.Create(ctx, newBlockSet(node), metav1.CreateOptions{})
	}

	if err != nil {
		return fmt.Errorf("creating the pod that blocks the drain of %s: %w", node, err)
	}

	budgets := p.client.PolicyV1().PodDisruptionBudgets(namespaceWorkload)

	_, err = budgets.Get(ctx, blockName(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = budgets.Create(ctx, newBlockBudget(node), metav1.CreateOptions{})
	}

	if err != nil {
		return fmt.Errorf("creating the budget that blocks the drain of %s: %w", node, err)
	}

	return nil
}

// removeBlock takes away what there is.
func (p *play) removeBlock(ctx context.Context, node string) error {
	budget, err := p.informers.Policy().V1().PodDisruptionBudgets().Lister().
		PodDisruptionBudgets(namespaceWorkload).Get(blockName(node))
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("looking for the budget that blocks the drain of %s: %w", node, err)
	}

	// The ReplicaSet first, or its controller would start another pod; the
	// budget last, since it is what is looked for.
	err = p.client.AppsV1().ReplicaSets(namespaceWorkload).Delete(ctx, blockName(node), metav1.DeleteOptions{})
	failed := gone(err)

	for _, pod := range p.blockPods(node) {
		failed = errors.Join(failed, p.removePod(ctx, pod))
	}

	if failed == nil {
		err = p.client.PolicyV1().PodDisruptionBudgets(namespaceWorkload).Delete(ctx, budget.Name, metav1.DeleteOptions{})
		failed = gone(err)
	}

	if failed != nil {
		return fmt.Errorf("removing what blocks the drain of %s: %w", node, failed)
	}

	return nil
}

// gone forgives the deletion of what does not exist.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

func (p *play) blockPods(node string) []*corev1.Pod {
	pods, err := p.informers.Core().V1().Pods().Lister().Pods(namespaceWorkload).
		List(labels.SelectorFromSet(labels.Set{labelBlocked: node}))
	if err != nil {
		// The lister of a cache has nothing that could fail.
		return nil
	}

	return pods
}

// blockStands tells whether an eviction on the node would be refused now.
func (p *play) blockStands(node string) bool {
	budget, err := p.informers.Policy().V1().PodDisruptionBudgets().Lister().
		PodDisruptionBudgets(namespaceWorkload).Get(blockName(node))
	if err != nil || budget.Status.ObservedGeneration != budget.Generation || budget.Status.ExpectedPods == 0 {
		return false
	}

	return slices.ContainsFunc(p.blockPods(node), podReady)
}

func newBlockSet(node string) *appsv1.ReplicaSet {
	set := map[string]string{labelBlocked: node}
	one := int32(1)

	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: blockName(node), Labels: set},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: set},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelHostname: node},
					Tolerations: []corev1.Toleration{{
						Key: labelControlPlane, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
					}},
					Containers: []corev1.Container{workloadContainer()},
				},
			},
		},
	}
}

func newBlockBudget(node string) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	set := map[string]string{labelBlocked: node}

	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: blockName(node), Labels: set},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one,
			Selector:     &metav1.LabelSelector{MatchLabels: set},
		},
	}
}
