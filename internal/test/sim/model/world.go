// SPDX-License-Identifier: MPL-2.0

// Package model is a virtual Talos cluster: machines with two system slots, a bootloader, boot IDs and stages; an
// etcd cluster of the control planes; and the machine configuration with the components of Kubernetes that follow
// it: static pods, kubelets, and what is rendered for the cluster. It has no sockets and no clients. Faces give
// access to it: one speaks the real Talos API, one plays the Kubernetes side, one implements the engine's ports.
//
// Everything that a client could see is recorded through a history.Recorder as it happens. All durations are drawn
// from the seed, so one seed and one sequence of calls give one history.
//
// The files follow a machine: it joins (membership.go, node.go), pulls an image (image.go, pull.go), installs it
// (install.go; legacy.go below Talos 1.13), goes down (reboot.go), boots, falls back, hangs or stays not Ready
// (boot.go), comes back stage by stage (stage.go, etcd.go, component.go, static_pod.go; kubelet.go for a kubelet
// that restarts), and takes another configuration (config.go, apply.go). How long a step takes is written next to
// the step; clock.go draws it from the seed. The schematic of a system stands for its extensions (image.go). What a
// client may ask is in state.go, etcd_calls.go (status and alarms of etcd; etcd_snapshot.go is its database as
// bytes) and log.go. The faults, and how a script is read, are in fault.go; how they strike and end in
// fault_strike.go.
package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// Now returns the simulated time since the simulation began.
func (w *World) Now() time.Duration { return w.clock.Now().Sub(w.began) }

// Clock returns the clock that the world runs on.
func (w *World) Clock() Clock { return w.clock }

// Silent reports whether calls to a machine that does not answer wait instead of being refused.
func (w *World) Silent() bool { return w.options.Silent }

// ClusterName returns the name of the cluster.
func (w *World) ClusterName() string { return w.options.ClusterName }

// ClusterID returns the cluster's discovery identity.
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
// state itself, must not block, and is not called after the returned function.
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

// locked runs fn under the lock and notifies the watchers of what changed.
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

// flush settles the machines that were touched. The caller holds the lock, and calls the watchers after releasing
// it.
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

// SetUnschedulable sets what the Node object of a machine, found by name, says; machines watch it and show it in
// their own resources.
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

// Role is what a machine is in the cluster.
type Role string

// The roles, spelled as Talos spells machine types.
const (
	ControlPlane Role = "controlplane"
	Worker       Role = "worker"
)

// OwnRepository has custom installers, whose names say nothing about their content.
const OwnRepository = "registry.example.com/talos/installer"

// FactoryExtension is the extension in the images of every schematic but the empty one.
const FactoryExtension = "iscsi-tools"

// EmptySchematic is the Image Factory's schematic without any extension.
const EmptySchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// Options describe the cluster at the moment the simulation begins: every
// machine is up, healthy and confirmed on its version.
type Options struct {
	// ClusterName is also the name of the admin context; "talossim" when empty.
	ClusterName string
	// ControlPlanes and Workers are numbers of machines.
	ControlPlanes, Workers int
	// Talos and Kubernetes are versions, with or without v. An empty
	// Kubernetes version is what that Talos version installs by itself.
	Talos, Kubernetes string
	// TalosTag is what the machines call the version that they begin with, if that is not v and the version.
	TalosTag string
	// Schematic is the Image Factory schematic with which all machines were installed; empty means the generic
	// installer below Talos 1.14, up to which it was published, and the empty schematic from there on.
	Schematic string
	// Extensions are the system extensions with which all machines were installed, instead of those of the
	// schematic. Without a schematic, the image is one of [OwnRepository].
	Extensions []string
	// Platform is metal when empty.
	Platform string
	// UKI machines boot the UKI of what was installed, and take their kernel
	// arguments from it; those with SecureBoot do so always.
	UKI bool
	// GrubUseUKICmdline makes the machine configurations say that GRUB takes them from there too.
	GrubUseUKICmdline bool
	// IPv6 gives machines IPv6 addresses and no others.
	IPv6 bool
	// Silent makes machines that do not answer refuse nothing either: their callers wait until they give up.
	Silent bool
	// ManyAddresses gives machines three addresses: one from outside, which discovery and Kubernetes name first and
	// at which nothing answers, and an inner one of each IP family.
	ManyAddresses bool
	// ContainerdVolume gives the images a volume of their own below
	// /var/lib/containerd, as the volume CRI of Talos 1.14 can be.
	ContainerdVolume bool
	// SecureBoot machines refuse to start what is not signed for it.
	SecureBoot bool
	// Unpinned machine configurations name no component images: the kubelet
	// and the control plane follow Talos' own default at each boot.
	Unpinned bool
	// Documents are machine configurations as Talos generates them from 1.14 on,
	// with a document for each component; older versions do not read them. Real
	// ones always name the images: with Unpinned they are more lenient than that.
	Documents bool
	// DiscoveryOff clusters list no members.
	DiscoveryOff bool
	// ProxyDisabled clusters run no kube-proxy.
	ProxyDisabled bool
	// DisabledComponents are switched off everywhere: the scheduler, the
	// controller-manager, or both. Configurations name their images all the same.
	DisabledComponents []string
	// ComponentImages are repositories, by component, that replace the usual ones if the configurations name an
	// image.
	ComponentImages map[string]string
	// ConfiguredImages are images, by component, that the configurations name
	// whatever else is said here: with a tag, and with a digest if there is one.
	ConfiguredImages map[string]string
	// QuickReboots makes machines start within a second, so that a client that polls every few seconds may not see
	// them down.
	QuickReboots bool
	// Seed decides identities and durations.
	Seed uint64
	// Faults is the first fault script.
	Faults []Fault
	// Clock is [RealClock] when nil.
	Clock Clock
	// Recorder receives the history; nil drops it.
	Recorder history.Recorder
}

func (o Options) withDefaults() (Options, error) {
	if o.ClusterName == "" {
		o.ClusterName = "talossim"
	}

	if o.Platform == "" {
		o.Platform = "metal"
	}

	if o.Clock == nil {
		o.Clock = RealClock{}
	}

	if o.Recorder == nil {
		o.Recorder = discard{}
	}

	if o.ControlPlanes < 1 || o.Workers < 0 {
		return o, fmt.Errorf("a cluster needs at least one control plane: got %d control planes and %d workers", o.ControlPlanes, o.Workers)
	}

	talos, err := parseVersion(o.Talos)
	if err != nil {
		return o, fmt.Errorf("talos version %q: %w", o.Talos, err)
	}

	o.Talos = talos.String()

	if o.Kubernetes == "" {
		o.Kubernetes = defaultKubernetes(o.Talos)
	}

	kubernetes, err := parseVersion(o.Kubernetes)
	if err != nil {
		return o, fmt.Errorf("kubernetes version %q: %w", o.Kubernetes, err)
	}

	o.Kubernetes = kubernetes.String()

	return o, o.checkComponents()
}

// checkComponents checks what the options say about configurations.
func (o Options) checkComponents() error {
	if o.Documents && !AtLeast(o.Talos, 1, 14) {
		return fmt.Errorf("talos %s has no configuration in documents: that begins with 1.14", o.Talos)
	}

	for _, component := range o.DisabledComponents {
		if component != SchedulerName && component != ControllerManagerName {
			return fmt.Errorf("disabled component %q: want %s or %s", component, ControllerManagerName, SchedulerName)
		}
	}

	for component, repository := range o.ComponentImages {
		_, tag := splitImage(repository)
		if !slices.Contains(componentNames(), component) || repository == "" || tag != "" || strings.Contains(repository, "@") {
			return fmt.Errorf("component image %s=%q: want a component and a repository without a tag", component, repository)
		}
	}

	for component, image := range o.ConfiguredImages {
		known := component == CoreDNSName || slices.Contains(componentNames(), component)
		if _, tag := splitImage(image); !known || tag == "" {
			return fmt.Errorf("configured image %s=%q: want a component and an image with a tag", component, image)
		}
	}

	return nil
}

type discard struct{}

func (discard) Record(string, history.Kind, map[string]string) {}

// Kubernetes is what a machine does to its own Node object during a legacy
// upgrade. A face provides it; without one these steps do nothing.
type Kubernetes interface {
	// Cordon marks the node unschedulable if on is true and remembers, as Talos does with the annotation
	// talos.dev/cordoned, that the machine did it; a node that is unschedulable already is left as it is. If on is
	// false, it lifts the machine's own cordon and no other.
	Cordon(ctx context.Context, node string, on bool) error
	// Drain evicts the node's pods and gives up after timeout.
	Drain(ctx context.Context, node string, timeout time.Duration) error
}

type noKubernetes struct{}

func (noKubernetes) Cordon(context.Context, string, bool) error         { return nil }
func (noKubernetes) Drain(context.Context, string, time.Duration) error { return nil }

var errStopped = errors.New("the simulation was stopped")
