// SPDX-License-Identifier: MPL-2.0

// Package engine upgrades a cluster: it observes, plans, guards, acts and
// records, one control plane at a time and as many workers as the policy lets
// be unavailable. It is the only code that changes a cluster, and it knows the
// cluster only through the ports of package cluster.
package engine

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// Options are what an [Engine] works with.
type Options struct {
	Talos      cluster.Talos
	Kubernetes cluster.Kubernetes
	// Removals and Manifests are nil where there is no connection to the
	// Kubernetes API; what needs them is refused then.
	Removals  cluster.Removals
	Manifests cluster.BootstrapManifests
	// Workloads is nil where there is no connection to the Kubernetes API either.
	Workloads cluster.WorkloadReader
	// Registry is nil where images are not to be looked for.
	Registry cluster.Registry
	// Operator is a controller that may upgrade the same cluster; nil where none is
	// known.
	Operator cluster.Operator
	// Clock is the one on the wall when nil.
	Clock Clock
	// Observers are told of every event of a run, in order.
	Observers []cluster.Observer
	// Permitted is told of everything that a run permits itself to do to a node, a line each with the ages of
	// the facts behind it; nil for nobody. Several goroutines may call it at once.
	Permitted func(line string)
	// Run identifies this run in the lease, the journal and on cordons.
	Run string
	// Owner says to people who runs it, such as a resource address.
	Owner string
	// ClusterName is what people call the cluster.
	ClusterName string
}

// Engine upgrades one cluster. It is used for one operation at a time.
type Engine struct {
	talos      cluster.Talos
	kubernetes cluster.Kubernetes
	removals   cluster.Removals
	manifests  cluster.BootstrapManifests
	workloads  cluster.WorkloadReader
	registry   cluster.Registry
	operator   cluster.Operator
	clock      Clock
	observers  []cluster.Observer
	permitted  func(line string)
	runID      string
	owner      string
	name       string
	// rules are what has to hold before anything is done to a node.
	rules []rule.Rule
	// telling is held while observers are told of an event. It guards told, which has the keys of what
	// emitOnce has emitted.
	telling semaphore
	told    map[string]bool
	// listing is held while members are listed again.
	listing semaphore
	// facts are what is known of the cluster.
	facts *fact.Store
	// shutdown is when the present operation had to stop.
	shutdown *shutdown
}

// New makes an engine; it contacts nobody.
func New(options Options) *Engine {
	made := &Engine{
		talos:      options.Talos,
		kubernetes: options.Kubernetes,
		removals:   options.Removals,
		manifests:  options.Manifests,
		workloads:  options.Workloads,
		registry:   options.Registry,
		operator:   options.Operator,
		clock:      options.Clock,
		observers:  options.Observers,
		permitted:  options.Permitted,
		runID:      options.Run,
		owner:      options.Owner,
		name:       options.ClusterName,
		rules:      rule.Table(),

		telling:  newSemaphore(1),
		told:     map[string]bool{},
		facts:    fact.New(),
		listing:  newSemaphore(1),
		shutdown: &shutdown{},
	}
	if made.clock == nil {
		made.clock = RealClock()
	}

	return made
}

// Request is what an upgrade is asked to reach.
type Request struct {
	Target cluster.Target
	Policy cluster.Policy
	// ClusterID refuses any other cluster; empty accepts the connected one.
	ClusterID string
	// Deadline is the time after which no further node is started; 0 is none.
	Deadline time.Duration
	// Gates have to hold before the roll and before each node.
	Gates []cluster.Gate
	// Window is when nodes may be disturbed; nil is always.
	Window cluster.Window
	// Snapshots is where a snapshot of etcd is saved before anything is touched;
	// nil takes none.
	Snapshots cluster.SnapshotStore
	// Delegated tells that the operator acts, and not this engine.
	Delegated bool
}

// Durations of the engine. They are measured on its clock.
const (
	// minPoll and maxPoll bound the pause between two looks at something
	// that is being waited for.
	minPoll = 200 * time.Millisecond
	maxPoll = 5 * time.Second
	// guardTimeout is how long a guard that does not hold may take to heal
	// before the run stops.
	guardTimeout = 5 * time.Minute
	// cleanupTimeout bounds each thing that is still done after a failure.
	cleanupTimeout = 30 * time.Second
	// flushTimeout bounds the wait for the last word: whoever holds the lease
	// meanwhile keeps others waiting.
	flushTimeout = 10 * time.Second
	// stopGrace does so after a cancel, and stopTimeout all of it together: the
	// end of a call, a cordon that is taken back, a last look and the last word.
	// The release of the lease comes after them, with releaseTimeout in all; what the
	// caller does then must fit into 15 s as well.
	stopGrace      = 4 * time.Second
	stopTimeout    = 8 * time.Second
	releaseTimeout = 12 * time.Second
	// endPauseTimeout is when the operator of the cluster is set free at the latest, before
	// that.
	endPauseTimeout = 10 * time.Second
	// minStopGrace is left to each of them in any case.
	minStopGrace = 500 * time.Millisecond
	// observeParallel bounds the nodes that are observed at the same time.
	observeParallel = 64
	// pullParallel bounds the nodes whose images are looked for at the same time.
	pullParallel = 5
)
