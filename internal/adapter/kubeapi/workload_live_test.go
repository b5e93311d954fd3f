// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestWorkloadsAndDrainsAgree: what a simulation expects to leave a node is what
// leaves it.
func TestWorkloadsAndDrainsAgree(t *testing.T) {
	api, other := live(t)

	addPod(t, other, "alone", "worker-0")
	addPod(t, other, "orphan", "worker-0", controlled("DaemonSet", "gone"))

	found, err := api.Workloads(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	stay, owned := 0, 0

	for _, node := range []string{"cp-0", "cp-1", "cp-2", "worker-0", "worker-1"} {
		var expected []string

		for _, pod := range found.Pods {
			switch {
			case pod.Node != node:
			case pod.Stays:
				stay++
			default:
				expected = append(expected, pod.UID)
			}
		}

		pods, err := api.PodsToEvict(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}

		var evicted []string
		for _, pod := range pods {
			evicted = append(evicted, pod.UID)
		}

		slices.Sort(expected)
		slices.Sort(evicted)

		if !slices.Equal(expected, evicted) {
			t.Errorf("%s: %v are expected to leave, and %v do", node, expected, evicted)
		}
	}

	for _, pod := range found.Pods {
		if pod.Namespace != "workload" {
			continue
		}

		owned++

		if !strings.HasPrefix(pod.Owner, "ReplicaSet/app-") || pod.Replicas != 3 || !pod.Ready || strings.Join(pod.Fits, " ") != "worker-0 worker-1" {
			t.Errorf("%+v, want one of three that fit the workers", pod)
		}
	}

	// Three static pods on each of three nodes, kube-proxy and flannel on five.
	if stay < 14 || owned != 6 {
		t.Errorf("%d pods stay, %d are of workloads", stay, owned)
	}

	if len(found.Rooms) != 5 || found.Rooms[0] != (cluster.Room{Node: "cp-0", CPU: 4000, Memory: 8 << 30, Pods: 110}) {
		t.Errorf("rooms %+v", found.Rooms)
	}

	if len(found.Budgets) != 2 || len(found.Budgets[0].Pods) != 3 || found.Budgets[0].Stale || found.Budgets[0].Expected != 3 {
		t.Errorf("budgets %+v", found.Budgets)
	}
}

// addBudget covers pods by a label.
func addBudget(t *testing.T, other kubernetes.Interface, name string, labels map[string]string) {
	t.Helper()

	none := intstr.FromInt32(0)
	budgets := other.PolicyV1().PodDisruptionBudgets("default")

	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := budgets.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func podNamed(t *testing.T, found cluster.Workloads, name string) cluster.WorkloadPod {
	t.Helper()

	index := slices.IndexFunc(found.Pods, func(pod cluster.WorkloadPod) bool { return pod.Name == name })
	if index < 0 {
		t.Fatalf("there is no pod %s", name)
	}

	return found.Pods[index]
}

func TestAPodBelowTwoBudgetsIsInBoth(t *testing.T) {
	api, other := live(t)

	pod, err := other.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "torn", Labels: map[string]string{"app": "torn", "tier": "back"}},
		Spec:       corev1.PodSpec{NodeName: "worker-0", Containers: []corev1.Container{{Name: "c", Image: "example.org/c:1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		now := int64(0)
		if err := other.CoreV1().Pods("default").Delete(t.Context(), "torn", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Error(err)
		}
	}()

	addBudget(t, other, "by-app", map[string]string{"app": "torn"})
	addBudget(t, other, "by-tier", map[string]string{"tier": "back"})

	eventually(t, "both budgets to cover the pod", func() (bool, error) {
		found, err := api.Workloads(t.Context())

		covering := 0

		for _, budget := range found.Budgets {
			if slices.Equal(budget.Pods, []string{string(pod.UID)}) && !budget.Stale && budget.Allowed == 0 {
				covering++
			}
		}

		return covering == 2, err
	})
}

func TestAPodWithALocalVolumeFitsItsNodeAlone(t *testing.T) {
	api, other := live(t)

	volumes, claims := other.CoreV1().PersistentVolumes(), other.CoreV1().PersistentVolumeClaims("default")
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	class := ""

	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-of-worker-1"}}
	volume.Spec.Capacity, volume.Spec.AccessModes = size, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume.Spec.Local = &corev1.LocalVolumeSource{Path: "/var/mnt/disk"}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: onNode(corev1.LabelHostname, "worker-1")}

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	claim.Spec.VolumeName, claim.Spec.StorageClassName = volume.Name, &class
	claim.Spec.AccessModes, claim.Spec.Resources.Requests = volume.Spec.AccessModes, size

	if _, err := volumes.Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	// The API server protects both with finalizers, and no controller that would
	// take them off runs here.
	free := []byte(`{"metadata":{"finalizers":null}}`)

	defer func() {
		_, volumeErr := volumes.Patch(t.Context(), volume.Name, types.MergePatchType, free, metav1.PatchOptions{})
		_, claimErr := claims.Patch(t.Context(), claim.Name, types.MergePatchType, free, metav1.PatchOptions{})

		if err := errors.Join(
			volumeErr, claimErr, claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}), volumes.Delete(t.Context(), volume.Name, metav1.DeleteOptions{}),
		); err != nil {
			t.Error(err)
		}
	}()

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "database"},
		Spec: corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{
			Name: "c", Image: "example.org/c:1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
		}}},
	}
	claiming(pod)

	if _, err := other.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	defer func() {
		now := int64(0)
		if err := other.CoreV1().Pods("default").Delete(t.Context(), "database", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Error(err)
		}
	}()

	found, err := api.Workloads(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if got := podNamed(t, found, "database"); !slices.Equal(got.Fits, []string{"worker-1"}) || got.CPU != 250 || got.Memory != 1<<30 || got.Owner != "" {
		t.Errorf("%+v, want it bound to worker-1", got)
	}
}
