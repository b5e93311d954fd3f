// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"slices"
	"strings"
)

// EtcdMember is a member as one control plane lists it.
type EtcdMember struct {
	ID uint64
	// Name is empty if the member was added and has never started.
	Name    string
	Learner bool
	// PeerAddresses are the hosts of its peer URLs, without scheme and port.
	PeerAddresses []string
}

// EtcdStatus is what a member reports about itself.
type EtcdStatus struct {
	MemberID uint64
	// Leader is the ID of the member that it follows; 0 if it follows none.
	Leader uint64
	Term   uint64
	// Index is the last raft entry that it holds, Applied the last one that it applied.
	Index, Applied uint64
	Learner        bool
	Errors         []string
	// DBSize is the size of its database in bytes.
	DBSize int64
	// Version is the version of etcd that the member reports.
	Version string
}

// Complaints returns the errors that a member reports, except for alarms, which are checked separately.
func (s EtcdStatus) Complaints() []string {
	return slices.DeleteFunc(slices.Clone(s.Errors), IsAlarm)
}

// IsAlarm reports whether an error that a member reports is an alarm: etcd lists alarms among them as
// "memberID:31 alarm:NOSPACE".
func IsAlarm(reported string) bool { return strings.Contains(reported, "alarm:") }

// EtcdView is etcd as one control plane sees it.
type EtcdView struct {
	Members []EtcdMember
	Status  EtcdStatus
}

// Mute reports whether the member lists no members because it is a learner: a learner does not answer that
// question.
func (v EtcdView) Mute() bool { return v.Status.Learner && len(v.Members) == 0 }
