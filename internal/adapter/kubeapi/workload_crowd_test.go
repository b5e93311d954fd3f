// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const crowdPage = 500

// crowd is a cluster of so many nodes and pods, of which three each belong to one
// ReplicaSet and one budget, all in one namespace. It answers lists as an API
// server does.
func crowd(tb testing.TB, nodes, pods int) http.HandlerFunc {
	tb.Helper()

	lists := map[string][][]byte{
		"/api/v1/nodes":                        crowdPages(tb, nodes, corev1.SchemeGroupVersion, "Node", crowdNodes),
		"/api/v1/pods":                         crowdPages(tb, pods, corev1.SchemeGroupVersion, "Pod", func(from, to int) runtime.Object { return crowdPods(nodes, from, to) }),
		"/apis/apps/v1/replicasets":            crowdPages(tb, pods/3, appsv1.SchemeGroupVersion, "ReplicaSet", crowdReplicas),
		"/apis/policy/v1/poddisruptionbudgets": crowdPages(tb, pods/3, policyv1.SchemeGroupVersion, "PodDisruptionBudget", crowdBudgets),
	}

	return func(w http.ResponseWriter, r *http.Request) {
		pages, served := lists[r.URL.Path]
		page, _ := strconv.Atoi(r.URL.Query().Get("continue"))

		if !served || page >= len(pages) || r.URL.Query().Get("limit") != strconv.Itoa(crowdPage) {
			status(http.StatusNotFound, "NotFound", "no "+r.URL.String())(w, r)

			return
		}

		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)

		_, _ = w.Write(pages[page])
	}
}

// crowdPages encodes a list page by page, with the number of the next page to
// continue with.
func crowdPages(tb testing.TB, count int, group schema.GroupVersion, kind string, page func(from, to int) runtime.Object) [][]byte {
	tb.Helper()

	serializer := protobuf.NewSerializer(nil, nil)

	var pages [][]byte

	for from := 0; from < count; from += crowdPage {
		list := page(from, min(from+crowdPage, count))
		list.GetObjectKind().SetGroupVersionKind(group.WithKind(kind + "List"))

		if from+crowdPage < count {
			meta, err := apimeta.ListAccessor(list)
			if err != nil {
				tb.Fatal(err)
			}

			meta.SetContinue(strconv.Itoa(len(pages) + 1))
		}

		var body bytes.Buffer
		if err := serializer.Encode(list, &body); err != nil {
			tb.Fatal(err)
		}

		pages = append(pages, body.Bytes())
	}

	return pages
}

func crowdNodes(from, to int) runtime.Object {
	list := &corev1.NodeList{}

	for i := from; i < to; i++ {
		name := fmt.Sprintf("worker-%04d", i)
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), "pool": fmt.Sprintf("pool-%d", i%10),
		}}}
		node.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}

		if i%50 == 0 {
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}

		list.Items = append(list.Items, node)
	}

	return list
}

// crowdPods gives every thousandth controller constraints of its own.
func crowdPods(nodes, from, to int) runtime.Object {
	list := &corev1.PodList{}
	seconds := int64(300)
	yes := true

	for i := from; i < to; i++ {
		app := i / 3
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "workload", Name: fmt.Sprintf("app-%d-%d", app, i), UID: types.UID("pod-" + strconv.Itoa(i)),
			Labels:          map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", app), "app.kubernetes.io/part-of": "crowd"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("app-%d", app), UID: types.UID("set-" + strconv.Itoa(app)), Controller: &yes}},
		}}
		pod.Spec.NodeName = fmt.Sprintf("worker-%04d", i%nodes)
		pod.Spec.NodeSelector = map[string]string{"pool": fmt.Sprintf("pool-%d", i%nodes%10)}
		pod.Spec.Tolerations = []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			{Key: "app", Operator: corev1.TolerationOpEqual, Value: strconv.Itoa(app % 1000)},
		}
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.k8s.io/pause:3.10", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		}}}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}

		list.Items = append(list.Items, pod)
	}

	return list
}

func crowdReplicas(from, to int) runtime.Object {
	list := &appsv1.ReplicaSetList{}
	three := int32(3)

	for i := from; i < to; i++ {
		list.Items = append(list.Items, appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "workload", Name: fmt.Sprintf("app-%d", i), UID: types.UID("set-" + strconv.Itoa(i))},
			Spec:       appsv1.ReplicaSetSpec{Replicas: &three},
		})
	}

	return list
}

func crowdBudgets(from, to int) runtime.Object {
	list := &policyv1.PodDisruptionBudgetList{}

	for i := from; i < to; i++ {
		list.Items = append(list.Items, policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "workload", Name: fmt.Sprintf("app-%d", i), Generation: 1},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i)},
			}},
			Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3},
		})
	}

	return list
}

func TestALargeClusterIsReadPageByPage(t *testing.T) {
	t.Parallel()

	const nodes, pods = 600, 1203

	client, requests := connect(t, crowd(t, nodes, pods))

	found, err := client.Workloads(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if len(found.Pods) != pods || len(found.Rooms) != nodes || len(found.Budgets) != pods/3 {
		t.Fatalf("%d pods, %d nodes, %d budgets", len(found.Pods), len(found.Rooms), len(found.Budgets))
	}

	// 2 pages of nodes, 3 of pods, 1 of budgets and 1 of ReplicaSets.
	if requests.Load() != 7 {
		t.Errorf("%d requests, want 7", requests.Load())
	}

	if want := (cluster.Room{Node: "worker-0007", CPU: 4000, Memory: 8 << 30, Pods: 110}); found.Rooms[7] != want {
		t.Errorf("room %+v, want %+v", found.Rooms[7], want)
	}

	for _, budget := range found.Budgets {
		if len(budget.Pods) != 3 || budget.Allowed != 1 || budget.Healthy != 3 || budget.Desired != 2 || budget.Expected != 3 || budget.Stale {
			t.Fatalf("budget %+v, want one of three pods", budget)
		}
	}

	for _, pod := range found.Pods {
		// A tenth of the nodes has its label, of which one in five is tainted.
		if pod.Replicas != 3 || !strings.HasPrefix(pod.Owner, "ReplicaSet/app-") || pod.CPU != 100 || pod.Memory != 64<<20 || !pod.Ready ||
			len(pod.Fits) < 48 || len(pod.Fits) > 60 || !slices.Contains(pod.Fits, pod.Node) {
			t.Fatalf("pod %+v", pod)
		}
	}
}

func BenchmarkTheWorkloadsOfALargeCluster(b *testing.B) {
	client, _ := connect(b, crowd(b, 1000, 10_000))

	for b.Loop() {
		if found, err := client.Workloads(b.Context()); err != nil || len(found.Pods) != 10_000 {
			b.Fatalf("%d pods, %v", len(found.Pods), err)
		}
	}
}
