// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"time"
)

const (
	entriesPerSecond = 7
	electionTime     = 1337 * time.Millisecond
	probeDelay       = 21037 * time.Millisecond // how long until machines notice a lost quorum
)

// member is one control plane's place in the etcd cluster. It keeps its ID and
// its data over reboots.
type member struct {
	id      uint64
	running bool
	learner bool
	demoted bool   // a learner again, by the script
	served  bool   // what the machine's own health probe says
	held    *hold  // why it does not come up, by the script
	behind  uint64 // entries applied when it stopped
	startAt time.Time
	catchUp time.Duration // how long it takes from startAt to apply the rest
}

func (m *member) healthy() bool { return m.running && m.votes() }

func (m *member) votes() bool { return !m.learner && !m.demoted }

// etcdCluster is the consensus of the members.
type etcdCluster struct {
	leader uint64 // 0 without one
	term   uint64
	index  uint64 // log entries at since
	since  time.Time
	frozen bool // nothing is committed without quorum
	lock   bool // the upgrade mutex of the legacy API
	alarms map[uint64]string
	minor  uint64 // of the version 3.minor that all members speak
}

func newEtcdCluster(now time.Time) *etcdCluster {
	const firstIndex, firstTerm = 104729, 3

	return &etcdCluster{index: firstIndex, term: firstTerm, since: now, alarms: map[uint64]string{}}
}

func (e *etcdCluster) elect(m *member) {
	e.leader = m.id
	e.term++
}

// at is the number of log entries at an instant.
func (e *etcdCluster) at(now time.Time) uint64 {
	if e.frozen || now.Before(e.since) {
		return e.index
	}

	return e.index + uint64(now.Sub(e.since).Seconds()*entriesPerSecond)
}

func (e *etcdCluster) freeze(now time.Time, frozen bool) {
	if e.frozen == frozen {
		return
	}

	e.index, e.since = e.at(now), now
	e.frozen = frozen
}

// applied is how far a member is.
func (m *member) applied(e *etcdCluster, now time.Time) uint64 {
	goal := e.at(now)

	passed := now.Sub(m.startAt)
	if m.startAt.IsZero() || passed >= m.catchUp {
		return goal
	}

	done := float64(passed) / float64(m.catchUp)

	return m.behind + uint64(done*float64(goal-m.behind))
}

func memberID(id uint64) string {
	if id == 0 {
		return "0"
	}

	return fmt.Sprintf("%016x", id)
}

// members are the machines with a place in the cluster.
func (w *World) members() []*node {
	var members []*node

	for _, n := range w.nodes {
		if n.etcd != nil {
			members = append(members, n)
		}
	}

	return members
}

func (w *World) quorum() bool {
	voters, running := 0, 0

	for _, n := range w.members() {
		if !n.etcd.votes() {
			continue
		}

		voters++

		if n.etcd.running {
			running++
		}
	}

	return running > voters/2
}

// etcdStart lets a machine's member join again.
func (w *World) etcdStart(n *node) {
	const least, most = 3 * time.Second, 10 * time.Second

	n.etcd.running = true
	n.etcd.startAt = w.clock.Now()
	n.etcd.catchUp = w.spread(n, "etcd catch-up", least, most)
	w.reconsider()
	n.etcd.served = w.quorum() && w.etcd.leader != 0
	w.touch(n)
}

// etcdStop takes a machine's member away. A graceful stop hands leadership
// over before; otherwise the others elect a leader after a while.
func (w *World) etcdStop(n *node, graceful bool) {
	if n.etcd == nil {
		return
	}

	if n.etcd.held = nil; !n.etcd.running {
		return
	}

	n.etcd.behind = n.etcd.applied(w.etcd, w.clock.Now())
	n.etcd.running, n.etcd.served = false, false
	n.etcd.startAt = time.Time{}

	if w.etcd.leader == n.etcd.id {
		w.etcd.leader = 0

		if heir := w.heir(n); graceful && heir != nil && w.quorum() {
			w.lead(heir)
		}
	}

	w.reconsider()
	w.touch(n)
}

// heir is the next voter after a machine that runs.
func (w *World) heir(of *node) *member {
	members := w.members()

	for i, n := range members {
		if n != of {
			continue
		}

		for step := 1; step < len(members); step++ {
			if next := members[(i+step)%len(members)].etcd; next.healthy() {
				return next
			}
		}
	}

	return nil
}

// reconsider brings leader and log in line with who runs.
func (w *World) reconsider() {
	quorum := w.quorum()
	lost := !quorum && !w.etcd.frozen
	w.etcd.freeze(w.clock.Now(), !quorum)

	switch {
	case lost:
		w.etcd.leader = 0
		w.later(w.life, probeDelay, w.probe)
	case quorum && w.etcd.leader == 0:
		w.later(w.life, electionTime, w.election)
	}

	for _, n := range w.members() {
		w.touch(n)
	}

	w.considerVersion()
}

func (w *World) election() {
	if w.etcd.leader != 0 || !w.quorum() {
		return
	}

	for _, n := range w.members() {
		if n.etcd.healthy() {
			w.lead(n.etcd)

			break
		}
	}

	w.probe()
}

// probe is what every machine's health check of its own member finds.
func (w *World) probe() {
	quorum := w.quorum()

	for _, n := range w.members() {
		n.etcd.served = n.etcd.running && quorum
		w.touch(n)
		w.confirmSoon(n)
	}
}

// revote takes the vote of a member away while the script has it a learner, or
// gives it back. The last voter keeps it.
func (w *World) revote(n *node) {
	demoted := n.suffers(StepEtcd, EffectLearner) && slices.ContainsFunc(w.members(), func(other *node) bool {
		return other != n && other.etcd.votes()
	})

	if n.etcd.demoted == demoted {
		return
	}

	n.etcd.demoted = demoted

	if demoted && w.etcd.leader == n.etcd.id {
		w.etcd.leader = 0

		if heir := w.heir(n); heir != nil && w.quorum() {
			w.lead(heir)
		}
	}

	w.reconsider()
}
