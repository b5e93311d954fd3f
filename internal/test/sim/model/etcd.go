// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
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
	demoted bool   // made a learner again by the script
	served  bool   // what the machine's own health probe says
	held    *hold  // why it does not come up, if the script says so
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

// at returns the number of log entries at an instant.
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

// applied returns how many log entries a member has applied.
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

// members returns the machines that have a member of the cluster.
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

// etcdStop stops a machine's member. A graceful stop hands leadership over first; otherwise the others elect a
// leader after a while.
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

// heir returns the next healthy voter after a machine; nil if there is none.
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

// reconsider adapts the leader and the log to the members that run.
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

// probe sets what every machine's health check finds about its own member.
func (w *World) probe() {
	quorum := w.quorum()

	for _, n := range w.members() {
		n.etcd.served = n.etcd.running && quorum
		w.touch(n)
		w.confirmSoon(n)
	}
}

// revote takes the vote from a member while the script makes it a learner, and gives it back afterwards. The last
// voter keeps its vote.
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

// etcdRelease is a version 3.minor.patch of etcd.
type etcdRelease struct {
	minor, patch uint64
}

func (e etcdRelease) String() string { return fmt.Sprintf("3.%d.%d", e.minor, e.patch) }

// etcdOf returns the etcd that a version of Talos runs, by the release notes of its minor. Patches of Talos come
// with patches of etcd, which make no difference here.
func etcdOf(talos string) etcdRelease {
	oldest, newest := etcdRelease{5, 11}, etcdRelease{7, 1}

	version, err := parseVersion(talos)
	if err != nil {
		return newest
	}

	if version.Minor() <= 7 {
		return oldest
	}

	known, found := map[uint64]etcdRelease{
		8: {5, 16}, 9: {5, 17}, 10: {5, 21}, 11: {6, 4}, 12: {6, 6}, 13: {6, 9}, 14: newest,
	}[version.Minor()]
	if !found {
		return newest
	}

	return known
}

func (n *node) etcdRelease() etcdRelease { return etcdOf(n.running().talos) }

// storageVersion returns what a member says about the version of its data; empty for etcd 3.5, which does not know
// it.
func (w *World) storageVersion(n *node) string {
	const first = 6

	own := n.etcdRelease().minor
	if own < first {
		return ""
	}

	return etcdRelease{minor: min(own, w.etcd.minor)}.String()
}

// EtcdClusterVersion returns the version that the members have agreed on, such as 3.6. An older member cannot join
// any more.
func (w *World) EtcdClusterVersion() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return fmt.Sprintf("3.%d", w.etcd.minor)
}

// lowestMinor returns the oldest minor among the members; 0 unless all of them run.
func (w *World) lowestMinor() uint64 {
	var lowest uint64

	for _, n := range w.members() {
		if !n.etcd.running {
			return 0
		}

		if minor := n.etcdRelease().minor; lowest == 0 || minor < lowest {
			lowest = minor
		}
	}

	return lowest
}

// monitorTime is how often the leader compares the versions of the members.
const monitorTime = 4019 * time.Millisecond

// considerVersion raises the version of the cluster a moment after all of its
// members run a newer one. It never goes down.
func (w *World) considerVersion() {
	if w.lowestMinor() <= w.etcd.minor {
		return
	}

	w.later(w.life, monitorTime, func() {
		before, lowest := w.etcd.minor, w.lowestMinor()
		if lowest <= before {
			return
		}

		w.etcd.minor = lowest

		for _, n := range w.members() {
			w.note(n, EtcdName, "updated cluster version from 3.%d to 3.%d", before, lowest)
		}
	})
}

// memberBoots starts the member of a machine that has booted, unless the script
// keeps it down.
func (w *World) memberBoots(n *node) {
	fault, struck := w.takeBootFault(n, n.running().talos, EffectEtcdDown)
	if !struck {
		w.memberStarts(n)

		return
	}

	w.note(n, EtcdName, "%s", fault.text("panic: failed to recover v3 backend from snapshot: failed to find database snapshot file"))
	n.etcd.held = w.newHold(fault, func(ended *hold) {
		if n.etcd != nil && n.etcd.held == ended {
			w.releaseMember(n)
		}
	})
	w.touch(n)
}

// memberStarts lets a member join, unless its etcd is older than the cluster's
// version allows.
func (w *World) memberStarts(n *node) {
	own := n.etcdRelease()
	w.note(n, EtcdName, "starting etcd, etcd-version %s", own)

	if own.minor < w.etcd.minor {
		w.note(n, EtcdName, "invalid downgrade; server version is lower than determined cluster version: current-server-version %s, determined-cluster-version 3.%d",
			own, w.etcd.minor)
		w.touch(n)

		return
	}

	w.etcdStart(n)
	w.note(n, EtcdName, "ready to serve client requests")
	n.serviceRuns(w, EtcdName)
}

// releaseMember lets a member start that a fault held back.
func (w *World) releaseMember(n *node) {
	n.etcd.held = nil

	if n.up {
		w.memberStarts(n)
		w.promote(n)
	}
}

// lead makes a member the leader and records that.
func (w *World) lead(m *member) {
	w.etcd.elect(m)

	for _, n := range w.members() {
		w.touch(n)

		if n.etcd == m {
			w.record(n.name, history.KindEtcd, map[string]string{
				"member": memberID(m.id), "state": "healthy", "leader": memberID(m.id),
			})
		}
	}
}
