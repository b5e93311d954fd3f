// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
)

func TestLack_SaysWhatIsNotRolledOut(t *testing.T) {
	t.Parallel()

	const namespace = "kube-system"

	two := int32(2)
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy", Generation: 2}}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "resolver", Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: &two},
	}

	for want, step := range map[string]struct {
		kind   string
		daemon *appsv1.DaemonSetStatus
		rolled *appsv1.DeploymentStatus
	}{
		"it does not exist": {kind: "DaemonSet"},
		unobserved:          {kind: "DaemonSet", daemon: &appsv1.DaemonSetStatus{ObservedGeneration: 1}},
		"0 of 3 pods are updated": {kind: "DaemonSet", daemon: &appsv1.DaemonSetStatus{
			ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 2,
		}},
		"0 of 2 pods are updated": {kind: "Deployment", rolled: &appsv1.DeploymentStatus{ObservedGeneration: 2}},
		"1 pods from before are still there": {kind: "Deployment", rolled: &appsv1.DeploymentStatus{
			ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 3,
		}},
		"1 of 2 pods are ready": {kind: "Deployment", rolled: &appsv1.DeploymentStatus{
			ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1,
		}},
		"": {kind: "Deployment", rolled: &appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}},
	} {
		client, name := fake.NewClientset(), "proxy"

		switch {
		case step.daemon != nil:
			set := daemons.DeepCopy()
			set.Status = *step.daemon
			client = fake.NewClientset(set)
		case step.rolled != nil:
			rolled := deployment.DeepCopy()
			rolled.Status, name = *step.rolled, "resolver"
			client = fake.NewClientset(rolled)
		}

		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(step.kind))
		object.SetNamespace(namespace)
		object.SetName(name)

		if lacks, err := lack(t.Context(), client, object); err != nil || lacks != want {
			t.Errorf("lacks %q, %v, want %q", lacks, err, want)
		}
	}
}
