// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// addPod puts a pod on a node, with the given owners.
func addPod(t *testing.T, other kubernetes.Interface, name, node string, owners ...metav1.OwnerReference) *corev1.Pod {
	t.Helper()

	return addPodWith(t, other, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "example.org/c:1"}}},
	})
}

func addPodWith(t *testing.T, other kubernetes.Interface, wanted *corev1.Pod) *corev1.Pod {
	t.Helper()

	pod, err := other.CoreV1().Pods("default").Create(t.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		now := int64(0)

		// The context of the test is over by now.
		err := other.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})

	return pod
}

// orphaned returns a DaemonSet that is gone, of a version that the garbage collector cannot look
// up: it would take its pods away.
func orphaned() metav1.OwnerReference {
	yes := true

	return metav1.OwnerReference{APIVersion: "apps/v0", Kind: "DaemonSet", Name: "gone", UID: "11111111-0000-0000-0000-000000000000", Controller: &yes}
}

func TestPod_DrainTakesWhatKubectlTakes(t *testing.T) {
	api, other := live(t)

	addPod(t, other, "alone", "worker-0")
	addPod(t, other, "orphan", "worker-0", orphaned())
	addPod(t, other, "elsewhere", "worker-1")

	done := addPod(t, other, "done", "worker-0")
	done.Status.Phase = corev1.PodSucceeded

	if _, err := other.CoreV1().Pods("default").UpdateStatus(t.Context(), done, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	all, err := other.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=worker-0"})
	if err != nil {
		t.Fatal(err)
	}

	pods, err := api.PodsToEvict(t.Context(), "worker-0")
	if err != nil {
		t.Fatal(err)
	}

	has := func(name string) bool {
		return slices.ContainsFunc(pods, func(pod cluster.Pod) bool { return strings.HasPrefix(pod.Name, name) })
	}

	for name, want := range map[string]bool{"alone": true, "orphan": true, "elsewhere": false, "done": false, "kube-proxy": false} {
		if has(name) != want {
			t.Errorf("%s is to be evicted: %t, want %t", name, has(name), want)
		}
	}

	if !slices.ContainsFunc(all.Items, func(pod corev1.Pod) bool { return strings.HasPrefix(pod.Name, "kube-proxy") }) {
		t.Error("there is no pod of a DaemonSet that could have been left out")
	}

	planes, err := api.PodsToEvict(t.Context(), "cp-0")
	if err != nil {
		t.Fatal(err)
	}

	for _, pod := range planes {
		// CoreDNS tolerates control planes and moves like any workload.
		if !strings.HasPrefix(pod.Name, "coredns") {
			t.Errorf("%s on a control plane is to be evicted", pod)
		}
	}
}

func TestPod_EvictedLeavesAndAnotherOfItsNameStays(t *testing.T) {
	api, other := live(t)
	added := addPod(t, other, "leaving", "worker-0")

	stranger := cluster.Pod{Namespace: "default", Name: "leaving", UID: "22222222-0000-0000-0000-000000000000"}

	if err := api.Evict(t.Context(), stranger); err != nil {
		t.Errorf("evicting a pod that is gone: %v", err)
	}

	if err := api.DeletePod(t.Context(), stranger); err != nil {
		t.Errorf("deleting a pod that is gone: %v", err)
	}

	pod := cluster.Pod{Namespace: "default", Name: "leaving", UID: string(added.UID)}

	found, err := other.CoreV1().Pods("default").Get(t.Context(), "leaving", metav1.GetOptions{})
	if err != nil || found.DeletionTimestamp != nil {
		t.Fatalf("the pod was taken for another one: %v, %v", found.DeletionTimestamp, err)
	}

	if err := api.Evict(t.Context(), pod); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the pod to leave", func() (bool, error) {
		pods, err := api.PodsToEvict(t.Context(), "worker-0")

		return !slices.ContainsFunc(pods, func(other cluster.Pod) bool { return other.UID == pod.UID }), err
	})

	for name, call := range map[string]func() error{
		"evict":  func() error { return api.Evict(t.Context(), pod) },
		"delete": func() error { return api.DeletePod(t.Context(), pod) },
	} {
		if err := call(); err != nil {
			t.Errorf("%s a pod that is gone: %v", name, err)
		}
	}
}

func TestPod_DeletedLeaves(t *testing.T) {
	api, other := live(t)
	added := addPod(t, other, "deleted", "worker-0")

	if err := api.DeletePod(t.Context(), cluster.Pod{Namespace: "default", Name: "deleted", UID: string(added.UID)}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the pod to be terminating or gone", func() (bool, error) {
		found, err := other.CoreV1().Pods("default").Get(t.Context(), "deleted", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}

		return found.DeletionTimestamp != nil, err
	})
}

func TestPod_ExhaustedBudgetIsNamed(t *testing.T) {
	api, other := live(t)

	budgets, err := other.PolicyV1().PodDisruptionBudgets("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(budgets.Items) == 0 {
		t.Fatalf("no budgets in the cluster: %v", err)
	}

	covered := budgets.Items[0]

	// Two pods of one budget at once: the second one has to wait.
	pods, err := other.CoreV1().Pods(covered.Namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(covered.Spec.Selector),
	})
	if err != nil || len(pods.Items) < 2 {
		t.Fatalf("%d pods below the budget, %v", len(pods.Items), err)
	}

	var refused error

	for _, pod := range pods.Items {
		err := api.Evict(t.Context(), cluster.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)})
		if err != nil {
			refused = err

			break
		}
	}

	if !errors.Is(refused, cluster.ErrBudget) || !strings.Contains(refused.Error(), covered.Name) {
		t.Errorf("%v, want the budget %s to be named", refused, covered.Name)
	}

	eventually(t, "the workload to recover", func() (bool, error) {
		now, err := other.PolicyV1().PodDisruptionBudgets(covered.Namespace).Get(t.Context(), covered.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		return now.Status.DisruptionsAllowed > 0 && now.Status.CurrentHealthy == now.Status.ExpectedPods, nil
	})
}

func TestPod_OfTwoBudgetsIsNotEvicted(t *testing.T) {
	api, other := live(t)

	added := addPod(t, other, "contested", "worker-0")
	added.Labels = map[string]string{"app": "contested"}

	added, err := other.CoreV1().Pods("default").Update(t.Context(), added, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	// A pod that has not run yet is evicted without consulting a budget.
	added.Status.Phase = corev1.PodRunning

	if _, err := other.CoreV1().Pods("default").UpdateStatus(t.Context(), added, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	budgets := other.PolicyV1().PodDisruptionBudgets("default")

	for _, name := range []string{"first", "second"} {
		if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: added.Labels}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := budgets.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}

	pod := cluster.Pod{Namespace: "default", Name: "contested", UID: string(added.UID)}
	if err := api.Evict(t.Context(), pod); !errors.Is(err, cluster.ErrOverlap) || !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("%v, want it refused because of two budgets", err)
	}
}

func TestPod_SaysItsImageAndWhyItDoesNotRun(t *testing.T) {
	t.Parallel()

	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}

	crashed := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "unknown flag:\n\t--gone"}

	looping := waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container")
	looping.LastTerminationState.Terminated = crashed

	for name, test := range map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"runs":             {corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, ""},
		"is not reported":  {corev1.ContainerStatus{}, ""},
		"is being created": {waiting("ContainerCreating", ""), ""},
		"has no image":     {waiting("ImagePullBackOff", "Back-off pulling image \"x\":\n not found"), `ImagePullBackOff: Back-off pulling image "x": not found`},
		"has no message":   {waiting("ErrImagePull", ""), "ErrImagePull"},
		"keeps crashing":   {looping, "CrashLoopBackOff: exit code 1: Error: unknown flag: --gone"},
		"has just crashed": {corev1.ContainerStatus{State: corev1.ContainerState{Terminated: crashed}}, "exit code 1: Error: unknown flag: --gone"},
		"talks too much":   {waiting("CreateContainerError", strings.Repeat("ä", 1000)), "CreateContainerError: " + strings.Repeat("ä", 278) + "..."},
	} {
		test.status.Name = "kube-apiserver"

		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "kube-apiserver-cp-0", Labels: map[string]string{"k8s-app": "kube-apiserver"},
			Annotations: map[string]string{"talos.dev/config-version": "7"},
		}}
		pod.Spec.Containers = []corev1.Container{{Name: "kube-apiserver", Image: "registry.k8s.io/kube-apiserver:v1.35.2"}}
		// Problems of another container do not matter.
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", State: waiting("ErrImagePull", "").State}, test.status}

		api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")

			_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{pod}})
		})

		pods, err := api.ComponentPods(t.Context())
		if err != nil || len(pods) != 1 {
			t.Fatalf("%s: %d pods, %v", name, len(pods), err)
		}

		if pods[0].Trouble != test.want || pods[0].ConfigVersion != "7" {
			t.Errorf("a pod that %s: trouble %q of configuration %q, want %q of 7", name, pods[0].Trouble, pods[0].ConfigVersion, test.want)
		}
	}
}
