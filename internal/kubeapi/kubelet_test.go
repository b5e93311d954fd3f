// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
