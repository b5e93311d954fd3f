// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestWorkload_PodIsOwnedByWhatBringsItBack(t *testing.T) {
	t.Parallel()

	two := int32(2)
	meta := func(uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)}
	}

	full := newSmall()
	full.daemons = []appsv1.DaemonSet{{ObjectMeta: meta("ds")}}
	full.replicas = []appsv1.ReplicaSet{{ObjectMeta: meta("rs"), Spec: appsv1.ReplicaSetSpec{Replicas: &two}}}
	full.stateful = []appsv1.StatefulSet{{ObjectMeta: meta("sts")}}
	full.jobs = []batchv1.Job{{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Parallelism: &two}}}

	ownedBy := func(apiVersion, kind, uid string) func(*corev1.Pod) {
		yes := true

		return func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: types.UID(uid), Controller: &yes}}
		}
	}

	for name, test := range map[string]struct {
		pod      func(*corev1.Pod)
		denied   string
		owner    string
		replicas int
		stays    bool
	}{
		"nobody":                        {pod: func(*corev1.Pod) {}},
		"a ReplicaSet":                  {pod: ownedBy("apps/v1", "ReplicaSet", "rs"), owner: "ReplicaSet/web", replicas: 2},
		"a StatefulSet by default":      {pod: ownedBy("apps/v1", "StatefulSet", "sts"), owner: "StatefulSet/web", replicas: 1},
		"a Job":                         {pod: ownedBy("batch/v1", "Job", "job"), owner: "Job/web", replicas: 2},
		"a DaemonSet":                   {pod: ownedBy("apps/v1", "DaemonSet", "ds"), owner: "DaemonSet/web", stays: true},
		"a DaemonSet of another life":   {pod: ownedBy("apps/v1", "DaemonSet", "old"), owner: "DaemonSet/web", stays: true},
		"a ReplicaSet that is gone":     {pod: ownedBy("apps/v1", "ReplicaSet", "gone")},
		"a controller that is gone":     {pod: ownedBy("v1", "ReplicationController", "gone")},
		"a controller of others":        {pod: ownedBy("apps.kruise.io/v1beta1", "StatefulSet", "other"), owner: "StatefulSet/web"},
		"a DaemonSet of others":         {pod: ownedBy("apps.kruise.io/v1alpha1", "DaemonSet", "ds"), owner: "DaemonSet/web"},
		"a kind of others":              {pod: ownedBy("postgresql.cnpg.io/v1", "Cluster", "pg"), owner: "Cluster/web"},
		"a kind that may not be listed": {pod: ownedBy("apps/v1", "ReplicaSet", "rs"), denied: "/apis/apps/v1/replicasets", owner: "ReplicaSet/web"},
		"the kubelet": {
			pod: func(p *corev1.Pod) {
				ownedBy("v1", "Node", "n")(p)
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
			},
			owner: "Node/web", stays: true,
		},
	} {
		given := *full
		given.pods, given.denied = []corev1.Pod{one(test.pod)}, []string{test.denied}

		found, asked, err := given.workloads(t)
		if err != nil || len(found.Pods) != 1 {
			t.Errorf("%s: %d pods, %v", name, len(found.Pods), err)

			continue
		}

		if got := found.Pods[0]; got.Owner != test.owner || got.Replicas != test.replicas || got.Stays != test.stays {
			t.Errorf("owned by %s: owner %q, replicas %d, stays %t; want %q, %d, %t",
				name, got.Owner, got.Replicas, got.Stays, test.owner, test.replicas, test.stays)
		}

		if len(asked) > 4 {
			t.Errorf("owned by %s: asked for %v, want one kind of controllers at most", name, asked)
		}
	}
}

func TestWorkload_RequestsAreCountedAsTheSchedulerDoes(t *testing.T) {
	t.Parallel()

	container := func(cpu, memory string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}}
	}

	pod := one(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{container("100m", "64Mi"), container("200m", "64Mi"), {Name: "asks for nothing"}}
		// The largest step of the start counts if it is larger than the rest.
		p.Spec.InitContainers = []corev1.Container{container("1", "16Mi")}
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Mi")}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})

	given := newSmall()
	given.pods = []corev1.Pod{pod}

	found, _, err := given.workloads(t)
	if err != nil || len(found.Pods) != 1 {
		t.Fatalf("%d pods, %v", len(found.Pods), err)
	}

	if got := found.Pods[0]; got.CPU != 1000 || got.Memory != 136<<20 || !got.Ready || !slices.Equal(got.LocalData, []string{"cache"}) {
		t.Errorf("%+v, want one core, 136 MiB and the local data of cache", got)
	}
}

func TestWorkload_ListWithoutPermissionIsDenied(t *testing.T) {
	t.Parallel()

	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", "/apis/policy/v1/poddisruptionbudgets"} {
		given := newSmall()
		given.denied = []string{path}

		if _, _, err := given.workloads(t); !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want it denied", path, err)
		}
	}
}

func TestUnavailable_HasNoWorkloadsAndObjects(t *testing.T) {
	t.Parallel()

	reason := errors.New("no way")
	api := kubeapi.NewUnavailable(reason)

	reader, ok := api.(cluster.WorkloadReader)
	if !ok {
		t.Fatal("it reads no workloads")
	}

	if _, err := reader.Workloads(t.Context()); !errors.Is(err, reason) {
		t.Errorf("workloads: %v", err)
	}

	objects, ok := api.(cluster.Objects)
	if !ok {
		t.Fatal("it reads no objects")
	}

	if _, err := objects.Objects(t.Context(), cluster.ObjectQuery{}); !errors.Is(err, reason) {
		t.Errorf("objects: %v", err)
	}
}

func TestWorkload_BudgetCoversThePodsOfItsSelector(t *testing.T) {
	t.Parallel()

	always := policyv1.AlwaysAllow

	pods := []corev1.Pod{
		one(),
		one(func(p *corev1.Pod) {
			p.Name, p.UID, p.Labels = "db", "uid-db", map[string]string{"app": "db", "tier": "back"}
		}),
		one(func(p *corev1.Pod) { p.Name, p.UID, p.Namespace = "far", "uid-far", "other" }),
		one(func(p *corev1.Pod) { p.Name, p.UID, p.Status.Phase = "new", "uid-new", corev1.PodPending }),
		one(func(p *corev1.Pod) { p.Name, p.UID, p.Status.Phase = "done", "uid-done", corev1.PodSucceeded }),
	}

	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}

	conditions := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{
			{Type: "Other", Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "another condition"},
			{Type: policyv1.DisruptionAllowedCondition, Status: status, Reason: reason, Message: message},
		}
	}

	for name, test := range map[string]struct {
		selector   *metav1.LabelSelector
		generation int64
		observed   int64
		policy     *policyv1.UnhealthyPodEvictionPolicyType
		pods       string
		stale      bool
		conditions []metav1.Condition
		unsynced   string
	}{
		"a label":              {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, generation: 1, observed: 1, pods: "uid-web"},
		"two labels":           {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db", "tier": "back"}}, generation: 1, observed: 1, pods: "uid-db"},
		"one of two":           {selector: expression("app", metav1.LabelSelectorOpIn, "web", "db"), generation: 1, observed: 1, pods: "uid-db uid-web"},
		"one of one":           {selector: expression("app", metav1.LabelSelectorOpIn, "db"), generation: 1, observed: 1, pods: "uid-db"},
		"not":                  {selector: expression("app", metav1.LabelSelectorOpNotIn, "db"), generation: 1, observed: 1, pods: "uid-web"},
		"without":              {selector: expression("tier", metav1.LabelSelectorOpDoesNotExist), generation: 1, observed: 1, pods: "uid-web"},
		"all":                  {selector: &metav1.LabelSelector{}, generation: 1, observed: 1, pods: "uid-db uid-web"},
		"none":                 {selector: nil, generation: 1, observed: 1},
		"nonsense":             {selector: expression("app", "Near", "web"), generation: 1, observed: 1},
		"never worked out":     {selector: nil, generation: 0, observed: 0, stale: true},
		"of an earlier state":  {selector: nil, generation: 3, observed: 2, stale: true},
		"lenient to unhealthy": {selector: nil, generation: 1, observed: 1, policy: &always},
		"that gives":           {generation: 1, observed: 1, conditions: conditions(metav1.ConditionTrue, policyv1.SufficientPodsReason, "")},
		"that gives nothing":   {generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.InsufficientPodsReason, "too few")},
		"that synced again":    {generation: 1, observed: 1, conditions: conditions(metav1.ConditionTrue, policyv1.SyncFailedReason, "old")},
		"that is not synced": {
			generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.SyncFailedReason, "found no controllers\n for  pod \"web\""),
			unsynced: `found no controllers for pod "web"`,
		},
		"that is not synced, without a word": {
			generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.SyncFailedReason, ""), unsynced: "SyncFailed",
		},
		"that is not synced, at length": {
			generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.SyncFailedReason, strings.Repeat("no ", 200)),
			unsynced: strings.Repeat("no ", 100) + "...",
		},
	} {
		given := newSmall()
		given.pods = pods
		given.budgets = []policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pdb", Generation: test.generation},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: test.selector, UnhealthyPodEvictionPolicy: test.policy},
			Status: policyv1.PodDisruptionBudgetStatus{
				ObservedGeneration: test.observed, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4, Conditions: test.conditions,
			},
		}}

		found, _, err := given.workloads(t)
		if err != nil || len(found.Budgets) != 1 {
			t.Errorf("%s: %d budgets, %v", name, len(found.Budgets), err)

			continue
		}

		got := found.Budgets[0]
		if strings.Join(got.Pods, " ") != test.pods || got.Stale != test.stale || got.AlwaysAllow != (test.policy != nil) {
			t.Errorf("%s: %+v, want the pods %q, stale %t", name, got, test.pods, test.stale)
		}

		if got.Unsynced != test.unsynced {
			t.Errorf("%s: not synced because of %q, want %q", name, got.Unsynced, test.unsynced)
		}

		if got.Allowed != 1 || got.Healthy != 3 || got.Desired != 2 || got.Expected != 4 || got.String() != "default/pdb" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

const crowdPage = 500

// crowd returns a cluster with that many nodes and pods. Three pods each belong to one ReplicaSet and one budget,
// all in one namespace. It answers lists as an API server does.
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

func TestWorkload_LargeClusterIsReadPageByPage(t *testing.T) {
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
		if pod.Replicas != 3 || !strings.HasPrefix(pod.Owner, "ReplicaSet/app-") || pod.CPU != 100 || pod.Memory != 64<<20 || !pod.Ready || pod.Node == "" {
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

// TestWorkload_DaemonSetsThatMayNotBeListedAreReadOneByOne: a drain needs no more permissions than that.
func TestWorkload_DaemonSetsThatMayNotBeListedAreReadOneByOne(t *testing.T) {
	t.Parallel()

	const list, agent, gone = "/apis/apps/v1/daemonsets", "/apis/apps/v1/namespaces/default/daemonsets/agent", "/apis/apps/v1/namespaces/default/daemonsets/gone"

	of := func(name, owner string) corev1.Pod {
		yes := true

		return one(func(p *corev1.Pod) {
			p.Name, p.UID = name, types.UID("uid-"+name)
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: owner, UID: "1", Controller: &yes}}
		})
	}

	given := newSmall()
	given.daemons = []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1"}}}
	given.pods = []corev1.Pod{of("agent-1", "agent"), of("agent-2", "agent"), of("orphan", "gone")}
	given.denied = []string{list}

	found, asked, err := given.workloads(t)
	if err != nil || len(found.Pods) != 3 {
		t.Fatalf("%d pods, %v", len(found.Pods), err)
	}

	for i, want := range []struct {
		owner string
		stays bool
	}{{"DaemonSet/agent", true}, {"DaemonSet/agent", true}, {"", false}} {
		if got := found.Pods[i]; got.Owner != want.owner || got.Stays != want.stays {
			t.Errorf("%s: owner %q, stays %t; want %q, %t", got.Name, got.Owner, got.Stays, want.owner, want.stays)
		}
	}

	single := slices.DeleteFunc(asked, func(path string) bool { return !strings.Contains(path, "/daemonsets/") })
	slices.Sort(single)

	if !slices.Equal(single, []string{agent, gone}) {
		t.Errorf("asked for %v, want each DaemonSet once", single)
	}

	given.denied = []string{list, agent}

	if _, _, err := given.workloads(t); !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), agent) {
		t.Errorf("without a permission to read one: %v, want it denied", err)
	}
}

// TestWorkload_AgreesWithTheDrain: the pods that a simulation expects to leave a node are those that leave it.
func TestWorkload_AgreesWithTheDrain(t *testing.T) {
	api, other := live(t)

	addPod(t, other, "alone", "worker-0")
	addPod(t, other, "orphan", "worker-0", orphaned())

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

		if !strings.HasPrefix(pod.Owner, "ReplicaSet/app-") || pod.Replicas != 3 || !pod.Ready {
			t.Errorf("%+v, want one of three that are Ready", pod)
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

func TestWorkload_PodBelowTwoBudgetsIsInBoth(t *testing.T) {
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
