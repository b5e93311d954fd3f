// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

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

var errComponent = errors.New("the simulated cluster takes no component of a node away")

// overlap is what the API server says of a pod that two budgets cover.
const overlap = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

// evict deletes a pod if its budget allows it. What becomes of the request is in
// the history in any case.
func (s *Server) evict(of *resource, asked *call) (answer, error) {
	var eviction policyv1.Eviction
	if err := s.codec.decode(asked.header, asked.body, &eviction); err != nil {
		return answer{}, err
	}

	if given := cmp.Or(eviction.Name, asked.Name); given != asked.Name {
		return answer{}, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}

	options, err := s.deleteOptions(asked)
	if err != nil {
		return answer{}, err
	}

	current, err := s.one(of, asked.Namespace, asked.Name)
	if err == nil {
		err = precondition(of, current, options)
	}

	if err != nil {
		s.evictGone(asked, options)

		return answer{}, err
	}

	if asked.Namespace == namespaceSystem {
		return answer{}, notTaken(asked)
	}

	attempt := s.cluster.EvictPod
	if asked.dry {
		attempt = s.cluster.TryEvictPod
	}

	err = attempt(asked.Client, podOf(current))

	switch {
	case errors.Is(err, cluster.ErrOverlap):
		return answer{http.StatusInternalServerError, corev1.SchemeGroupVersion, &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: overlap,
		}}, nil
	case errors.Is(err, cluster.ErrBudget):
		return answer{}, s.exhausted(podOf(current))
	case err != nil:
		return answer{}, err
	default:
		return answer{http.StatusCreated, corev1.SchemeGroupVersion, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}}, nil
	}
}

// evictGone has the history tell that a pod was to be evicted that is gone.
func (s *Server) evictGone(asked *call, options metav1.DeleteOptions) {
	gone := cluster.Pod{Namespace: asked.Namespace, Name: asked.Name}
	if wanted := options.Preconditions; wanted != nil && wanted.UID != nil {
		gone.UID = string(*wanted.UID)
	}

	if !asked.dry {
		// Of a pod that is not there it has nothing else to say.
		_ = s.cluster.EvictPod(asked.Client, gone)
	}
}

// exhausted is the answer where a budget has nothing to give.
func (s *Server) exhausted(pod cluster.Pod) error {
	refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)

	_, budgets := s.cluster.WorkloadView()

	index := slices.IndexFunc(budgets, func(budget ports.BudgetView) bool { return slices.Contains(budget.Pods, pod.UID) })
	if index < 0 {
		return refused
	}

	budget := budgets[index]
	text := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, budget.Desired, budget.Healthy)

	switch {
	case budget.Stale:
		text = fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget.Name)
		refused.ErrStatus.Details.RetryAfterSeconds = 10
	case budget.Unsynced != "":
		text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", budget.Name, budget.Unsynced)
	}

	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: text,
	})

	return refused
}

func (s *Server) namespaces() ([]object, error) {
	var objects []object

	for _, name := range []string{metav1.NamespaceDefault, namespaceSystem, "workload"} {
		objects = append(objects, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name + "-" + s.cluster.World().ClusterName())},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}

	return objects, nil
}

func (s *Server) budgets() ([]object, error) {
	var objects []object

	_, views := s.cluster.WorkloadView()
	for _, view := range views {
		objects = append(objects, newBudget(view))
	}

	return objects, nil
}

func newBudget(view ports.BudgetView) *policyv1.PodDisruptionBudget {
	least := intstr.FromInt(view.MinAvailable)

	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: view.Namespace, Name: view.Name, Generation: 1},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelApp: view.App}},
		},
	}

	if view.AlwaysAllow {
		always := policyv1.AlwaysAllow
		budget.Spec.UnhealthyPodEvictionPolicy = &always
	}

	if view.Stale {
		return budget
	}

	condition := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason, ObservedGeneration: 1,
	}

	switch {
	case view.Unsynced != "":
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, policyv1.SyncFailedReason, view.Unsynced
	case view.Allowed == 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
	}

	budget.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, Conditions: []metav1.Condition{condition},
		DisruptionsAllowed: int32(view.Allowed), CurrentHealthy: int32(view.Healthy),
		DesiredHealthy: int32(view.Desired), ExpectedPods: int32(view.Expected),
	}

	return budget
}

// replicaSets are those that bring the pods of workloads back.
func (s *Server) replicaSets() ([]object, error) {
	var (
		objects []object
		known   []string
	)

	views, _ := s.cluster.WorkloadView()
	for _, view := range views {
		_, name, owned := strings.Cut(view.Owner, "/")
		if !owned || slices.Contains(known, name) {
			continue
		}

		known = append(known, name)
		wanted := int32(view.Replicas)
		selected := map[string]string{labelApp: view.App}

		objects = append(objects, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: view.Namespace, Name: name, UID: ownerUID("ReplicaSet", name)},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: &wanted, Selector: &metav1.LabelSelector{MatchLabels: selected},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selected}},
			},
		})
	}

	return objects, nil
}

// daemonSets is that of kube-proxy, as long as it has pods.
func (s *Server) daemonSets() ([]object, error) {
	pods := s.cluster.ComponentPodViews()

	index := slices.IndexFunc(pods, func(own cluster.ComponentPod) bool { return own.Component == cluster.Proxy })
	if index < 0 {
		return nil, nil
	}

	name := string(cluster.Proxy)
	selected := map[string]string{labelComponent: name}

	return []object{&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceSystem, Name: name, UID: ownerUID("DaemonSet", name)},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selected}},
		},
	}}, nil
}
