// SPDX-License-Identifier: MPL-2.0

package removal

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// preventReferences is the gate with which kubelets refuse static pods that refer to objects of the API. It was
// added in 1.34, enabled by default, and removed in 1.37, where they always refuse them
// (PreventStaticPodAPIReferences in pkg/features of k8s.io/kubernetes v1.34.4 and v1.37.2).
const preventReferences = "PreventStaticPodAPIReferences"

// refusesReferences reports whether a kubelet of the minor version with the given gates, which may be nil, refuses a
// static pod that refers to an object of the API.
func refusesReferences(minor version.Minor, gates map[string]bool) bool {
	since, always := version.Minor{Major: 1, Minor: 34}, version.Minor{Major: 1, Minor: 37}

	if minor.Compare(since) < 0 {
		return false
	}

	enabled, set := gates[preventReferences]

	return minor.Compare(always) >= 0 || !set || enabled
}

// references returns the static pods of a node that its kubelet runs in the minor version from and refuses in to.
func (c *Client) references(ctx context.Context, from, to version.Version, address string, gates map[string]bool) ([]cluster.Removal, error) {
	if refusesReferences(from.Minor(), gates) || !refusesReferences(to.Minor(), gates) {
		return nil, nil
	}

	pods, err := safe.StateListAll[*k8s.StaticPod](ctx, c.states.State(address))
	if err != nil {
		return nil, &nodeFailure{address: address, cause: err}
	}

	var all []cluster.Removal

	for pod := range pods.All() {
		described, err := podOf(pod)
		if err != nil {
			return nil, &nodeFailure{address: address, cause: err}
		}

		if resource := referred(described); resource != "" {
			all = append(all, cluster.Removal{
				Kind: KindStaticPod, Name: pod.Metadata().ID(), Address: address, Component: cluster.Kubelet, Refers: resource, In: to,
			})
		}
	}

	return all, nil
}

// podOf returns the pod that a node renders. The error has no reason, because that would quote the pod.
func podOf(pod *k8s.StaticPod) (described corev1.Pod, err error) {
	text, err := json.Marshal(pod.TypedSpec().Pod)
	if err == nil {
		err = json.Unmarshal(text, &described)
	}

	if err != nil {
		return described, notAPod(pod)
	}

	return described, nil
}

// referred returns the resource of the API that a pod refers to, with the name from HasAPIObjectReference in
// pkg/api/pod of k8s.io/kubernetes v1.37.2; empty if there is none.
func referred(pod corev1.Pod) string {
	spec := pod.Spec

	switch {
	case spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "":
		return "serviceaccounts"
	case len(spec.ImagePullSecrets) > 0:
		return "secrets"
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims"
	}

	for _, volume := range spec.Volumes {
		if resource := referredBy(volume.VolumeSource); resource != "" {
			return resource
		}
	}

	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, source := range container.EnvFrom {
			switch {
			case source.SecretRef != nil:
				return "secrets"
			case source.ConfigMapRef != nil:
				return "configmaps"
			}
		}

		for _, variable := range container.Env {
			switch {
			case variable.ValueFrom == nil:
			case variable.ValueFrom.SecretKeyRef != nil:
				return "secrets"
			case variable.ValueFrom.ConfigMapKeyRef != nil:
				return "configmaps"
			}
		}
	}

	return ""
}

// referredBy returns the resource that a volume comes from; empty if it needs nothing from the API.
func referredBy(volume corev1.VolumeSource) string {
	switch {
	case volume.Secret != nil, volume.AzureFile != nil, volume.CephFS != nil && volume.CephFS.SecretRef != nil,
		volume.Cinder != nil && volume.Cinder.SecretRef != nil, volume.FlexVolume != nil && volume.FlexVolume.SecretRef != nil,
		volume.ISCSI != nil && volume.ISCSI.SecretRef != nil, volume.RBD != nil && volume.RBD.SecretRef != nil,
		volume.ScaleIO != nil && volume.ScaleIO.SecretRef != nil, volume.StorageOS != nil && volume.StorageOS.SecretRef != nil:
		return "secrets"
	case volume.ConfigMap != nil:
		return "configmaps"
	case volume.CSI != nil:
		return "csidrivers"
	case volume.Glusterfs != nil:
		return "endpoints"
	case volume.PersistentVolumeClaim != nil, volume.Ephemeral != nil:
		return "persistentvolumeclaims"
	case volume.Projected == nil:
		return ""
	}

	for _, source := range volume.Projected.Sources {
		switch {
		case source.Secret != nil:
			return "secrets"
		case source.ConfigMap != nil:
			return "configmaps"
		case source.ServiceAccountToken != nil:
			return "serviceaccounts"
		case source.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case source.PodCertificate != nil:
			return "podcertificates"
		}
	}

	return ""
}
