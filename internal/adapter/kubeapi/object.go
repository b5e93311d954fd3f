// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metadata marks an object as ours.
func (c *Client) metadata(name, resourceVersion string) metav1.ObjectMeta {
	object := metav1.ObjectMeta{
		Namespace:       Namespace,
		Name:            name,
		ResourceVersion: resourceVersion,
		Labels:          map[string]string{ManagedByLabel: ManagedBy},
	}

	if id := c.ClusterID(); id != "" {
		object.Annotations = map[string]string{ClusterAnnotation: id}
	}

	return object
}

// foreign says why an object must not be deleted; empty when it is ours and
// about the cluster with the ID. Objects written before the ID was known carry
// none: the label alone has to do then.
func foreign(object metav1.ObjectMeta, id string) string {
	if object.Labels[ManagedByLabel] != ManagedBy {
		return "it does not carry the label " + ManagedByLabel + "=" + ManagedBy
	}

	if about := object.Annotations[ClusterAnnotation]; about != "" && id != "" && about != id {
		return "it belongs to cluster " + about
	}

	return ""
}
