// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// process is one apply: an engine with real adapters and a real publisher.
type process struct {
	*engine.Engine

	name    string
	network *network
	talos   *talosapi.Client
	kube    *kubeapi.Client
	notes   *publish.Publisher
	// rest is what has no wire here.
	rest *ports.Client

	mu     sync.Mutex
	events []cluster.Event
	// dying tells that the process ends before it does anything more.
	dying, dead bool
	killed      chan struct{}
	cancel      context.CancelFunc
}

// Observe implements [cluster.Observer].
func (p *process) Observe(event cluster.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.events = append(p.events, event)
}

// texts are what a person was told.
func (p *process) texts(kind cluster.EventKind) []string {
	p.mu.Lock()
	defer p.mu.Unlock()

	var texts []string

	for _, event := range p.events {
		if event.Kind == kind {
			texts = append(texts, event.Text)
		}
	}

	return texts
}

// nodesDone counts the nodes that the process has said to be done.
func (p *process) nodesDone() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	count := 0

	for _, event := range p.events {
		if event.Kind == cluster.EventNodeDone && event.Component == "" {
			count++
		}
	}

	return count
}

// start connects a process to the servers of the rig.
func (r *rig) start(name string) *process {
	r.T.Helper()

	return r.startWith(name, r.talosconfig)
}

// startWith does so with a talosconfig of its own.
func (r *rig) startWith(name string, talosconfig []byte) *process {
	r.T.Helper()

	return r.startOver(name, talosconfig, func(p *process) cluster.Kubernetes { return p.kube })
}

// startOver does so with something before its Kubernetes API.
func (r *rig) startOver(name string, talosconfig []byte, over func(*process) cluster.Kubernetes) *process {
	r.T.Helper()

	p := &process{
		name: name, network: newNetwork(), rest: r.Client(name), killed: make(chan struct{}), cancel: func() {},
	}

	config, err := talosapi.ParseConfig(talosconfig, "")
	if err != nil {
		r.T.Fatal(err)
	}

	p.talos, err = talosapi.New(config, talosapi.Options{UserAgent: name, DialContext: p.dialTalos(r)})
	if err != nil {
		r.T.Fatal(err)
	}

	p.kube, err = kubeapi.New(r.kube.KubeconfigFor(name), "", kubeapi.Options{UserAgent: name, DialContext: p.dialKube(r)})
	if err != nil {
		r.T.Fatal(err)
	}

	p.kube.Identify(r.World().ClusterID())

	store, err := publish.NewConfigMapStore(p.kube.Config(), p.kube.HTTPClient(), r.World().ClusterID())
	if err != nil {
		r.T.Fatal(err)
	}

	p.notes = publish.New(store, publish.Options{})
	p.rest.Intercept(func(ctx context.Context, _ ports.Call, next func(context.Context) error) error {
		if p.doomed() {
			return harness.ErrKilled
		}

		return next(ctx)
	})

	p.Engine = engine.New(engine.Options{
		Talos: p.talos, Kubernetes: over(p), Workloads: p.kube, Removals: p.rest, Manifests: p.rest,
		Run: name, Owner: "talosupgrade_cluster.test", ClusterName: "test",
		Observers: []cluster.Observer{p, p.notes},
	})
	r.tap.join(p)

	return p
}

func (p *process) dialTalos(r *rig) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return p.network.dial(ctx, address, func(ctx context.Context) (net.Conn, error) { return r.talos.Dialer()(ctx, address) })
	}
}

func (p *process) dialKube(r *rig) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.network.dial(ctx, address, func(ctx context.Context) (net.Conn, error) {
			return r.kube.DialContext(ctx, network, address)
		})
	}
}

// lastWord bounds what is published after the end of a run.
const lastWord = 15 * time.Second

// apply runs the engine, publishes the last word, and ends all connections.
func (p *process) apply(ctx context.Context, request engine.Request) error {
	_, err := p.Upgrade(ctx, request)

	return errors.Join(err, p.close())
}

func (p *process) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lastWord)
	defer cancel()

	err := p.notes.Close(ctx)

	p.kube.Close()

	return errors.Join(err, p.talos.Close())
}

// kill ends the process: nothing that it does from now on has an effect.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.dead {
		return
	}

	p.dead = true
	p.cancel()
	close(p.killed)
	p.network.die()
}

// doomed tells whether the process is dead, which it is for sure when it tries to
// do something while it is dying.
func (p *process) doomed() bool {
	p.mu.Lock()
	dying := p.dying
	p.mu.Unlock()

	if dying {
		p.kill()
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	return p.dead
}

// doom has the process end before it does anything more, and soon.
func (p *process) doom() {
	const soon = 1733 * time.Microsecond

	p.mu.Lock()
	p.dying = true
	p.mu.Unlock()

	time.AfterFunc(soon, p.kill)
}

// strike carries out a strike at a request of the process over a socket that
// matches.
func (p *process) strike(at aim, over func(host string) bool) ending {
	switch at.variant {
	case cutBefore:
		p.kill()

		return ending{cut: cutEarly}
	case lostAndDead:
		p.network.onBreak(func(host string) {
			if over(host) {
				p.kill()
			}
		})

		return ending{cut: cutLate}
	case repliedAndDead:
		return ending{replied: p.doom}
	case cutDuring:
		time.AfterFunc(at.within, func() { p.network.sever(over) })
	case deadDuring:
		time.AfterFunc(at.within, p.kill)
	case meddled:
		time.AfterFunc(at.within, at.meddle)
	case endedEarly:
		return ending{cut: endClean}
	case replyLost:
		return ending{cut: cutLate}
	}

	return ending{cut: cutNone}
}
