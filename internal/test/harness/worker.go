// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Worker is an engine with its connection and its publisher.
type Worker struct {
	*engine.Engine

	Client *ports.Client
	Notes  *Publisher
	t      testing.TB
	events []cluster.Event
	mu     sync.Mutex
}

// Observe implements [cluster.Observer].
func (w *Worker) Observe(event cluster.Event) {
	if event.Kind == cluster.EventWarning || event.Kind == cluster.EventSuspended {
		wording.Note(w.t, wording.Entry{Kind: wording.KindWarning, Summary: "Worth knowing about what was done", Detail: event.Text})
	}

	wording.NoteLine(w.t, event.Text)

	if event.Err != nil {
		wording.NoteLine(w.t, event.Err.Error())
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.events = append(w.events, event)
}

// Events returns the events that were sent to the observer.
func (w *Worker) Events() []cluster.Event {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.Clone(w.events)
}

// Texts returns the texts of the events of a kind.
func (w *Worker) Texts(kind cluster.EventKind) []string {
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

// FailedNodes returns the nodes that the end of a failed run names.
func (w *Worker) FailedNodes() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	index := slices.IndexFunc(w.events, func(e cluster.Event) bool { return e.Kind == cluster.EventRunFailed })
	if index < 0 {
		return ""
	}

	return w.events[index].Node
}

// Worker connects an engine that has the name of a run.
func (r *Rig) Worker(run string) *Worker {
	client := r.Client(run)

	return r.WorkerOver(client, client, client)
}

// WorkerOver connects an engine that sees the cluster through the given ports, which may lie.
func (r *Rig) WorkerOver(client *ports.Client, talos cluster.Talos, kube cluster.Kubernetes) *Worker {
	made := &Worker{Client: client, Notes: &Publisher{client: client}, t: r.T}
	options := optionsOf(client)
	options.Talos, options.Kubernetes = talos, kube
	options.Observers = []cluster.Observer{made, made.Notes}
	made.Engine = engine.New(options)

	return made
}

// WorkerBeside connects an engine that has the name of a run, beside an operator that may upgrade the same cluster.
// The observers have to publish what it does.
func (r *Rig) WorkerBeside(run string, beside cluster.Operator, observers ...cluster.Observer) *Worker {
	client := r.Client(run)
	made := &Worker{Client: client, Notes: &Publisher{client: client}, t: r.T}
	options := optionsOf(client)
	options.Talos, options.Kubernetes, options.Operator = client, client, beside
	options.Observers = append([]cluster.Observer{made}, observers...)
	made.Engine = engine.New(options)

	return made
}

// optionsOf returns the options that all engines over the client have in common.
func optionsOf(client *ports.Client) engine.Options {
	return engine.Options{
		Removals: client, Manifests: client, Workloads: client,
		Run: client.Name(), Owner: "talosupgrade_cluster.test", ClusterName: "test",
	}
}

// To returns a request for a Talos version with the default policy.
func To(target string) engine.Request {
	return engine.Request{Target: cluster.Target{Talos: version.MustParse(target)}, Policy: cluster.DefaultPolicy()}
}

// Bare returns the request without manifests, for tests that count calls or look at the first one.
func Bare(request engine.Request) engine.Request {
	request.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}

	return request
}

// Apply runs the upgrade, and finishes writing its annotations.
func (w *Worker) Apply(ctx context.Context, request engine.Request) error {
	_, err := w.Upgrade(ctx, request)
	w.Notes.Finish()

	return err
}

// RollBack has an engine roll a node back, and finishes writing its annotations.
func (w *Worker) RollBack(ctx context.Context, node string) error {
	_, err := w.RollBackNode(ctx, OfNode(node))
	w.Notes.Finish()

	return err
}

// Retry has an engine allow another attempt on a node.
func (w *Worker) Retry(ctx context.Context, node string) error {
	_, err := w.AllowRetry(ctx, OfNode(node))

	return err
}

// OfNode returns a request about a node, with the default policy.
func OfNode(node string) engine.NodeRequest {
	return engine.NodeRequest{Node: node, Policy: cluster.DefaultPolicy()}
}

// Must fails the test unless the upgrade succeeds.
func (r *Rig) Must(w *Worker, request engine.Request) {
	r.T.Helper()

	if err := w.Apply(context.Background(), request); err != nil {
		r.T.Fatalf("upgrade by %s: %v\n%s", w.Client.Name(), err, r.Judge.Text())
	}
}
