// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// live is a store in a cluster with a real API server, and a client to look at
// it with.
func live(t *testing.T, clusterID string) (*publish.ConfigMapStore, kubernetes.Interface) {
	t.Helper()

	if testing.Short() {
		t.Skip("no real API server in short mode")
	}

	// Building Kubernetes, where nobody has yet, takes minutes.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()

	cluster, err := sim.Start(ctx, sim.Options{ControlPlanes: 1, Talos: "1.13.2", Kubernetes: "1.35.2", Seed: 1, Dir: t.TempDir(), Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})

	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(httpClient.CloseIdleConnections)

	store, err := publish.NewConfigMapStore(config, httpClient, clusterID)
	if err != nil {
		t.Fatal(err)
	}

	other, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}

	return store, other
}

func TestTheConfigMapIsMadeAnnotatedAndLeftToItsOwner(t *testing.T) {
	store, other := live(t, "cluster-1")
	maps := other.CoreV1().ConfigMaps(publish.ConfigMapNamespace)

	if found, err := store.Read(t.Context()); err != nil || len(found) != 0 {
		t.Fatalf("before: %v, %v", found, err)
	}

	publisher := publish.New(store, publish.Options{})
	for _, event := range story() {
		publisher.Observe(event)
	}

	if err := publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	found, err := store.Read(t.Context())
	if err != nil || found[protocol.KeyTalosStatus] != "completed" || found[protocol.KeyTalosCurrent] != "1.13.4" || found[protocol.KeyTalosProgress] != "2/2" {
		t.Errorf("published %v, %v", found, err)
	}

	object, err := maps.Get(t.Context(), publish.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if object.Labels["app.kubernetes.io/managed-by"] != "terraform-provider-talosupgrade" || object.Annotations["talosupgrade.vitistack.io/cluster-id"] != "cluster-1" {
		t.Errorf("the object is marked as %v, %v", object.Labels, object.Annotations)
	}

	// An object of that name that somebody else made keeps what it has.
	if err := maps.Delete(t.Context(), publish.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	_, err = maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: publish.ConfigMapName, Annotations: map[string]string{"mine": "yes", protocol.KeyFailedNodes: "cp-9"}},
		Data:       map[string]string{"mine": "too"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	status := "idle"
	if err := store.Patch(t.Context(), map[string]*string{protocol.KeyTalosStatus: &status, protocol.KeyFailedNodes: nil}); err != nil {
		t.Fatal(err)
	}

	object, err = maps.Get(t.Context(), publish.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if _, stands := object.Annotations[protocol.KeyFailedNodes]; stands || len(object.Labels) != 0 || object.Data["mine"] != "too" ||
		object.Annotations["mine"] != "yes" || object.Annotations[protocol.KeyTalosStatus] != "idle" {
		t.Errorf("somebody else's object became %v, %v, %v", object.Labels, object.Annotations, object.Data)
	}
}
