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
	server  *apiserver.Server
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

// of are the events of a kind.
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

		if options.Client == "" {
			options.Client = "run-1"
		}

		r.server, err = apiserver.New(r.cluster, options)
		if err != nil {
			t.Fatal(err)
		}
		defer r.server.Stop()

		r.server.Start()

		r.api = r.client("run-1")
		defer r.api.Close()

		test(r)
	})
}

// client is one of kubeapi, which the history shows under a name.
func (r *rig) client(name string) *kubeapi.Client {
	r.Helper()

	made, err := kubeapi.New(r.server.KubeconfigFor(name), "", kubeapi.Options{
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

// plain is a client of client-go over the connections of the other one.
func (r *rig) plain() kubernetes.Interface {
	r.Helper()

	made, err := kubernetes.NewForConfigAndClient(r.api.Config(), r.api.HTTPClient())
	if err != nil {
		r.Fatal(err)
	}

	return made
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

// busy puts workloads of all sorts into the cluster.
func busy(c *ports.Cluster) {
	c.AddApp("web", 4, &ports.Budget{MinAvailable: 2})
	c.AddApp("tight", 2, &ports.Budget{MinAvailable: 2})
	c.AddApp("free", 2, nil)
	c.AddApp("twice", 1, &ports.Budget{Name: "one"})
	c.AddBudget(ports.Budget{App: "twice", Name: "two"})
	c.AddApp("stale", 1, &ports.Budget{Stale: true})
	c.AddApp("broken", 1, &ports.Budget{Unsynced: "no controllers found", MinAvailable: 0})
	c.AddPod("local", "worker-0", nil)
	c.StartPod(ports.PodSpec{App: "data", LocalData: []string{"scratch", "cache"}, CPU: 250, Memory: 64 << 20, Unmanaged: true})
	c.StartPod(ports.PodSpec{App: "ill", NotReady: true})
	c.StartPod(ports.PodSpec{App: "huge", CPU: 64000})
	c.AddBudget(ports.Budget{App: "ill", MinAvailable: 1, AlwaysAllow: true})
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
