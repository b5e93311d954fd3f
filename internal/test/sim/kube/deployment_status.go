// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// countDeployment keeps the numbers and conditions of a Deployment true.
func (p *play) countDeployment(ctx context.Context, state rollout) error {
	status := state.status(p.now())
	if equality.Semantic.DeepEqual(state.deployment.Status, status) {
		return nil
	}

	deployment := state.deployment.DeepCopy()
	deployment.Status = status

	_, err := p.client.AppsV1().Deployments(deployment.Namespace).UpdateStatus(ctx, deployment, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("counting the pods of Deployment %s: %w", deployment.Name, err)
	}

	return nil
}

// countReplicaSet keeps the numbers of a ReplicaSet true, the wanted one too.
func (p *play) countReplicaSet(ctx context.Context, known *appsv1.ReplicaSet, pods []*corev1.Pod, wanted int32) error {
	sets := p.client.AppsV1().ReplicaSets(known.Namespace)
	set := known.DeepCopy()

	if set.Spec.Replicas == nil || *set.Spec.Replicas != wanted {
		set.Spec.Replicas = &wanted

		scaled, err := sets.Update(ctx, set, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("scaling ReplicaSet %s: %w", set.Name, err)
		}

		set = scaled
	}

	status := appsv1.ReplicaSetStatus{ObservedGeneration: set.Generation, Conditions: set.Status.Conditions}

	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || metav1.GetControllerOf(pod).UID != set.UID {
			continue
		}

		status.Replicas++
		status.FullyLabeledReplicas++

		if podReady(pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
	}

	if equality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}

	set.Status = status

	if _, err := sets.UpdateStatus(ctx, set, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("counting the pods of ReplicaSet %s: %w", set.Name, err)
	}

	return nil
}

func (r *rollout) status(now metav1.Time) appsv1.DeploymentStatus {
	wanted := replicasOf(r.deployment)
	_, away := r.leeway()
	serving := int32(len(ready(r.fresh)) + len(ready(r.old)))

	status := *r.deployment.Status.DeepCopy()
	status.ObservedGeneration = r.deployment.Generation
	status.Replicas = int32(len(r.fresh) + len(r.old))
	status.UpdatedReplicas = int32(len(r.fresh))
	status.ReadyReplicas, status.AvailableReplicas = serving, serving
	status.UnavailableReplicas = max(0, max(wanted, status.Replicas)-serving)

	available, reason := corev1.ConditionFalse, "MinimumReplicasUnavailable"
	if serving >= wanted-int32(away) {
		available, reason = corev1.ConditionTrue, "MinimumReplicasAvailable"
	}

	setDeploymentCondition(&status, now, appsv1.DeploymentAvailable, available, reason)

	reason = "ReplicaSetUpdated"
	if len(r.old) == 0 && status.UpdatedReplicas == wanted && serving >= wanted {
		reason = "NewReplicaSetAvailable"
	}

	setDeploymentCondition(&status, now, appsv1.DeploymentProgressing, corev1.ConditionTrue, reason)

	return status
}

func setDeploymentCondition(
	status *appsv1.DeploymentStatus, now metav1.Time,
	kind appsv1.DeploymentConditionType, value corev1.ConditionStatus, reason string,
) {
	next := appsv1.DeploymentCondition{
		Type: kind, Status: value, Reason: reason, LastUpdateTime: now, LastTransitionTime: now,
	}

	index := slices.IndexFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
	if index < 0 {
		status.Conditions = append(status.Conditions, next)

		return
	}

	known := status.Conditions[index]
	if known.Status == value && known.Reason == reason {
		return
	}

	if known.Status == value {
		next.LastTransitionTime = known.LastTransitionTime
	}

	status.Conditions[index] = next
}
