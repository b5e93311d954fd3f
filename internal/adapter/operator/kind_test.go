// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestWhatActsOnAnObjectFollowsFromItsKind(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		of        cluster.Reference
		want      operator.Kind
		completed string
	}{
		"a ConfigMap":                          {cluster.Reference{Kind: "ConfigMap"}, operator.Plain, "v1"},
		"a namespace":                          {cluster.Reference{APIVersion: "v1", Kind: "Namespace"}, operator.Plain, "v1"},
		"a Deployment":                         {cluster.Reference{APIVersion: "apps/v1", Kind: "Deployment"}, operator.Plain, "apps/v1"},
		"a KubernetesCluster":                  {cluster.Reference{Kind: "KubernetesCluster"}, operator.Vitistack, "vitistack.io/v1alpha1"},
		"a KubernetesCluster of a later API":   {cluster.Reference{APIVersion: "vitistack.io/v1", Kind: "KubernetesCluster"}, operator.Vitistack, "vitistack.io/v1"},
		"a KubernetesCluster of somebody else": {cluster.Reference{APIVersion: "example.org/v1", Kind: "KubernetesCluster"}, operator.Annotated, "example.org/v1"},
		"another kind of Vitistack":            {cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine"}, operator.Annotated, "vitistack.io/v1alpha1"},
		"a TalosControlPlane":                  {cluster.Reference{Kind: "TalosControlPlane"}, operator.Declarative, "talos.alperen.cloud/v1alpha1"},
		"a TalosWorker":                        {cluster.Reference{APIVersion: "talos.alperen.cloud/v1alpha1", Kind: "TalosWorker"}, operator.Annotated, "talos.alperen.cloud/v1alpha1"},
		"nobody knows what":                    {cluster.Reference{Kind: "Thing"}, operator.Plain, ""},
	} {
		if got := operator.KindOf(test.of); got != test.want {
			t.Errorf("%s is %s, want %s", name, got, test.want)
		}

		got, ok := operator.Complete(test.of)
		if got.APIVersion != test.completed || ok != (test.completed != "") || got.Kind != test.of.Kind {
			t.Errorf("%s is completed to %+v, %t; want the API version %q", name, got, ok, test.completed)
		}
	}
}
