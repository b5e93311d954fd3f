// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestAPodFitsTheNodesThatItWantsToleratesAndReaches(t *testing.T) {
	t.Parallel()

	anywhere := func(*corev1.Pod) {}

	for name, test := range map[string]struct {
		pod     func(*corev1.Pod)
		cluster func(*small)
		want    string
	}{
		"anywhere":              {anywhere, nil, "a b c"},
		"a node selector":       {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }, nil, "a b"},
		"a required affinity":   {func(p *corev1.Pod) { p.Spec.Affinity = required(onNode(corev1.LabelHostname, "a", "c")) }, nil, "a c"},
		"an affinity to a name": {func(p *corev1.Pod) { p.Spec.Affinity = required(byField("b")) }, nil, "a b"},
		"a preferred affinity": {func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 1, Preference: onNode("disk", "slow").NodeSelectorTerms[0]},
			}}}
		}, nil, "a b c"},
		"an affinity that makes no sense": {func(p *corev1.Pod) {
			p.Spec.Affinity = required(onNode("disk", "not a value!"))
		}, nil, "a"},
		"a taint":                 {anywhere, func(s *small) { taint(&s.nodes[1], "dedicated", corev1.TaintEffectNoSchedule) }, "a c"},
		"a taint that drives out": {anywhere, func(s *small) { taint(&s.nodes[1], "dedicated", corev1.TaintEffectNoExecute) }, "a c"},
		"a taint that only asks":  {anywhere, func(s *small) { taint(&s.nodes[1], "dedicated", corev1.TaintEffectPreferNoSchedule) }, "a b c"},
		"a taint that is tolerated": {func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		}, func(s *small) { taint(&s.nodes[1], "dedicated", corev1.TaintEffectNoSchedule) }, "a b c"},
		"a cordon": {anywhere, func(s *small) {
			s.nodes[1].Spec.Unschedulable = true
			taint(&s.nodes[1], corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
		}, "a b c"},
		"a node that is not ready":      {anywhere, func(s *small) { taint(&s.nodes[1], corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule) }, "a b c"},
		"a node whose disk is full":     {anywhere, func(s *small) { taint(&s.nodes[1], corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule) }, "a c"},
		"a taint of its own node":       {anywhere, func(s *small) { taint(&s.nodes[0], "new", corev1.TaintEffectNoSchedule) }, "a b c"},
		"a local volume":                {claiming, func(s *small) { s.bind("a") }, "a"},
		"a volume of two nodes":         {claiming, func(s *small) { s.bind("a", "b") }, "a b"},
		"a volume and a node selector":  {func(p *corev1.Pod) { claiming(p); p.Spec.NodeSelector = map[string]string{"disk": "slow"} }, func(s *small) { s.bind("b", "c") }, "a c"},
		"a volume of an ephemeral kind": {func(p *corev1.Pod) { ephemeral(p) }, func(s *small) { s.bind("a", "c"); s.claims[0].Name = "web-scratch" }, "a c"},
		"a claim that is not bound":     {claiming, nil, "a b c"},
		"volumes that may not be read":  {claiming, func(s *small) { s.bind("a"); s.denied = []string{"/api/v1/persistentvolumes"} }, "a b c"},
		"a pod without a node":          {func(p *corev1.Pod) { p.Spec.NodeName = ""; p.Spec.NodeSelector = map[string]string{"disk": "slow"} }, nil, "c"},
	} {
		given := newSmall()
		if test.cluster != nil {
			test.cluster(given)
		}

		given.pods = []corev1.Pod{one(test.pod)}

		found, asked, err := given.workloads(t)
		if err != nil || len(found.Pods) != 1 {
			t.Errorf("%s: %d pods, %v", name, len(found.Pods), err)

			continue
		}

		if got := strings.Join(found.Pods[0].Fits, " "); got != test.want {
			t.Errorf("%s: fits %q, want %q", name, got, test.want)
		}

		if uses := len(given.pods[0].Spec.Volumes) > 0; uses != slices.Contains(asked, "/api/v1/persistentvolumes") {
			t.Errorf("%s: volumes are used: %t, asked for %v", name, uses, asked)
		}
	}
}

func required(selector *corev1.NodeSelector) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
}

func byField(node string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
	}}}}
}

func ephemeral(pod *corev1.Pod) {
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

func TestAPodIsOwnedByWhatBringsItBack(t *testing.T) {
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

		if test.stays && !slices.Equal(found.Pods[0].Fits, []string{"a"}) {
			t.Errorf("owned by %s: fits %v, want its own node alone", name, found.Pods[0].Fits)
		}

		if len(asked) > 4 {
			t.Errorf("owned by %s: asked for %v, want one kind of controllers at most", name, asked)
		}
	}
}

func TestWhatAPodRequestsIsCountedAsTheSchedulerDoes(t *testing.T) {
	t.Parallel()

	container := func(cpu, memory string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}}
	}

	pod := one(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{container("100m", "64Mi"), container("200m", "64Mi"), {Name: "asks for nothing"}}
		// The largest step of the start counts where it is larger than the rest.
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

func TestWorkloadsThatMayNotBeListedAreDenied(t *testing.T) {
	t.Parallel()

	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", "/apis/policy/v1/poddisruptionbudgets"} {
		given := newSmall()
		given.denied = []string{path}

		if _, _, err := given.workloads(t); !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want it denied", path, err)
		}
	}
}

func TestWithoutAnAPIThereAreNoWorkloadsAndObjects(t *testing.T) {
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
