// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestProxy_NodeThatRegistersDuringARolloutRunsTheNewImage: a DaemonSet makes the first pod of a node from its present
// template.
func TestProxy_NodeThatRegistersDuringARolloutRunsTheNewImage(t *testing.T) {
	const image = "registry.k8s.io/kube-proxy:v1.35.3"

	inBubble(t, apiserver.Options{}, func(r *rig) {
		if err := r.cluster.Bootstrap(); err != nil {
			r.Fatal(err)
		}

		if _, err := r.cluster.World().AddNode(model.NodeOptions{Role: model.Worker, Talos: "1.13.2", Kubernetes: "1.35.2"}); err != nil {
			r.Fatal(err)
		}

		sets := r.plain().AppsV1().DaemonSets(metav1.NamespaceSystem)
		patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"kube-proxy","image":"` + image + `"}]}}}}`)

		if _, err := sets.Patch(r.Context(), "kube-proxy", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			r.Fatal(err)
		}

		r.until("a pod with the new image on each node", func() bool {
			pods, err := r.api.ComponentPods(r.Context())
			if err != nil {
				r.Fatal(err)
			}

			updated := 0

			for _, pod := range pods {
				if pod.Component == cluster.Proxy && pod.Image == image && pod.Ready {
					updated++
				}
			}

			return updated == len(r.cluster.World().Nodes())
		})
	})
}
