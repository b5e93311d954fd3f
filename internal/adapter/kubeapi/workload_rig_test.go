// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// small is a cluster of three nodes, to which tests add what they are about.
type small struct {
	pods     []corev1.Pod
	nodes    []corev1.Node
	budgets  []policyv1.PodDisruptionBudget
	claims   []corev1.PersistentVolumeClaim
	volumes  []corev1.PersistentVolume
	daemons  []appsv1.DaemonSet
	replicas []appsv1.ReplicaSet
	stateful []appsv1.StatefulSet
	jobs     []batchv1.Job
	// denied are the paths that may not be listed.
	denied []string
}

func newSmall() *small {
	given := &small{}

	for _, name := range []string{"a", "b", "c"} {
		given.nodes = append(given.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, "disk": map[string]string{"a": "fast", "b": "fast", "c": "slow"}[name],
		}}})
	}

	return given
}

// workloads reads the cluster, and tells which lists were asked for.
func (s *small) workloads(t *testing.T) (cluster.Workloads, []string, error) {
	t.Helper()

	lists := map[string]any{
		"/api/v1/nodes":                        corev1.NodeList{TypeMeta: typed("v1", "NodeList"), Items: s.nodes},
		"/api/v1/pods":                         corev1.PodList{TypeMeta: typed("v1", "PodList"), Items: s.pods},
		"/api/v1/persistentvolumes":            corev1.PersistentVolumeList{TypeMeta: typed("v1", "PersistentVolumeList"), Items: s.volumes},
		"/api/v1/persistentvolumeclaims":       corev1.PersistentVolumeClaimList{TypeMeta: typed("v1", "PersistentVolumeClaimList"), Items: s.claims},
		"/apis/policy/v1/poddisruptionbudgets": policyv1.PodDisruptionBudgetList{TypeMeta: typed("policy/v1", "PodDisruptionBudgetList"), Items: s.budgets},
		"/apis/apps/v1/daemonsets":             appsv1.DaemonSetList{TypeMeta: typed("apps/v1", "DaemonSetList"), Items: s.daemons},
		"/apis/apps/v1/replicasets":            appsv1.ReplicaSetList{TypeMeta: typed("apps/v1", "ReplicaSetList"), Items: s.replicas},
		"/apis/apps/v1/statefulsets":           appsv1.StatefulSetList{TypeMeta: typed("apps/v1", "StatefulSetList"), Items: s.stateful},
		"/apis/batch/v1/jobs":                  batchv1.JobList{TypeMeta: typed("batch/v1", "JobList"), Items: s.jobs},
		"/api/v1/replicationcontrollers":       corev1.ReplicationControllerList{TypeMeta: typed("v1", "ReplicationControllerList")},
	}

	// A request that was given up may still be on its way when the answer is there.
	var (
		mu    sync.Mutex
		paths []string
	)

	api, _ := connect(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()

		if slices.Contains(s.denied, r.URL.Path) {
			status(http.StatusForbidden, "Forbidden", "no "+r.URL.Path)(w, r)

			return
		}

		if namespace, name, single := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/apps/v1/namespaces/"), "/daemonsets/"); single {
			s.daemon(namespace, name)(w, r)

			return
		}

		w.Header().Set("Content-Type", "application/json")

		_ = json.NewEncoder(w).Encode(lists[r.URL.Path])
	})

	found, err := api.Workloads(t.Context())

	mu.Lock()
	defer mu.Unlock()

	return found, slices.Clone(paths), err
}

// daemon answers for one DaemonSet.
func (s *small) daemon(namespace, name string) http.HandlerFunc {
	for _, one := range s.daemons {
		if one.Namespace == namespace && one.Name == name {
			one.TypeMeta = typed("apps/v1", "DaemonSet")

			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")

				_ = json.NewEncoder(w).Encode(one)
			}
		}
	}

	return status(http.StatusNotFound, "NotFound", "no "+name)
}

func typed(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// one is a pod on node a.
func one(change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-web", Labels: map[string]string{"app": "web"}}}
	pod.Spec.NodeName = "a"
	pod.Status.Phase = corev1.PodRunning

	for _, one := range change {
		one(&pod)
	}

	return pod
}

func onNode(key string, values ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
	}}}}
}

func taint(node *corev1.Node, key string, effect corev1.TaintEffect) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
}

func claiming(pod *corev1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}})
}

// bind has the claim of [claiming] bound to a volume of some nodes.
func (s *small) bind(nodes ...string) {
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}}
	claim.Spec.VolumeName = "local"

	// A claim of the same name elsewhere is none of ours.
	other := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "data"}}
	other.Spec.VolumeName = "elsewhere"

	volume := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "local"}}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: onNode(corev1.LabelHostname, nodes...)}

	s.claims = []corev1.PersistentVolumeClaim{claim, other}
	s.volumes = []corev1.PersistentVolume{volume, {ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}}
}
