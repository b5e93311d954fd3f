// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// draft is a pod as far as the pod alone tells. Of 10,000 of them nothing else
// is kept.
type draft struct {
	pod cluster.WorkloadPod
	// meta has the namespace, the labels, the mark of a mirror pod and the owners.
	meta metav1.ObjectMeta
	// unguarded tells that no budget has a say: the API server asks none for a
	// pod that has never run.
	unguarded  bool
	constraint constraint
	// claims are the names of its PersistentVolumeClaims.
	claims []string
}

// constraint is which nodes a pod wants and tolerates.
type constraint struct {
	// key is the same for pods that fit the same nodes.
	key         string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

func newDraft(pod *corev1.Pod) *draft {
	// What counts is what another pod like it would ask for, so not what a resize
	// made of this one.
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})

	one := &draft{
		pod: cluster.WorkloadPod{
			Pod: cluster.Pod{
				Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Terminating: pod.DeletionTimestamp != nil,
			},
			Node: pod.Spec.NodeName, Ready: ready(pod),
			CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value(),
		},
		meta:       metav1.ObjectMeta{Namespace: pod.Namespace, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences},
		unguarded:  pod.Status.Phase == corev1.PodPending,
		constraint: newConstraint(pod),
	}

	if mirrored, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		one.meta.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirrored}
	}

	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.EmptyDir != nil:
			one.pod.LocalData = append(one.pod.LocalData, volume.Name)
		case volume.PersistentVolumeClaim != nil:
			one.claims = append(one.claims, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			// The name that the controller gives to the claim of such a volume.
			one.claims = append(one.claims, pod.Name+"-"+volume.Name)
		}
	}

	return one
}

func newConstraint(pod *corev1.Pod) constraint {
	wanted := struct {
		Selector    map[string]string    `json:",omitempty"`
		Affinity    *corev1.NodeSelector `json:",omitempty"`
		Tolerations []corev1.Toleration  `json:",omitempty"`
	}{Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}

	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		wanted.Affinity = affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}

	made := constraint{affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations}

	key, err := json.Marshal(wanted)
	if err != nil {
		// A pod of its own kind is worked out for itself.
		key = []byte(pod.UID)
	}

	made.key = string(key)

	return made
}

// staysBehind tells whether a drain leaves the pod alone, by kubectl's rules: a
// mirror pod, and a pod that a DaemonSet would bring right back. A DaemonSet that
// no longer exists would not, and what others call a DaemonSet may or may not.
func staysBehind(pod metav1.Object, exists func(daemonSet string) (bool, error)) (bool, error) {
	if _, mirror := pod.GetAnnotations()[corev1.MirrorPodAnnotationKey]; mirror {
		return true, nil
	}

	owner := metav1.GetControllerOf(pod)
	if !isDaemonSet(owner) {
		return false, nil
	}

	return exists(owner.Name)
}

// isDaemonSet compares the version as well, as kubectl does.
func isDaemonSet(owner *metav1.OwnerReference) bool {
	return owner != nil && owner.Kind == kindDaemonSet && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}
