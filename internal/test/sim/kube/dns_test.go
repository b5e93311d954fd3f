// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func getDNS(t *testing.T, client kubernetes.Interface) *appsv1.Deployment {
	t.Helper()

	deployment, err := client.AppsV1().Deployments(namespaceSystem).Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return deployment
}

// available tells whether a Deployment of two says of itself that all is well.
func available(deployment *appsv1.Deployment) bool {
	status := deployment.Status

	return status.ObservedGeneration == deployment.Generation && status.Replicas == 2 && status.UpdatedReplicas == 2 &&
		status.ReadyReplicas == 2 && status.AvailableReplicas == 2 && status.UnavailableReplicas == 0 &&
		slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Reason == "NewReplicaSetAvailable"
		}) &&
		slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
		})
}

func dnsPods(t *testing.T, client kubernetes.Interface) []corev1.Pod {
	t.Helper()

	list, err := client.CoreV1().Pods(namespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		t.Fatal(err)
	}

	return list.Items
}

// nodesOf are the nodes that pods run on, sorted.
func nodesOf(pods []corev1.Pod) []string {
	var nodes []string

	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && podReady(&pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}

	slices.Sort(nodes)

	return nodes
}

func TestCoreDNSRunsOnTwoControlPlanes(t *testing.T) {
	s := need(t)
	client := s.as(t, "test")

	until(t, "CoreDNS to be available", func() bool { return available(getDNS(t, client)) })

	nodes := nodesOf(dnsPods(t, client))
	if len(nodes) != 2 || nodes[0] == nodes[1] || nodes[0][:2] != "cp" || nodes[1][:2] != "cp" {
		t.Errorf("CoreDNS runs on %v, want two control planes", nodes)
	}

	// Pods that are evicted come up elsewhere, and their node is free of them.
	node := nodes[1]
	patchNode(t, client, node, cordonPatch, metav1.PatchOptions{})

	for _, pod := range dnsPods(t, client) {
		if pod.Spec.NodeName == node {
			if err := evict(t, client, pod); err != nil {
				t.Fatal(err)
			}
		}
	}

	until(t, "CoreDNS to be available elsewhere", func() bool {
		return available(getDNS(t, client)) && !slices.Contains(nodesOf(dnsPods(t, client)), node) && len(dnsPods(t, client)) == 2
	})
	patchNode(t, client, node, uncordonPatch, metav1.PatchOptions{})
}

// TestClusterWithoutKubeProxy has a server of its own.
func TestClusterWithoutKubeProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real API server")
	}

	s, err := newShared(t.TempDir(), 1, 1, 0, func(w *fakeWorld) {
		w.rendered.ProxyImage = ""

		for i := range w.machines {
			w.machines[i].Proxy, w.machines[i].Talos = "", "1.13.2"
		}
	})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := s.server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()

	client := s.as(t, "test")

	if _, err := client.AppsV1().DaemonSets(namespaceSystem).Get(t.Context(), nameProxy, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the DaemonSet of kube-proxy: %v, want none", err)
	}

	if pods := proxyPods(t, client); len(pods) != 0 {
		t.Errorf("%d pods of kube-proxy", len(pods))
	}

	if deployment := getDNS(t, client); !available(deployment) {
		t.Errorf("CoreDNS is not available when the cluster has started: %+v", deployment.Status)
	}

	if nodes := nodesOf(dnsPods(t, client)); !slices.Equal(nodes, []string{"cp-0", "cp-0"}) {
		t.Errorf("CoreDNS runs on %v, want the only control plane", nodes)
	}

	service, err := client.CoreV1().Services(namespaceSystem).Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "10.96.0.10" {
		t.Errorf("the service of CoreDNS: %v, address %s", err, service.Spec.ClusterIP)
	}

	s.bornWithInventory(t, client, slices.DeleteFunc(inventoryKeys(), func(key string) bool {
		return strings.Contains(key, nameProxy)
	}))
	replaceDNS(t, client)
}

// replaceDNS deletes CoreDNS in the way that waits for what belongs to it, and
// creates it again.
func replaceDNS(t *testing.T, client kubernetes.Interface) {
	t.Helper()

	before := getDNS(t, client)
	foreground := metav1.DeletePropagationForeground

	err := client.AppsV1().Deployments(namespaceSystem).Delete(t.Context(), "coredns", metav1.DeleteOptions{PropagationPolicy: &foreground})
	if err != nil {
		t.Fatal(err)
	}

	until(t, "CoreDNS to be gone", func() bool {
		_, err := client.AppsV1().Deployments(namespaceSystem).Get(t.Context(), "coredns", metav1.GetOptions{})

		return apierrors.IsNotFound(err) && len(dnsPods(t, client)) == 0
	})

	again := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceSystem, Name: before.Name, Labels: before.Labels}, Spec: before.Spec,
	}

	if _, err := client.AppsV1().Deployments(namespaceSystem).Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	until(t, "CoreDNS to be back", func() bool { return available(getDNS(t, client)) })
}
