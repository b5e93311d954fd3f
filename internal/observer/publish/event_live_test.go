// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
)

// configMaps looks up ConfigMaps in the real API server.
type configMaps struct {
	cluster.ObjectAccess

	client kubernetes.Interface
}

func (c configMaps) Object(ctx context.Context, of cluster.Reference) (map[string]any, error) {
	found, err := c.client.CoreV1().ConfigMaps(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrNotFound, err)
	}

	return map[string]any{"metadata": map[string]any{"uid": string(found.UID)}}, nil
}

// liveSink writes Events over the connection of the other client, in the name of
// somebody where one is given.
func liveSink(t *testing.T, other kubernetes.Interface, user string) *publish.EventSink {
	t.Helper()

	shared, ok := other.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok {
		t.Fatalf("the connection is a %T", other.CoreV1().RESTClient())
	}

	client := shared.Client
	if user != "" {
		client = &http.Client{Transport: transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user}, client.Transport)}
	}

	server := shared.Get().URL()

	made, err := publish.NewEventSink(&rest.Config{Host: server.Scheme + "://" + server.Host}, client)
	if err != nil {
		t.Fatal(err)
	}

	return made
}

// found are the Events with the reason that the field selector finds, as kubectl
// finds those of an object.
func found(t *testing.T, other kubernetes.Interface, namespace, selector, reason string) []corev1.Event {
	t.Helper()

	list, err := other.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: selector + ",reason=" + reason})
	if err != nil {
		t.Fatal(err)
	}

	return list.Items
}

func TestEventsAreTakenByAnAPIServer(t *testing.T) {
	_, other := live(t, "cluster-1")

	made, err := other.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "progress"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	of := cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "progress"}

	t.Run("all of them", func(t *testing.T) {
		events := publish.NewEvents(publish.EventTargets{
			Nodes: liveSink(t, other, ""), Object: liveSink(t, other, ""), Of: of, Access: configMaps{client: other},
		})

		observe(events, tale()[:15])

		for i := range 20 {
			observe(events, []cluster.Event{
				{Kind: cluster.EventNodeStep, Node: "worker-0", Step: cluster.StepReboot},
				{Kind: cluster.EventNodeStep, Node: fmt.Sprintf("worker-%d", i), Step: cluster.StepUncordon},
				{Kind: cluster.EventWaiting, Text: fmt.Sprintf("the pods to leave: %d are left", 20-i)},
			})
		}

		observe(events, []cluster.Event{{Kind: cluster.EventWarning, Text: strings.Repeat("very long ", 500)}, tale()[15]})

		if err := events.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		object := "involvedObject.uid=" + string(made.UID)
		node := "involvedObject.kind=Node,involvedObject.name=worker-0,involvedObject.uid=worker-0"

		for reason, want := range map[string]struct {
			about, node int
			count       int32
		}{
			"UpgradeStarted": {1, 0, 1}, "UpgradeCompleted": {1, 0, 1}, "NodeUpgraded": {1, 1, 1}, "RollingBack": {1, 0, 1},
			"Rebooting": {1, 1, 20}, "Uncordoning": {10, 1, 11}, "UpgradeWarning": {3, 2, 1},
		} {
			about, nodes := found(t, other, "kube-system", object, reason), found(t, other, "default", node, reason)
			if len(about) != want.about || len(nodes) != want.node {
				t.Errorf("%s: %d about the object, %d about the node; want %d and %d", reason, len(about), len(nodes), want.about, want.node)

				continue
			}

			most := int32(0)
			for _, event := range about {
				most = max(most, event.Count)
			}

			if most != want.count {
				t.Errorf("%s: counted %d times, want %d", reason, most, want.count)
			}
		}

		for _, event := range found(t, other, "kube-system", object, "Waiting") {
			if strings.Contains(event.Message, "the pods to leave") && event.Count < 2 {
				t.Errorf("%d times %q", event.Count, event.Message)
			}
		}
	})

	t.Run("none of them", func(t *testing.T) {
		nobody := liveSink(t, other, "nobody")
		events := publish.NewEvents(publish.EventTargets{Nodes: nobody, Object: nobody, Of: of, Access: configMaps{client: other}})

		observe(events, tale())

		err := events.Close(t.Context())
		if !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), "create events in the namespace kube-system") || !strings.Contains(err.Error(), "create events in the namespace default") {
			t.Errorf("%v, want both permissions missing", err)
		}

		t.Log(err)
	})
}
