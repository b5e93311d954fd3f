// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

// Unready lists the DaemonSets and Deployments that are not rolled out yet, each with what it lacks, such as
// "DaemonSet/kube-system/kube-proxy: 2 of 5 pods are updated". It checks once.
func (c *Client) Unready(ctx context.Context, address string) ([]string, error) {
	job := &job{what: "look at the rollout of the bootstrap manifests", base: unreadyTimeout, each: unreadyObject}

	objects, err := c.render(ctx, address, true)
	if err != nil {
		return nil, err
	}

	bounded, cancel := job.bound(ctx, len(objects))
	defer cancel()

	typed, err := kubernetes.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, fmt.Errorf("unable to %s: %w", job.what, err)
	}

	var unready []string

	for _, object := range objects {
		lacks, err := lack(bounded, typed, object)
		if err != nil {
			return nil, job.explain(ctx, bounded, &failure{object: nameOf(object), cause: err})
		}

		if lacks != "" {
			unready = append(unready, nameOf(object)+": "+lacks)
		}
	}

	slices.Sort(unready)

	return unready, nil
}

// lack returns what an object lacks; empty if it is rolled out or of a kind that is not rolled out.
func lack(ctx context.Context, client kubernetes.Interface, object *unstructured.Unstructured) (lacks string, err error) {
	if object.GroupVersionKind().Group != appsv1.GroupName {
		return "", nil
	}

	switch object.GetKind() {
	case "DaemonSet":
		var found *appsv1.DaemonSet
		if found, err = client.AppsV1().DaemonSets(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{}); err == nil {
			return daemonSetLacks(ctx, client, found)
		}
	case "Deployment":
		var found *appsv1.Deployment
		if found, err = client.AppsV1().Deployments(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{}); err == nil {
			lacks = deploymentLacks(found)
		}
	}

	if apierrors.IsNotFound(err) {
		return "it does not exist", nil
	}

	return lacks, err
}

const unobserved = "its controller has not seen the change yet"

func deploymentLacks(object *appsv1.Deployment) string {
	status, wanted := object.Status, int32(1)
	if object.Spec.Replicas != nil {
		wanted = *object.Spec.Replicas
	}

	switch {
	case object.Generation != status.ObservedGeneration:
		return unobserved
	case status.UpdatedReplicas < wanted:
		return fmt.Sprintf("%d of %d pods are updated", status.UpdatedReplicas, wanted)
	case status.Replicas > status.UpdatedReplicas:
		return fmt.Sprintf("%d pods from before are still there", status.Replicas-status.UpdatedReplicas)
	case status.ReadyReplicas < wanted:
		return fmt.Sprintf("%d of %d pods are ready", status.ReadyReplicas, wanted)
	default:
		return ""
	}
}
