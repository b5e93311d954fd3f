// SPDX-License-Identifier: MPL-2.0

package health

import (
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// MaxRaftLag is how many raft entries a member of etcd may be behind the newest one
// and still count as caught up. etcd itself promotes a learner at 90 % of the
// leader's index; a healthy member is a handful of entries behind.
const MaxRaftLag = 1000

// NewestEntry is the newest raft entry that any of the nodes knows of; 0 where none
// could be asked.
func NewestEntry(controlPlanes []cluster.Node) uint64 {
	var newest uint64

	for _, node := range controlPlanes {
		if node.Etcd != nil {
			newest = max(newest, node.Etcd.Status.Index)
		}
	}

	return newest
}

// Lags tells whether a member has not applied nearly everything there is.
func Lags(member cluster.EtcdStatus, newest uint64) bool { return member.Applied+MaxRaftLag < newest }

// Corrupt tells whether an alarm of etcd says that the data of a member is not that
// of the others. A restart may then leave those in charge that are wrong, so it is
// never skipped.
func Corrupt(alarm string) bool { return strings.Contains(alarm, "CORRUPT") }
