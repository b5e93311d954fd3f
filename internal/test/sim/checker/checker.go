// SPDX-License-Identifier: MPL-2.0

// Package checker judges a history: it asserts, after every event, the safety invariants that an upgrade must keep
// whatever happens to it. It depends only on the events and shares no code with what it judges.
//
// The invariants, as far as the history can show them:
//
//	S1   at most one control plane is down because of us, and none is taken
//	     down while another one is; at most one has a component restarted at a
//	     time, and an API server only while the others serve; no two API servers
//	     are away because of what was configured, soon or later; none is disturbed
//	     while another one is known not to be Ready, not to serve, or to be
//	     upgraded or rebooted by somebody else
//	S2   the quorum of etcd survives every disruptive step, and none is begun
//	     while a member is known to have an alarm or an error, to lag, to be
//	     silent or a learner, or to see no leader
//	S3   no disruptive call without observations newer than the last step;
//	     what happens to other workers during a worker's own turn is no such
//	     step, because turns of workers may overlap; a node is observed before its
//	     configuration changes. A list of the Node objects counts as of its own
//	     time. A watch counts as of a claim, which is a write of the client's own
//	     to a Node: once the watch has delivered that version of the Node, or a
//	     later one, everything older has arrived. Bookmarks and events of other
//	     Nodes prove nothing
//	S4   between two installs on a node there is a new boot ID; a node that
//	     runs the target, or is held, is neither installed nor rebooted, and
//	     one that is held is neither cordoned nor drained; no configuration is
//	     applied that changes nothing, and none to a node that is held; between two
//	     rollbacks of a node there is a new boot ID, or the second undoes the first
//	S5   no version goes down except by a node's own fallback or by a rollback
//	     that is in the journal, once for each install; no minor is skipped, no
//	     component is newer than an API server, no node boots for another
//	     platform than its own because of us, and none that has lost an extension
//	     because of us is put back into service, unless it shows a schematic or the
//	     check of that is skipped
//	S6   every pair of Talos and Kubernetes that comes about is supported
//	S7   only the holder of the lease acts, and no operator beside it: none is
//	     asked to, and one that could is held in the name of the run until its
//	     object is true again and before the lease is released; if an operator is
//	     to act, we only ask it
//	S8   annotations and conditions never claim more than the truth, nor say what
//	     the protocol does not know
//	S9   a cordon, a hold or a condition that we did not set survives
//	S10  no worker is disrupted while as many others are unavailable as may be at
//	     a time, and no node but a canary before every canary runs the version
//	     that the run installs and is back in service, nor while as many of its
//	     pool are unavailable as may be at a time, nor while one is out of service
//	     or a node that was moved has not stayed healthy for as long as it has to:
//	     neither cordoned nor, if that began since, installed; a worker that was
//	     deleted while it was away counts for the run that upgraded it, and for
//	     no other; none is cordoned that could not pull its installer image; no
//	     more kubelets restart at a time than may, and those of canaries first
//	S11  budgets hold, unless the policy says otherwise, and then only after the
//	     drain timed out; no pod is removed that comes back because somebody
//	     uncordoned its node, which is cordoned again once; no node reboots because
//	     of us while a volume is attached that its last pod has left less than two
//	     minutes ago
//	S12  nothing is written without a lease
//	S13  nothing starts outside the maintenance window; a node whose turn began
//	     inside is finished
//	S14  no node is disturbed before a whole snapshot of etcd was read
//	S15  what is known about a machine is of the boot that it is in: an observation
//	     returns the version, the schematic and the platform of the boot whose ID
//	     it returns, and that boot had not ended when the observation began
//
// The history does not contain the policy. [Held], [Canary], [MaxUnavailable] and [MaxUnavailableKubelets] say
// which nodes are held, which are canaries, how many workers may be unavailable and how many of their kubelets may
// restart; by default none, none, one and one. [HeldBy], [CanaryBy] and [Pool] say which labels do the same. Others
// say how long a node has to stay healthy ([Settle]: no time), which checks a person skipped ([Skips]), when the
// window is open ([Window]: always), whether a snapshot has to come first ([SnapshotFirst]: no), on which objects
// an operator acts ([Operated]: none) and whether that operator was to upgrade the cluster ([Delegated]: no). The
// version that a run installs may change during the run, if it leads through several minors.
//
// A history from a real API server contains neither lists nor what a watch delivered, so observations of the Node
// objects are not judged there. Only histories of virtual time contain the results of observations of machines.
//
// Each invariant is asserted in the file of its subject: disruption.go (S1, S2, S4 and S10 of a step that takes a
// node away), look.go (S3, S15), version.go (S5, S6), hazard.go (S13, S14, and what is wrong with other nodes when
// one is cordoned or taken away: S1, S2, S10), configuration.go and component.go (the Kubernetes half),
// rollback.go, lease.go (S7, S12), operator.go (S7 beside an operator), workload.go (S9, S11, and the cordons with
// the checks that they call), label.go (S10 of labels), and annotation.go, annotation_kubernetes.go and status.go
// (S8). node.go is what the checker knows about a node.
package checker

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Invariant names a rule of the list above.
type Invariant string

// The invariants.
const (
	S1  Invariant = "S1"
	S2  Invariant = "S2"
	S3  Invariant = "S3"
	S4  Invariant = "S4"
	S5  Invariant = "S5"
	S6  Invariant = "S6"
	S7  Invariant = "S7"
	S8  Invariant = "S8"
	S9  Invariant = "S9"
	S10 Invariant = "S10"
	S11 Invariant = "S11"
	S12 Invariant = "S12"
	S13 Invariant = "S13"
	S14 Invariant = "S14"
	S15 Invariant = "S15"
)

// Checker follows a history. The zero value is not usable; see [New]. It is not
// safe for concurrent use.
type Checker struct {
	options options
	nodes   map[string]*node
	// now is the event being judged, by its place in the history.
	now int64
	at  float64

	// nodesTold is true once the history contains observations of the Node objects. nodesRead is the place of the
	// last one, or of what proves it, nodesReadAt its time.
	nodesTold   bool
	nodesRead   int64
	nodesReadAt float64
	// nodeWrites are our writes to Node objects since then.
	nodeWrites []nodeWrite

	lease lease
	// target is the version that the present holder of the lease installs now; empty until it has said so.
	target string
	// configures is true once it has changed components of Kubernetes.
	configures bool
	// claims are the annotations that it has written.
	claims map[string]string
	phases map[string]string
	// objects are those to which somebody wrote annotations of the protocol.
	objects map[string]*object
	evicted map[string]float64
	// rolledAt is when the last rollback of a node ended.
	rolledAt moment
	// proxyMoved is true once a pod of kube-proxy was replaced.
	proxyMoved bool
	// snapshotTaken is true once a whole snapshot of etcd was read.
	snapshotTaken bool

	// unheard are the times of calls whose answer was lost, by the machine that they were to take down and that has
	// not gone down.
	unheard map[string]float64

	violations []Violation
	told       map[Violation]bool
}

// New returns a checker of an empty history.
func New(given ...Option) *Checker {
	made := &Checker{
		nodes:   map[string]*node{},
		claims:  map[string]string{},
		phases:  map[string]string{},
		objects: map[string]*object{},
		evicted: map[string]float64{},
		unheard: map[string]float64{},
		told:    map[Violation]bool{},
	}
	for _, option := range given {
		option(&made.options)
	}

	return made
}

// Add judges the next event of the history.
func (c *Checker) Add(event history.Event) {
	c.now++
	c.at = event.Sim

	c.lapse()

	switch event.Kind {
	case history.KindNode:
		c.introduce(event)
	case history.KindRPC:
		c.called(event)
	case history.KindInstall:
		c.installed(event)
	case history.KindDown, history.KindBoot, history.KindStage, history.KindEtcd, history.KindKubelet:
		c.changed(event)
	case history.KindCordon:
		c.cordoned(event)
	case history.KindLabel:
		c.labelled(event)
	case history.KindEvict, history.KindDelete:
		c.removed(event)
	case history.KindLease:
		c.leased(event)
	case history.KindJournal:
		c.journalled(event)
	case history.KindAnnotation:
		c.annotated(event)
	case history.KindStatus:
		c.status(event)
	case history.KindConfig:
		c.configured(event)
	case history.KindMirror:
		c.node(event.Node).mute = event.Detail["state"] == "stale"
	case history.KindComponent:
		c.component(event)
	case history.KindWrite:
		c.wrote(event)
	case history.KindRead:
		c.read(event)
	case history.KindTold:
		c.toldOf(event)
	case history.KindFault:
		c.faulted(event)
	case history.KindSnapshot:
		c.snapshot(event)
	case history.KindVolume:
		c.volume(event)
	case history.KindPull:
		c.pulled(event)
	}
}

// unheardMost is how long, in seconds, a machine may take to do what a call whose answer was lost asked for. A
// legacy upgrade may drain for minutes first.
const unheardMost = 15 * 60

// lapse forgets the calls without an answer that had no effect: they never arrived.
func (c *Checker) lapse() {
	for name, at := range c.unheard {
		if c.at-at <= unheardMost {
			continue
		}

		delete(c.unheard, name)

		if n := c.node(name); n.goingDown && n.up {
			n.goingDown, n.awaited, n.asked = false, !n.ready, max(0, n.asked-1)
		}
	}
}

// changed follows what a machine does by itself or because of a call.
func (c *Checker) changed(event history.Event) {
	n := c.node(event.Node)

	switch event.Kind {
	case history.KindDown:
		if n.up {
			n.lostAt = c.at
		}

		n.up, n.ready, n.complained = false, false, false
		n.wentDown(event.Detail["by"])
	case history.KindBoot:
		c.booted(n, event)
	case history.KindStage:
		c.staged(n, event)
	case history.KindEtcd:
		n.etcdHealthy = event.Detail["state"] == "healthy"
		n.voter = n.voter || n.etcdHealthy
	case history.KindKubelet:
		c.kubelet(n, event)
	default:
	}
}

// violate records that an invariant was broken; the same sentence about the
// same node is recorded once.
func (c *Checker) violate(invariant Invariant, node, format string, args ...any) {
	violation := Violation{Invariant: invariant, Node: node, What: fmt.Sprintf(format, args...)}
	if c.told[violation] {
		return
	}

	c.told[violation] = true
	violation.Time = c.at
	c.violations = append(c.violations, violation)
}
