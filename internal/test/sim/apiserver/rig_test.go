// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func TestMain(m *testing.M) {
	code := m.Run()

	if err := goleak.Find(); code == 0 && err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")

		code = 1
	}

	os.Exit(code)
}

// rig is a simulated cluster of three control planes and two workers whose API
// is in memory.
type rig struct {
	*testing.T
	cluster *ports.Cluster
	server  *apiserver.Listener
	api     *kubeapi.Client
	log     *record
}

// record keeps the history.
type record struct {
	mu     sync.Mutex
	events []history.Event
}

func (r *record) Record(node string, kind history.Kind, detail map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.events = append(r.events, history.Event{Node: node, Kind: kind, Detail: detail})
}

// of returns the events of a kind.
func (r *record) of(kind history.Kind) []history.Event {
	r.mu.Lock()
	defer r.mu.Unlock()

	var found []history.Event

	for _, event := range r.events {
		if event.Kind == kind {
			found = append(found, event)
		}
	}

	return found
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, options apiserver.Options, test func(*rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, log: &record{}}

		var err error

		r.cluster, err = ports.New(model.Options{ControlPlanes: 3, Workers: 2, Talos: "1.13.2", Kubernetes: "1.35.2", Seed: 1, Recorder: r.log})
		if err != nil {
			t.Fatal(err)
		}
		defer r.cluster.Stop()

		r.server, err = r.cluster.Listen(options)
		if err != nil {
			t.Fatal(err)
		}
		defer r.server.Stop()

		r.api = r.client("run-1")
		defer r.api.Close()

		test(r)
	})
}

// client returns a client of kubeapi, which has this name in the history.
func (r *rig) client(name string) *kubeapi.Client {
	r.Helper()

	made, err := kubeapi.New(r.server.Kubeconfig(name), "", kubeapi.Options{
		DialContext: r.server.DialContext, UserAgent: "test", Sleep: func(ctx context.Context, d time.Duration) error {
			return r.cluster.World().Clock().Sleep(ctx, d)
		},
	})
	if err != nil {
		r.Fatal(err)
	}

	made.Identify(r.cluster.World().ClusterID())

	return made
}

// plain returns a client of client-go over the connections of the other one.
func (r *rig) plain() kubernetes.Interface {
	r.Helper()

	made, err := kubernetes.NewForConfigAndClient(r.api.Config(), r.api.HTTPClient())
	if err != nil {
		r.Fatal(err)
	}

	return made
}

// custom returns a client of client-go for objects of a kind without a Go type.
func (r *rig) custom(apiVersion, resource string) dynamic.NamespaceableResourceInterface {
	r.Helper()

	made, err := dynamic.NewForConfigAndClient(r.api.Config(), r.api.HTTPClient())
	if err != nil {
		r.Fatal(err)
	}

	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		r.Fatal(err)
	}

	return made.Resource(version.WithResource(resource))
}

// until waits for a condition of the model.
func (r *rig) until(what string, holds func() bool) {
	r.Helper()

	ticker := time.NewTicker(97 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(10 * time.Minute); !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			r.Fatalf("waited in vain for %s", what)
		}
	}
}

func podOf(r *rig, app string) cluster.Pod {
	r.Helper()

	workloads, err := r.cluster.Client("looker").Workloads(r.Context())
	if err != nil {
		r.Fatal(err)
	}

	for _, pod := range workloads.Pods {
		if pod.Owner == "ReplicaSet/"+app && !pod.Terminating {
			return pod.Pod
		}
	}

	r.Fatalf("no pod of %s", app)

	return cluster.Pod{}
}
