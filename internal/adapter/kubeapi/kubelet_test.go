// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
)

// TestKubeletsOfVendorsAreNoPreReleases: one that reports v1.34.2-eks.1 would
// otherwise pass for older than 1.34.2.
func TestKubeletsOfVendorsAreNoPreReleases(t *testing.T) {
	t.Parallel()

	want := map[string]string{
		"v1.34.2": "1.34.2", "v1.34.2-eks-113cf36": "1.34.2", "v1.34.2+k3s1": "1.34.2", "v1.35.0-rc.1": "1.35.0-rc.1", "v1.35.0-rc.1+k3s1": "1.35.0-rc.1", "custom": "unknown",
	}

	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}}

	for text := range want {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: text}}
		node.Status.NodeInfo.KubeletVersion = text
		list.Items = append(list.Items, node)
	}

	api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		_ = json.NewEncoder(w).Encode(list)
	})

	nodes, err := api.Nodes(t.Context())
	if err != nil || len(nodes) != len(want) {
		t.Fatalf("%d nodes, %v; want %d", len(nodes), err, len(want))
	}

	for _, node := range nodes {
		if got := node.Kubelet.String(); got != want[node.Name] {
			t.Errorf("a kubelet that reports %q is %s, want %s", node.Name, got, want[node.Name])
		}
	}
}

func TestANodeSaysWhatTroublesItAndWhoCordonedIt(t *testing.T) {
	t.Parallel()

	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status}
	}

	for name, test := range map[string]struct {
		conditions []corev1.NodeCondition
		cordoned   bool
		annotated  map[string]string
		taint      string
		pressure   []string
		byTalos    bool
		excludes   bool
	}{
		"nothing": {conditions: []corev1.NodeCondition{
			condition(corev1.NodeDiskPressure, corev1.ConditionFalse), condition(corev1.NodeMemoryPressure, corev1.ConditionUnknown), condition(corev1.NodeReady, corev1.ConditionTrue),
		}},
		"a full disk":                 {conditions: []corev1.NodeCondition{condition(corev1.NodeDiskPressure, corev1.ConditionTrue)}, taint: corev1.TaintNodeDiskPressure, pressure: []string{"DiskPressure"}},
		"a network that is not there": {taint: corev1.TaintNodeNetworkUnavailable},
		"a kubelet that is gone":      {taint: corev1.TaintNodeUnreachable},
		"a taint of a person":         {taint: "dedicated", excludes: true},
		"everything": {conditions: []corev1.NodeCondition{
			condition(corev1.NodePIDPressure, corev1.ConditionTrue), condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), condition(corev1.NodeDiskPressure, corev1.ConditionTrue),
		}, pressure: []string{"DiskPressure", "MemoryPressure", "PIDPressure"}},
		"a cordon of Talos, with an empty mark": {cordoned: true, annotated: map[string]string{"talos.dev/cordoned": ""}, byTalos: true},
		"a cordon of ours beside its mark":      {cordoned: true, annotated: map[string]string{"talos.dev/cordoned": "true", kubeapi.CordonAnnotation: "run-1"}},
		"a cordon of Talos":                     {cordoned: true, annotated: map[string]string{"talos.dev/cordoned": "true"}, byTalos: true},
		"a cordon of a person":                  {cordoned: true},
		"a mark without a cordon":               {annotated: map[string]string{"talos.dev/cordoned": "true"}},
	} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: test.annotated}}
		node.Spec.Unschedulable = test.cordoned
		node.Status.Conditions = test.conditions

		if test.taint != "" {
			node.Spec.Taints = []corev1.Taint{{Key: test.taint, Effect: corev1.TaintEffectNoSchedule}}
		}

		api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")

			_ = json.NewEncoder(w).Encode(corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: []corev1.Node{node}})
		})

		nodes, err := api.Nodes(t.Context())
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%s: %d nodes, %v", name, len(nodes), err)
		}

		if !slices.Equal(nodes[0].Pressure, test.pressure) || nodes[0].CordonedByTalos != test.byTalos || nodes[0].ExcludesWorkloads != test.excludes {
			t.Errorf("%s: %+v; want pressure %v, cordoned by Talos %t, workloads excluded %t", name, nodes[0], test.pressure, test.byTalos, test.excludes)
		}
	}
}
