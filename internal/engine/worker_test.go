// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"slices"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// worker is an engine with its connection and its publisher.
type worker struct {
	*engine.Engine

	client *ports.Client
	notes  *publisher
	events []cluster.Event
	mu     sync.Mutex
}

// Observe implements [cluster.Observer].
func (w *worker) Observe(event cluster.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.events = append(w.events, event)
}

// texts are what a person was told.
func (w *worker) texts(kind cluster.EventKind) []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	var texts []string

	for _, event := range w.events {
		if event.Kind == kind {
			texts = append(texts, event.Text)
		}
	}

	return texts
}

// failedNodes are the nodes that the end of a failed run names.
func (w *worker) failedNodes() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	index := slices.IndexFunc(w.events, func(e cluster.Event) bool { return e.Kind == cluster.EventRunFailed })
	if index < 0 {
		return ""
	}

	return w.events[index].Node
}

// worker connects an engine under the name of a run.
func (r *rig) worker(run string) *worker {
	client := r.Client(run)

	return r.workerOver(client, client, client)
}

// workerOver lets the engine see the cluster through ports that may lie.
func (r *rig) workerOver(client *ports.Client, talos cluster.Talos, kube cluster.Kubernetes) *worker {
	made := &worker{client: client, notes: &publisher{client: client}}
	made.Engine = engine.New(engine.Options{
		Talos: talos, Kubernetes: kube, Removals: client, Manifests: client, Workloads: client, Run: client.Name(), Owner: "talosupgrade_cluster.test",
		ClusterName: "test", Observers: []cluster.Observer{made, made.notes},
	})

	return made
}

// to is a request for a Talos version with the default policy.
func to(target string) engine.Request {
	return engine.Request{Target: cluster.Target{Talos: version.MustParse(target)}, Policy: cluster.DefaultPolicy()}
}

// bare is a request that leaves the manifests alone, for tests that count calls
// or look at the first one.
func bare(request engine.Request) engine.Request {
	request.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}

	return request
}

// upgrade runs an engine and publishes its last word.
func (w *worker) upgrade(ctx context.Context, request engine.Request) error {
	_, err := w.Upgrade(ctx, request)
	w.notes.finish()

	return err
}

// must fails the test unless the upgrade succeeds.
func (r *rig) must(w *worker, request engine.Request) {
	r.t.Helper()

	if err := w.upgrade(context.Background(), request); err != nil {
		r.t.Fatalf("upgrade by %s: %v\n%s", w.client.Name(), err, r.judge.text())
	}
}
