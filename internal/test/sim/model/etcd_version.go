// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"time"
)

// etcdRelease is a version 3.minor.patch of etcd.
type etcdRelease struct {
	minor, patch uint64
}

func (e etcdRelease) String() string { return fmt.Sprintf("3.%d.%d", e.minor, e.patch) }

// etcdOf is the etcd that a version of Talos runs, by the release notes of its
// minor; patches of Talos bring patches of etcd, which make no difference here.
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

// storageVersion is what a member says of its data; etcd 3.5 does not know of it.
func (w *World) storageVersion(n *node) string {
	const first = 6

	own := n.etcdRelease().minor
	if own < first {
		return ""
	}

	return etcdRelease{minor: min(own, w.etcd.minor)}.String()
}

// EtcdClusterVersion is the version that the members have agreed on, as in 3.6:
// what is older cannot join any more.
func (w *World) EtcdClusterVersion() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return fmt.Sprintf("3.%d", w.etcd.minor)
}

// lowestMinor is the oldest minor among the members, 0 unless all of them run.
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

// releaseMember lets a member start that a fault held.
func (w *World) releaseMember(n *node) {
	n.etcd.held = nil

	if n.up {
		w.memberStarts(n)
		w.promote(n)
	}
}
