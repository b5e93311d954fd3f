// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

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
