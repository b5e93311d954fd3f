// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func (p *play) deploymentSeen(deployment *appsv1.Deployment) {
	if deployment.Namespace == namespaceSystem {
		p.queue.Add(key{kind: kindDeployment, namespace: deployment.Namespace, name: deployment.Name})
	}
}

func (p *play) replicasSeen(set *appsv1.ReplicaSet) {
	if set.Namespace == namespaceSystem {
		p.queue.Add(key{kind: kindReplicas, namespace: set.Namespace, name: set.Name})
	}
}

func (p *play) replicasGone(set *appsv1.ReplicaSet) {
	p.replicasSeen(set)
	p.wakeDeployment(set)
}

// wakeDeployment has the Deployment of a ReplicaSet of the system looked at.
func (p *play) wakeDeployment(set *appsv1.ReplicaSet) {
	owner := metav1.GetControllerOf(set)
	if set.Namespace == namespaceSystem && owner != nil && owner.Kind == "Deployment" {
		p.queue.Add(key{kind: kindDeployment, namespace: set.Namespace, name: owner.Name})
	}
}

// reconcileDeployment does what the garbage collector would do for a
// Deployment of the system, and without kube-controller-manager what that would
// do.
func (p *play) reconcileDeployment(ctx context.Context, k key) error {
	deployment, err := p.informers.Apps().V1().Deployments().Lister().Deployments(k.namespace).Get(k.name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading Deployment %s: %w", k.name, err)
	}

	ended := err != nil || deployment.DeletionTimestamp != nil

	var (
		mine   []*appsv1.ReplicaSet
		left   int
		failed error
	)

	for _, set := range p.replicaSetsOf(k) {
		if !ended && metav1.GetControllerOf(set).UID == deployment.UID {
			mine = append(mine, set)

			continue
		}

		left++

		failed = errors.Join(failed, p.deleteReplicaSet(ctx, set))
	}

	switch {
	case failed != nil:
		return failed
	case ended && deployment != nil && left == 0:
		return p.releaseDeployment(ctx, deployment)
	case ended || p.options.Pods > 0:
		return nil
	default:
		return p.runDeployment(ctx, deployment, mine)
	}
}

// replicaSetsOf lists the ReplicaSets with a Deployment, of whatever UID.
func (p *play) replicaSetsOf(k key) []*appsv1.ReplicaSet {
	sets, err := p.informers.Apps().V1().ReplicaSets().Lister().ReplicaSets(k.namespace).List(labels.Everything())
	if err != nil {
		// The lister of a cache has nothing that could fail.
		return nil
	}

	return slices.DeleteFunc(sets, func(set *appsv1.ReplicaSet) bool {
		owner := metav1.GetControllerOf(set)

		return owner == nil || owner.Kind != "Deployment" || owner.Name != k.name
	})
}

func (p *play) deleteReplicaSet(ctx context.Context, set *appsv1.ReplicaSet) error {
	err := p.client.AppsV1().ReplicaSets(set.Namespace).Delete(ctx, set.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &set.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting ReplicaSet %s: %w", set.Name, err)
	}

	return nil
}

// releaseDeployment lets a Deployment go that waited for its ReplicaSets to end.
func (p *play) releaseDeployment(ctx context.Context, deployment *appsv1.Deployment) error {
	if !slices.Contains(deployment.Finalizers, metav1.FinalizerDeleteDependents) {
		return nil
	}

	released := deployment.DeepCopy()
	released.Finalizers = withoutDependents(deployment.Finalizers)

	_, err := p.client.AppsV1().Deployments(deployment.Namespace).Update(ctx, released, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("letting Deployment %s go: %w", deployment.Name, err)
	}

	return nil
}

// reconcileReplicas ends the pods of a ReplicaSet that is gone, as the garbage
// collector would, and has its Deployment looked at.
func (p *play) reconcileReplicas(ctx context.Context, k key) error {
	// Not from the cache: the one of pods may be ahead.
	set, err := p.client.AppsV1().ReplicaSets(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ReplicaSet %s: %w", k.name, err)
	}

	for _, pod := range p.podsOf(k, "ReplicaSet") {
		if err == nil && metav1.GetControllerOf(pod).UID == set.UID {
			continue
		}

		if err := p.deletePod(ctx, pod); err != nil {
			return err
		}
	}

	if err == nil {
		p.wakeDeployment(set)
	}

	return nil
}
