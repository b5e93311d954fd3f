// SPDX-License-Identifier: MPL-2.0

package sim_test

import (
	"context"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

func clusters(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	return client.Resource(schema.GroupVersionResource{
		Group: "vitistack.io", Version: "v1alpha1", Resource: "kubernetesclusters",
	}).Namespace("default")
}

func create(ctx context.Context, at dynamic.ResourceInterface, name string, annotations map[string]any) error {
	_, err := at.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster",
		"metadata": map[string]any{"name": name, "annotations": annotations},
	}}, metav1.CreateOptions{})

	return err
}

func TestManagement_BothClustersShareResourcesAndHistory(t *testing.T) {
	toolchain.NeedKubernetes(t)

	simulator, err := sim.Start(t.Context(), sim.Options{
		ControlPlanes: 1, Talos: "1.13.2", Kubernetes: "1.34.2", Dir: t.TempDir(), CustomResources: true, Management: true,
	})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := simulator.Stop(); err != nil {
			t.Error(err)
		}
	}()

	info, err := os.Stat(simulator.ManagementKubeconfig())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig of the management cluster: %v, %v; want a file with mode 0600", info, err)
	}

	client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: simulator.ManagementKubeconfig()},
		&clientcmd.ConfigOverrides{CurrentContext: "management"},
	).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}

	client.UserAgent = "terraform-provider-talosupgrade/test"

	own, err := simulator.Config()
	if err != nil {
		t.Fatal(err)
	}

	idle := map[string]any{"upgrade.vitistack.io/talos-target": "1.13.4"}

	if err := create(t.Context(), clusters(t, own), "here", idle); err != nil {
		t.Error("in the upgraded cluster:", err)
	}

	if err := create(t.Context(), clusters(t, client), "there", idle); err != nil {
		t.Error("in the management cluster:", err)
	}

	// Only what the provider does is judged, in both clusters.
	verdict, err := simulator.Verdict(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if len(verdict.Violations) == 0 {
		t.Error("a client wrote a target, and nobody minds")
	}

	for _, violation := range verdict.Violations {
		if !strings.Contains(violation.What, "talos-target") {
			t.Errorf("the verdict has %+v", violation)
		}
	}

	if err := simulator.ManagementDown(true); err != nil {
		t.Fatal(err)
	}

	if err := create(t.Context(), clusters(t, client), "nowhere", nil); err == nil {
		t.Error("the management cluster answers although it was taken away")
	}
}
