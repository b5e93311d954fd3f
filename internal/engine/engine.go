// SPDX-License-Identifier: MPL-2.0

// Package engine upgrades a cluster: it observes, plans, guards, acts and records, one control plane at a time
// and as many workers as the policy allows to be unavailable. It is the only code that changes a cluster, and it
// reaches the cluster only through the ports of package cluster.
package engine

import (
	"strings"
	"time"
	"unicode"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// Options are the dependencies and the identity of an [Engine].
type Options struct {
	Talos      cluster.Talos
	Kubernetes cluster.Kubernetes
	// Removals and Manifests are nil if there is no connection to the Kubernetes API; what needs them is refused
	// then.
	Removals  cluster.Removals
	Manifests cluster.BootstrapManifests
	// Workloads is nil too if there is no connection to the Kubernetes API.
	Workloads cluster.WorkloadReader
	// Registry is nil if images are not looked up.
	Registry cluster.Registry
	// Operator is a controller that may upgrade the same cluster; nil if none is known.
	Operator cluster.Operator
	// Clock is the real clock if nil.
	Clock Clock
	// Observers receive every event of a run, in order.
	Observers []cluster.Observer
	// Permitted receives one line for each action on a node that a run permits, with the ages of the facts behind
	// it; nil if nobody is interested. It may be called by several goroutines at once.
	Permitted func(line string)
	// Run identifies this run in the lease, the journal and on cordons.
	Run string
	// Owner says who runs it, for people, such as a resource address.
	Owner string
	// ClusterName is the name of the cluster for people.
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
	// rules are what must hold before anything is done to a node.
	rules []rule.Rule
	// telling is held while observers receive an event. It guards told, which holds the keys of the events that
	// emitOnce has emitted.
	telling semaphore
	told    map[string]bool
	// listing is held while members are listed again.
	listing semaphore
	// facts are what is known about the cluster.
	facts *fact.Store
	// shutdown is when the current operation had to stop.
	shutdown *shutdown
}

// New returns an engine; nothing is contacted.
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

// Request is what an upgrade is to reach, and how.
type Request struct {
	Target cluster.Target
	Policy cluster.Policy
	// ClusterID is the only cluster that is accepted; empty accepts any.
	ClusterID string
	// Deadline is the time after which no further node is started; 0 means none.
	Deadline time.Duration
	// Gates must hold before the roll and before each node.
	Gates []cluster.Gate
	// Window is when nodes may be disturbed; nil means always.
	Window cluster.Window
	// Snapshots is where a snapshot of etcd is saved before anything is touched; nil takes none.
	Snapshots cluster.SnapshotStore
	// Delegated is true if the operator acts instead of this engine.
	Delegated bool
}

// Durations of the engine. They are measured on its clock.
const (
	// minPoll and maxPoll bound the pause between two polls of something that is being waited for.
	minPoll = 200 * time.Millisecond
	maxPoll = 5 * time.Second
	// guardTimeout is how long guards that do not hold are waited for before the run stops.
	guardTimeout = 5 * time.Minute
	// cleanupTimeout bounds each action that is still taken after a failure.
	cleanupTimeout = 30 * time.Second
	// flushTimeout bounds the wait for the last events to be passed on: meanwhile the lease is still held and
	// keeps other runs waiting.
	flushTimeout = 10 * time.Second
	// stopGrace bounds each of these actions after a cancel, and stopTimeout all of them together: the end of a
	// call, taking back a cordon, a last observation and the last events. The release of the lease follows, and
	// ends no later than releaseTimeout after the cancel; what the caller does then must fit into 15 s as well.
	stopGrace      = 4 * time.Second
	stopTimeout    = 8 * time.Second
	releaseTimeout = 12 * time.Second
	// endPauseTimeout is when the release of the cluster's operator, which comes before that, ends at the latest.
	endPauseTimeout = 10 * time.Second
	// minStopGrace is the least time that each of them gets.
	minStopGrace = 500 * time.Millisecond
	// observeParallel bounds the nodes that are observed at the same time.
	observeParallel = 64
	// pullParallel bounds the nodes whose images are checked at the same time.
	pullParallel = 5
)

// emit passes the event to the observers, one event at a time.
func (e *Engine) emit(event cluster.Event) {
	e.telling <- struct{}{}
	defer e.telling.leave()

	e.notify(event)
}

// emitOnce emits the event unless one with the same key was emitted before.
func (e *Engine) emitOnce(key string, event cluster.Event) {
	e.telling <- struct{}{}
	defer e.telling.leave()

	if !e.told[key] {
		e.told[key] = true
		e.notify(event)
	}
}

// notify passes the event to the observers. The caller holds telling.
func (e *Engine) notify(event cluster.Event) {
	event.Time = e.clock.Now()
	for _, observer := range e.observers {
		observer.Observe(event)
	}
}

// tell emits a warning for each skipped finding, once.
func (e *Engine) tell(findings []cluster.Finding) {
	for _, finding := range findings {
		if finding.Skipped {
			e.emitOnce(finding.Check+" "+withoutNumbers(finding.Found)+" "+finding.Node,
				cluster.Event{Kind: cluster.EventWarning, Node: finding.Node, Text: finding.String()})
		}
	}
}

// withoutNumbers returns the text without its digits, because numbers change while the finding stays the same.
func withoutNumbers(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}

		return c
	}, text)
}
