// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

const present, before = "present", "before"

// proxySet returns a DaemonSet that is wanted on three nodes and is not complete.
func proxySet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "proxy"}

	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "proxy", UID: "set", Generation: 2},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: present}}}},
		},
		Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 2, NumberReady: 2},
	}
}

func nodeNamed(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

// podOn returns a pod of the revision, whose image has the same name.
func podOn(node, revision string, ready corev1.ConditionStatus) *corev1.Pod {
	controller := true

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "proxy-" + node + "-" + revision,
			Labels:          map[string]string{"app": "proxy", appsv1.ControllerRevisionHashLabelKey: revision},
			OwnerReferences: []metav1.OwnerReference{{UID: "set", Kind: "DaemonSet", Controller: &controller}},
		},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: revision}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func revisionNamed(name string, number int64) *appsv1.ControllerRevision {
	controller := true

	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "proxy-" + name,
			Labels:          map[string]string{"app": "proxy", appsv1.ControllerRevisionHashLabelKey: name},
			OwnerReferences: []metav1.OwnerReference{{UID: "set", Kind: "DaemonSet", Controller: &controller}},
		},
		Revision: number,
	}
}

func TestRollout_OnlyPodsOnReadyNodesHoldItUp(t *testing.T) {
	t.Parallel()

	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown

	nodes := func(third corev1.ConditionStatus) []runtime.Object {
		return []runtime.Object{nodeNamed("a", yes), nodeNamed("b", yes), nodeNamed("c", third)}
	}
	history := []runtime.Object{revisionNamed(before, 1), revisionNamed(present, 2)}

	gone := podOn("b", present, yes)
	gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{}, []string{"example.org/held"}

	stranger := podOn("c", present, yes)
	stranger.OwnerReferences[0].UID = "another"

	same := podOn("b", before, yes)
	same.Spec.Containers[0].Image = present

	for name, test := range map[string]struct {
		change  func(*appsv1.DaemonSet)
		objects [][]runtime.Object
		want    string
	}{
		"a node that is down with an old pod":   {nil, [][]runtime.Object{nodes(unknown), history, {podOn("a", present, yes), podOn("b", present, yes), podOn("c", before, no)}}, ""},
		"a node that is down without a history": {nil, [][]runtime.Object{nodes(no), {podOn("a", present, yes), podOn("b", present, yes), podOn("c", before, no)}}, ""},
		"an old pod on a node that is there":    {nil, [][]runtime.Object{nodes(unknown), history, {podOn("a", present, yes), podOn("b", before, yes), podOn("c", before, no)}}, "1 of 2 pods are updated"},
		"an old pod with the same image":        {nil, [][]runtime.Object{nodes(unknown), history, {podOn("a", present, yes), same, podOn("c", before, no)}}, "1 of 2 pods are updated"},
		"an old pod without a history":          {nil, [][]runtime.Object{nodes(unknown), {podOn("a", present, yes), podOn("b", before, yes), podOn("c", before, no)}}, "1 of 2 pods are updated"},
		"a new pod that is not ready":           {nil, [][]runtime.Object{nodes(unknown), history, {podOn("a", present, yes), podOn("b", present, no), podOn("c", before, no)}}, "1 of 2 pods are ready"},
		"a pod on its way out":                  {nil, [][]runtime.Object{nodes(yes), history, {podOn("a", present, yes), gone, podOn("c", present, yes)}}, "2 of 3 pods are updated"},
		"a pod that is missing":                 {nil, [][]runtime.Object{nodes(yes), history, {podOn("a", present, yes), podOn("b", present, yes)}}, "2 of 3 pods are updated"},
		"a pod of something else":               {nil, [][]runtime.Object{nodes(yes), history, {podOn("a", present, yes), podOn("b", present, yes), stranger}}, "2 of 3 pods are updated"},
		"a pod of a node that was deleted":      {nil, [][]runtime.Object{nodes(yes), history, {podOn("a", present, yes), podOn("b", present, yes), podOn("d", present, yes)}}, "2 of 3 pods are updated"},
		"somebody else deletes the pods": {func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}, nil, ""},
		"unseen": {func(d *appsv1.DaemonSet) { d.Generation++ }, nil, unobserved},
		"everything is in place": {func(d *appsv1.DaemonSet) {
			d.Status.UpdatedNumberScheduled, d.Status.NumberReady, d.Status.NumberAvailable = 3, 3, 3
		}, nil, ""},
	} {
		var objects []runtime.Object
		for _, some := range test.objects {
			objects = append(objects, some...)
		}

		set := proxySet()
		if test.change != nil {
			test.change(set)
		}

		if got, err := daemonSetLacks(t.Context(), fake.NewClientset(objects...), set); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}

func TestRollout_DeploymentIsMeasuredByItsDesiredReplicas(t *testing.T) {
	t.Parallel()

	two := int32(2)

	for name, test := range map[string]struct {
		replicas *int32
		status   appsv1.DeploymentStatus
		want     string
	}{
		"new":            {&two, appsv1.DeploymentStatus{}, "0 of 2 pods are updated"},
		"new, one pod":   {nil, appsv1.DeploymentStatus{}, "0 of 1 pods are updated"},
		"being replaced": {&two, appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 3}, "1 pods from before are still there"},
		"starting":       {&two, appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1}, "1 of 2 pods are ready"},
		"rolled out":     {&two, appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, ""},
		"scaled to none": {new(int32), appsv1.DeploymentStatus{}, ""},
		"not looked at":  {&two, appsv1.DeploymentStatus{ObservedGeneration: -1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}, unobserved},
	} {
		if got := deploymentLacks(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: test.replicas}, Status: test.status}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
