// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// VolumesLeft lists the VolumeAttachments of the node whose volumes are not claimed by any pod on it. Attachments
// of volumes that are defined in a pod itself name no PersistentVolume and are left out.
func (c *Client) VolumesLeft(ctx context.Context, node string) ([]cluster.Volume, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	attached, err := listOf(ctx, "list the VolumeAttachments of the cluster", c.all("/apis/storage.k8s.io/v1", "volumeattachments"),
		func() *storagev1.VolumeAttachmentList { return &storagev1.VolumeAttachmentList{} },
		func(page *storagev1.VolumeAttachmentList) []cluster.Volume { return volumesOn(page, node) })
	if err != nil || len(attached) == 0 {
		return nil, err
	}

	used, err := c.volumesInUse(ctx, node)
	if err != nil {
		return nil, err
	}

	var left []cluster.Volume

	for _, volume := range attached {
		if !used[volume.Name] {
			left = append(left, volume)
		}
	}

	return left, nil
}

func volumesOn(page *storagev1.VolumeAttachmentList, node string) []cluster.Volume {
	var found []cluster.Volume

	for i := range page.Items {
		one := &page.Items[i]
		if one.Spec.NodeName != node || one.Spec.Source.PersistentVolumeName == nil {
			continue
		}

		volume := cluster.Volume{Name: *one.Spec.Source.PersistentVolumeName, Driver: one.Spec.Attacher}
		if failed := one.Status.DetachError; failed != nil {
			volume.Trouble = strings.Join(strings.Fields(cluster.Plain(failed.Message)), " ")
		}

		found = append(found, volume)
	}

	return found
}

// volumesInUse returns the names of the volumes that pods on the node claim.
func (c *Client) volumesInUse(ctx context.Context, node string) (map[string]bool, error) {
	var pods corev1.PodList

	request := c.core.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+node)
	if err := read(ctx, "list the pods on node "+node, request, &pods); err != nil {
		return nil, err
	}

	// Many pods may share one claim.
	claims := map[[2]string]bool{}

	for i := range pods.Items {
		if pod := &pods.Items[i]; !finished(pod) {
			for _, claim := range claimsOf(pod) {
				claims[[2]string{pod.Namespace, claim}] = true
			}
		}
	}

	used := map[string]bool{}

	for claim := range claims {
		found, err := listOf(ctx, "read the PersistentVolumeClaim "+claim[0]+"/"+claim[1], func() *rest.Request {
			return c.core.Get().Namespace(claim[0]).Resource("persistentvolumeclaims").Param("fieldSelector", "metadata.name="+claim[1])
		}, func() *corev1.PersistentVolumeClaimList { return &corev1.PersistentVolumeClaimList{} },
			func(page *corev1.PersistentVolumeClaimList) []string {
				return each(page.Items, func(o *corev1.PersistentVolumeClaim) string { return o.Spec.VolumeName })
			})
		if err != nil {
			return nil, err
		}

		for _, volume := range found {
			used[volume] = true
		}
	}

	return used, nil
}

// claimsOf returns the names of the claims of a pod, which are in its namespace.
func claimsOf(pod *corev1.Pod) []string {
	var claims []string

	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			claims = append(claims, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			// The controller gives this name to the claim of an ephemeral volume.
			claims = append(claims, pod.Name+"-"+volume.Name)
		}
	}

	return claims
}
