// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

const (
	namespaceSystem = "kube-system"
	// labelApp is what budgets select pods by, labelComponent names the component
	// that a pod is part of.
	labelApp       = "app"
	labelComponent = "k8s-app"
	// annotationConfigVersion is the version of the configuration that Talos made
	// a static pod from.
	annotationConfigVersion = "talos.dev/config-version"
	// annotationFilesVersion is the version of the files of an API server.
	annotationFilesVersion = "talos.dev/config-file-version"
)

func (s *Server) pods() ([]object, error) {
	var objects []object

	for _, own := range s.cluster.ComponentPodViews() {
		objects = append(objects, componentPod(own))
	}

	views, _ := s.cluster.WorkloadView()
	for _, view := range views {
		objects = append(objects, workloadPod(view))
	}

	return objects, nil
}

// componentPod is a static pod as its mirror shows it, or one of kube-proxy.
func componentPod(own cluster.ComponentPod) *corev1.Pod {
	component := string(own.Component)
	name := component + "-" + own.Node

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceSystem, Name: name, UID: types.UID("uid-" + name),
			Labels:          map[string]string{labelComponent: component},
			OwnerReferences: []metav1.OwnerReference{owner("v1", "Node", own.Node)},
		},
		Spec: corev1.PodSpec{
			NodeName: own.Node, Containers: []corev1.Container{{Name: component, Image: own.Image}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}

	if own.Component == cluster.Proxy {
		pod.OwnerReferences = []metav1.OwnerReference{owner(appsv1.SchemeGroupVersion.String(), "DaemonSet", component)}
	} else {
		pod.Annotations = map[string]string{
			corev1.MirrorPodAnnotationKey: "mirror-of-" + name, annotationConfigVersion: own.ConfigVersion,
		}

		if own.FilesVersion != "" {
			pod.Annotations[annotationFilesVersion] = own.FilesVersion
		}
	}

	container := corev1.ContainerStatus{Name: component, Image: own.Image, Ready: own.Ready}

	if reason, message, _ := strings.Cut(own.Trouble, ": "); reason != "" {
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	}

	if container.State.Waiting == nil && !own.Started.IsZero() {
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(own.Started)}
	}

	pod.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	runs(pod, own.Ready)

	return pod
}

// runs has the status of a pod say that it runs, and whether it is ready.
func runs(pod *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}

	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

func owner(version, kind, name string) metav1.OwnerReference {
	yes := true

	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: ownerUID(kind, name), Controller: &yes}
}

func ownerUID(kind, name string) types.UID {
	return types.UID("uid-" + strings.ToLower(kind) + "-" + name)
}

func workloadPod(view ports.PodView) *corev1.Pod {
	container := corev1.Container{Name: "main", Image: "example.org/" + view.App + ":1"}

	if view.CPU > 0 || view.Memory > 0 {
		container.Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    *apiresource.NewMilliQuantity(view.CPU, apiresource.DecimalSI),
			corev1.ResourceMemory: *apiresource.NewQuantity(view.Memory, apiresource.BinarySI),
		}
	}

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: view.Namespace, Name: view.Name, UID: types.UID(view.UID), Labels: map[string]string{labelApp: view.App},
		},
		Spec: corev1.PodSpec{NodeName: view.Node, Containers: []corev1.Container{container}},
	}

	if _, name, owned := strings.Cut(view.Owner, "/"); owned {
		pod.OwnerReferences = []metav1.OwnerReference{owner(appsv1.SchemeGroupVersion.String(), "ReplicaSet", name)}
	}

	for _, volume := range view.LocalData {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
	}

	if view.Only != nil {
		restrict(&pod.Spec, view.Only)
	}

	if view.Terminating {
		gone := metav1.NewTime(view.Gone)
		pod.DeletionTimestamp = &gone
	}

	if view.Node == "" {
		pod.Status.Phase = corev1.PodPending

		return pod
	}

	runs(pod, view.Ready)

	return pod
}

// restrict has a pod ask for certain nodes, control planes or not.
func restrict(spec *corev1.PodSpec, names []string) {
	wanted := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: slices.Sorted(slices.Values(names))}
	if len(names) == 0 {
		// All nodes have the label, so none is wanted.
		wanted.Operator = corev1.NodeSelectorOpDoesNotExist
	}

	spec.Tolerations = []corev1.Toleration{{Key: labelControlPlane, Operator: corev1.TolerationOpExists}}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{wanted}},
		}},
	}}
}

// nodeOfPod is where the pod of a workload runs; empty for what is none.
func (s *Server) nodeOfPod(namespace, name string) string {
	if name == "" {
		return ""
	}

	views, _ := s.cluster.WorkloadView()

	index := slices.IndexFunc(views, func(view ports.PodView) bool { return view.Namespace == namespace && view.Name == name })
	if index < 0 {
		return ""
	}

	return views[index].Node
}

// removePod deletes a pod with its own grace period, whatever its budgets say.
func (s *Server) removePod(asked *call, current object) error {
	if current.GetNamespace() == namespaceSystem {
		return notTaken(asked)
	}

	asked.told = true
	s.cluster.RemovePod(asked.Client, podOf(current))

	return nil
}

func podOf(one object) cluster.Pod {
	return cluster.Pod{Namespace: one.GetNamespace(), Name: one.GetName(), UID: string(one.GetUID())}
}

// notTaken is the answer to taking a component of a node away.
func notTaken(asked *call) error {
	return apierrors.NewForbidden(asked.group(), asked.Name, errComponent)
}
