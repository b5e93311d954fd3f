// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"slices"
	"strings"
)

// EtcdMember is a member as one control plane lists it.
type EtcdMember struct {
	ID uint64
	// Name is empty while the member was added but never started.
	Name    string
	Learner bool
	// PeerAddresses are the hosts of its peer URLs, without scheme and port.
	PeerAddresses []string
}

// EtcdStatus is what a member says about itself.
type EtcdStatus struct {
	MemberID uint64
	// Leader is the member it follows, 0 for none.
	Leader uint64
	Term   uint64
	// Index is the last raft entry it holds, Applied the last it applied.
	Index, Applied uint64
	Learner        bool
	Errors         []string
	// DBSize is the size of its database in bytes.
	DBSize int64
	// Version is the version of etcd it speaks.
	Version string
}

// Complaints are the errors that a member reports, but for alarms, which are a
// matter of their own.
func (s EtcdStatus) Complaints() []string {
	return slices.DeleteFunc(slices.Clone(s.Errors), IsAlarm)
}

// IsAlarm tells whether an error that a member reports is an alarm, which etcd
// repeats there as "memberID:31 alarm:NOSPACE".
func IsAlarm(reported string) bool { return strings.Contains(reported, "alarm:") }

// EtcdView is etcd as one control plane sees it.
type EtcdView struct {
	Members []EtcdMember
	Status  EtcdStatus
}

// Mute tells whether the member says nothing of the others: a learner answers no
// question about them.
func (v EtcdView) Mute() bool { return v.Status.Learner && len(v.Members) == 0 }
