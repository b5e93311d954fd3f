// SPDX-License-Identifier: MPL-2.0

package cluster

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

// EtcdView is etcd as one control plane sees it.
type EtcdView struct {
	Members []EtcdMember
	Status  EtcdStatus
	// Alarms are the active ones, as "NOSPACE on member 1f".
	Alarms []string
}
