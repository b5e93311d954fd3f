// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	simwire "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// rig is a simulated cluster that is reached over real protocols.
type rig struct {
	*harness.Rig

	talos       *simwire.Server
	kube        *apiserver.Listener
	tap         *tap
	talosconfig []byte

	// lists and watches count the requests for Node objects. While busy is true, every second of them is refused.
	lists, watches atomic.Int64
	busy           atomic.Bool
}

// kubernetes decides what happens to a request to the Kubernetes API.
func (r *rig) kubernetes(ctx context.Context, request apiserver.Request) apiserver.Strike {
	if request.Resource == "nodes" && (request.Verb == "list" || request.Verb == "watch") {
		counted := &r.lists
		if request.Verb == "watch" {
			counted = &r.watches
		}

		if counted.Add(1)%2 == 0 && r.busy.Load() {
			return apiserver.Strike{RetryAfter: 3 * time.Second}
		}
	}

	return r.tap.kubernetes(ctx, request)
}

// inBubble runs a test in virtual time. If the bubble deadlocks, the message has the name by which the case is
// repeated.
func inBubble(t *testing.T, name string, given harness.Setup, test func(*rig)) {
	t.Helper()

	defer func() {
		if stuck := recover(); stuck != nil {
			panic(fmt.Sprintf("%s: %v", name, stuck))
		}
	}()

	synctest.Test(t, func(t *testing.T) { serve(t, given, test) })
}

func serve(t testing.TB, given harness.Setup, test func(*rig)) {
	t.Helper()

	r := &rig{Rig: harness.New(t, given), tap: newTap()}
	defer r.Stop()

	var err error

	r.kube, err = r.Listen(apiserver.Options{Intercept: r.kubernetes})
	if err != nil {
		t.Fatal(err)
	}
	defer r.kube.Stop()

	r.talos, err = simwire.New(simwire.Options{
		World: r.World(), InMemory: true, Intercept: r.tap.talos,
		Kubeconfig: func() ([]byte, error) { return r.kube.Kubeconfig("nobody"), nil },
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := r.talos.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer r.talos.Stop()

	if r.talosconfig, err = r.talos.Talosconfig(); err != nil {
		t.Fatal(err)
	}

	r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

	test(r)
}

// patience bounds a run.
const patience = 12 * time.Hour

// must fails the test unless the upgrade succeeds, and leaves no connection.
func (r *rig) must(p *process, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	if err := p.apply(ctx, request); err != nil {
		r.T.Fatalf("upgrade by %s: %v\n%s", p.name, err, r.Judge.Text())
	}

	r.disconnected(p)
}

// disconnected fails the test if a process that has ended left a connection, on its own side or on that of a server.
func (r *rig) disconnected(p *process) {
	r.T.Helper()

	synctest.Wait()

	if left := p.network.count(); left > 0 {
		r.T.Errorf("%s left %d connections", p.name, left)
	}

	for _, other := range r.tap.alive() {
		if other != p && other.network.count() > 0 {
			return
		}
	}

	if talos, kube := r.talos.Connections(), r.kube.Connections(); talos+kube > 0 {
		r.T.Errorf("the Talos API still has %d connections, the Kubernetes API %d", talos, kube)
	}
}

// converged fails the test unless the cluster is at the target, nothing was broken
// or left behind, and another upgrade changes nothing.
func (r *rig) converged(request engine.Request) {
	r.T.Helper()

	if target := request.Target.Talos; !target.IsZero() {
		r.AllRun(target.String())
		r.published("talos", target.String(), "completed", "idle")
	}

	if target := request.Target.Kubernetes; !target.IsZero() {
		r.atKubernetes(target.String())
		r.published("kubernetes", target.String(), "completed", "idle")
	}

	r.Sound()
	r.Tidy()

	if r.T.Failed() {
		r.T.Fatal(r.Judge.Text())
	}

	again := r.start("run-again")
	r.must(again, request)

	if changes, _ := r.tap.points(again.name); len(changes) > 0 {
		r.T.Errorf("an upgrade of a cluster at its target made %d requests that change something: %v", len(changes), changes)
	}

	if _, changes := again.rest.Calls(); changes > 0 {
		r.T.Errorf("an upgrade of a cluster at its target changed manifests %d times", changes)
	}

	r.Sound()
}

// published fails the test unless the annotations of a half say that it runs the target, and have one of the
// statuses: completed, or, if the last run found nothing to do after one that failed, idle.
func (r *rig) published(half, target string, statuses ...string) {
	r.T.Helper()

	notes := r.Annotations()
	if status := notes[half+"-status"]; !slices.Contains(statuses, status) {
		r.T.Errorf("annotation %s-status is %q, want one of %q", half, status, statuses)
	}

	if current := notes[half+"-current"]; current != target {
		r.T.Errorf("annotation %s-current is %q, want %q", half, current, target)
	}
}

func (r *rig) atKubernetes(target string) {
	r.T.Helper()

	for _, node := range r.World().Nodes() {
		want := model.Components{Proxy: target, Kubelet: target}
		if node.Role == model.ControlPlane {
			want.APIServer, want.ControllerManager, want.Scheduler = target, target, target
		}

		if node.Components != want {
			r.T.Errorf("%s runs %+v, want %+v", node.Name, node.Components, want)
		}
	}

	if r.Journal().Manifests != nil {
		r.T.Errorf("the journal still says that manifests are due")
	}
}

// crashing runs an upgrade that is struck, and returns once its process is dead or the upgrade has ended. It returns
// a function that waits for what is left of a dead process.
func (r *rig) crashing(p *process, request engine.Request, at aim) (wait func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)

	p.mu.Lock()
	p.cancel = cancel
	p.mu.Unlock()

	at.process = p.name
	r.tap.takeAim(at)

	ended := make(chan error, 1)

	go func() {
		defer close(ended)

		ended <- p.apply(ctx, request)
	}()

	select {
	case err = <-ended:
	case <-p.killed:
	}

	// A run may end at the very moment at which it is killed.
	select {
	case <-p.killed:
		err = harness.ErrKilled
	default:
	}

	return func() {
		for range ended {
		}

		cancel()
	}, err
}

// process is one apply: an engine with real adapters and a real publisher.
type process struct {
	*engine.Engine

	name    string
	network *network
	talos   *talosapi.Client
	kube    *kubeapi.Client
	notes   *publish.Publisher
	// rest is what the rig has no protocol for.
	rest *ports.Client

	mu     sync.Mutex
	events []cluster.Event
	// dying is true if the process has to end before it does anything else.
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

// texts returns the texts of the events of a kind.
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

// nodesDone counts the nodes that the process has reported done.
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

// startWith is [rig.start] with a talosconfig of its own.
func (r *rig) startWith(name string, talosconfig []byte) *process {
	r.T.Helper()

	return r.startOver(name, talosconfig, func(p *process) cluster.Kubernetes { return p.kube })
}

// startOver is [rig.startWith] with something in front of the Kubernetes API.
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

	p.kube, err = kubeapi.New(r.kube.Kubeconfig(name), "", kubeapi.Options{UserAgent: name, DialContext: p.dialKube(r)})
	if err != nil {
		r.T.Fatal(err)
	}

	p.kube.Identify(r.World().ClusterID())

	p.notes = publish.New(publish.NewConfigMapStore(p.kube, r.World().ClusterID()), publish.Options{})
	p.rest.Intercept(func(ctx context.Context, _ ports.Call, next func(context.Context) error) error {
		if p.doomed() {
			return harness.ErrKilled
		}

		return next(ctx)
	})

	p.Engine = engine.New(engine.Options{
		Talos: witness{Client: p.talos, world: r.World(), name: name}, Kubernetes: over(p), Workloads: p.kube, Removals: p.rest, Manifests: p.rest,
		Run: name, Owner: "talosupgrade_cluster.test", ClusterName: "test",
		Observers: []cluster.Observer{p, p.notes},
	})
	r.tap.join(p)

	return p
}

// witness records in the history what observations of machines return.
type witness struct {
	*talosapi.Client

	world *model.World
	name  string
}

func (w witness) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	began := w.world.Now()

	machine, err := w.Client.Machine(ctx, address, known, extent)
	if node, found := w.world.NameOf(address); found && err == nil {
		w.world.Record(node, history.KindTold, ports.Told(w.name, began, machine))
	}

	return machine, err
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

// lastWord bounds how long annotations are written after the end of a run.
const lastWord = 15 * time.Second

// apply runs the engine, publishes the last annotations, and closes all connections.
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

// doomed reports whether the process is dead. A dying process dies as soon as it tries to do something.
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

// doom makes the process end before it does anything else, and soon.
func (p *process) doom() {
	const soon = 1733 * time.Microsecond

	p.mu.Lock()
	p.dying = true
	p.mu.Unlock()

	time.AfterFunc(soon, p.kill)
}

// strike strikes at a request of the process over a matching socket.
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

// noted serves a cluster in a bubble of its own, and returns what a test of it found wrong, including a deadlock of
// the bubble.
func noted(t *testing.T, given harness.Setup, test func(*rig)) []string {
	found := &harness.Note{TB: t}

	found.Guarded(func() {
		synctest.Test(t, func(*testing.T) {
			found.Guarded(func() { serve(found, given, test) })
		})
	})

	return found.All()
}
