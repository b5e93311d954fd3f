// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// World is one simulated cluster. All its methods are safe for concurrent use.
type World struct {
	options   Options
	clock     Clock
	recorder  history.Recorder
	began     time.Time
	clusterID string
	life      context.Context
	end       context.CancelFunc
	work      sync.WaitGroup

	mu    sync.Mutex
	nodes []*node
	// named are the machines by their names, and by the addresses under which they answer.
	named map[string]*node
	// left are machines that were removed, as they were then.
	left          []NodeState
	joined        int // machines ever created
	script        *script
	scriptChanged chan struct{}
	etcd          *etcdCluster
	kubernetes    Kubernetes
	registry      *registry
	touched       map[*node]bool
	changed       chan struct{} // closed at each visible change
	watchers      map[int]func(string)
	watched       int
	stopped       atomic.Bool
}

// New makes a cluster as it is after a successful installation. Stop ends
// what it has under way.
func New(options Options) (*World, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}

	w := &World{
		options:       options,
		clock:         options.Clock,
		recorder:      options.Recorder,
		clusterID:     drawToken(options.Seed, "cluster", options.ClusterName),
		script:        newScript(options.Faults),
		scriptChanged: make(chan struct{}),
		etcd:          newEtcdCluster(options.Clock.Now()),
		kubernetes:    noKubernetes{},
		registry:      newRegistry(),
		touched:       map[*node]bool{},
		named:         map[string]*node{},
		changed:       make(chan struct{}),
		watchers:      map[int]func(string){},
	}
	w.began = w.clock.Now()
	w.life, w.end = context.WithCancel(context.Background())

	for i := range options.ControlPlanes + options.Workers {
		role, name := ControlPlane, fmt.Sprintf("cp-%d", i)
		if i >= options.ControlPlanes {
			role, name = Worker, fmt.Sprintf("worker-%d", i-options.ControlPlanes)
		}

		n, err := w.build(NodeOptions{Name: name, Role: role})
		if err != nil {
			w.end()

			return nil, err
		}

		w.bringUp(n)
	}

	w.etcd.elect(w.nodes[0].etcd)
	w.etcd.minor = w.lowestMinor()
	w.locked(func() {
		w.strikeKubelets()

		for _, n := range w.nodes {
			w.strikeTroubles(n)
		}
	})

	return w, nil
}

// bringUp puts a new machine into the state of one that has run for long.
func (w *World) bringUp(n *node) {
	n.start(w.life)
	n.up, n.stage = true, StageRunning
	n.bootedAt = w.clock.Now()
	n.kubelet.Running, n.kubelet.Ready = true, true
	n.rejoined = true
	w.restKubernetes(n)

	w.note(n, KubeletName, "kubelet v%s starts", n.kubelet.Version)
	w.note(n, KubeletName, "node %q became ready", n.name)

	if n.etcd != nil {
		n.etcd.running, n.etcd.served = true, true
		w.note(n, EtcdName, "ready to serve client requests")
	}

	unmet := n.unmet()
	n.reported = report{n.stage, len(unmet) == 0, unmet, n.kubelet, n.etcd != nil}
	w.introduce(n, false)
}

// Stop ends everything under way and waits for it. The world keeps its last
// state for reading.
func (w *World) Stop() {
	w.mu.Lock()
	w.stopped.Store(true)
	w.mu.Unlock()

	w.end()
	w.work.Wait()
}

// Now is the simulated time since the simulation began.
func (w *World) Now() time.Duration { return w.clock.Now().Sub(w.began) }

// Clock is the clock the world runs on.
func (w *World) Clock() Clock { return w.clock }

// Silent tells whether a machine that does not answer lets its callers wait, instead of
// refusing them.
func (w *World) Silent() bool { return w.options.Silent }

// ClusterName and ClusterID identify the cluster as discovery does.
func (w *World) ClusterName() string { return w.options.ClusterName }

// ClusterID is the cluster's discovery identity.
func (w *World) ClusterID() string { return w.clusterID }

// SetKubernetes connects the face that carries out what machines do in the
// Kubernetes API.
func (w *World) SetKubernetes(face Kubernetes) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.kubernetes = face
}

// OnChange calls fn with a machine's name after each visible change of it,
// outside of all locks and possibly from several goroutines; fn reads the
// state anew, must not block, and is not called after the returned function.
func (w *World) OnChange(fn func(node string)) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.watched++
	id := w.watched
	w.watchers[id] = fn

	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()

		delete(w.watchers, id)
	}
}

// locked runs fn under the lock and tells everyone what changed.
func (w *World) locked(fn func()) {
	w.mu.Lock()
	fn()
	names, watchers := w.flush()
	w.mu.Unlock()

	for _, name := range names {
		for _, watcher := range watchers {
			watcher(name)
		}
	}
}

func (w *World) touch(n *node) { w.touched[n] = true }

// flush settles the machines that were touched. Who calls it holds the lock
// and calls the watchers after letting it go.
func (w *World) flush() ([]string, []func(string)) {
	if len(w.touched) == 0 {
		return nil, nil
	}

	touched := slices.SortedFunc(maps.Keys(w.touched), func(a, b *node) int { return a.index - b.index })
	clear(w.touched)

	names := make([]string, len(touched))

	for i, n := range touched {
		w.settle(n)
		names[i] = n.name
	}

	close(w.changed)
	w.changed = make(chan struct{})

	watchers := make([]func(string), 0, len(w.watchers))
	for _, id := range slices.Sorted(maps.Keys(w.watchers)) {
		watchers = append(watchers, w.watchers[id])
	}

	return names, watchers
}

// Record adds to the history what a face saw; node is empty for events that
// concern the cluster.
func (w *World) Record(node string, kind history.Kind, detail map[string]string) {
	w.record(node, kind, detail)
}

// SetUnschedulable tells a machine, found by name, what its Node object says;
// machines watch it and show it in their own resources.
func (w *World) SetUnschedulable(node string, unschedulable bool) {
	w.locked(func() {
		if n, err := w.find(node); err == nil && n.unschedulable != unschedulable {
			n.unschedulable = unschedulable
			w.touch(n)
		}
	})
}

func (w *World) record(node string, kind history.Kind, detail map[string]string) {
	w.recorder.Record(node, kind, detail)
}
