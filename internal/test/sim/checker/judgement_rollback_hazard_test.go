// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// rollbackHazardJudgements are about what keeps a node from being sent back, which
// is not what is wrong with it.
func rollbackHazardJudgements() []judgement {
	// ill has a member of etcd in trouble, and then disturbs cp-1 by a call.
	ill := func(member, phase, method string) func() *tale {
		return func() *tale {
			t := sick("cp-1")
			t.etcd("cp-1", "healthy")
			t.journal("cp-1", phase, after, "run-1")
			t.fault(member, "etcd", "silent")
			t.fault(member, "etcd", "alarm-corrupt")
			t.wait(5)
			t.look()
			t.rpc("cp-1", method, "OK")

			return t
		}
	}

	// again is a node with a member in trouble that is cordoned once more.
	again := func(phase string) func() *tale {
		return func() *tale {
			t := sick("cp-1")
			t.cordon("cp-1", false, "other")
			t.journal("cp-1", phase, after, "run-1")
			t.fault("cp-1", "etcd", "silent")
			t.wait(5)
			t.look()
			t.cordon("cp-1", true, "client")

			return t
		}
	}

	return []judgement{
		{name: "S2: the member of a node that is rolled back", tale: ill("cp-1", "rolling-back", rpcRollback)},
		{name: "S2: the member of a node that is rebooted to roll it back", tale: ill("cp-1", "rolling-back", rpcReboot)},
		{name: "S2: the member of a node that is rebooted", want: breaks(s2, s4), tale: ill("cp-1", "rebooting", rpcReboot)},
		{name: "S2: the member of a node that is cordoned to roll it back", tale: again("rolling-back")},
		{name: "S2: the member of a node that is cordoned", want: breaks(s2), tale: again("rebooting")},
		{name: "S10: a rollback while a canary is out of service", options: []checker.Option{checker.Canary("worker-0"), checker.MaxUnavailable(2)}, tale: func() *tale {
			t := held()
			t.turn("worker-0", after)
			t.look()
			t.cordon("worker-1", true, "client")
			t.put("worker-1", after)
			t.goDown("worker-1")
			t.boot("worker-1", after, t.kubelet, "upgrade")
			t.stage("worker-1", "booting", "running")
			t.cordon("worker-0", true, "client")
			t.rollback("worker-1")

			return t
		}},
		{name: "S2: another member", want: breaks(s2), tale: ill("cp-0", "rolling-back", rpcRollback)},
		{name: "S2: another member, before a reboot", want: breaks(s2), tale: ill("cp-0", "rolling-back", rpcReboot)},
		{name: "S2: a rollback that costs the quorum", want: breaks(s2), tale: func() *tale {
			t := sick("cp-1")
			t.journal("cp-1", "rolling-back", after, "run-1")
			t.etcd("cp-0", "down")
			t.sendBack("cp-1", "OK")

			return t
		}},
		{name: "S1: a rollback while another control plane is down", want: breaks(s1), tale: func() *tale {
			t := sick("cp-1")
			t.journal("cp-1", "rolling-back", after, "run-1")
			t.down("cp-0", "fault")
			t.sendBack("cp-1", "OK")

			return t
		}},
		{name: "S3: a rollback without a look at the cluster", want: breaks(s3), tale: func() *tale {
			t := sick("cp-1")
			t.journal("cp-1", "rolling-back", after, "run-1")
			t.rpc("cp-1", rpcRollback, "OK")

			return t
		}},
		{name: "S3: to read its log is no look at a node", want: breaks(s3), tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")

			for _, name := range t.names {
				if name[0] == 'c' {
					t.tell(name, history.KindRead, "what", "etcd")
				}
			}

			t.tell("", history.KindRead, "what", "nodes")
			t.tell("worker-0", history.KindRead, "what", "logs")
			t.rpc("worker-0", rpcRollback, "OK")

			return t
		}},
		{name: "S4: a rollback of a node that is held", want: breaks(s4), options: []checker.Option{checker.Held("worker-0")}, tale: func() *tale {
			t := held()
			t.look()
			t.sendBack("worker-0", "OK")

			return t
		}},
		{name: "S7: a rollback by somebody who lost the lease", want: breaks(s7), tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.look()
			t.tell("", history.KindLease, "holder", "person", "action", "acquire", "by", "other")
			t.rpc("worker-0", rpcRollback, "OK")

			return t
		}},
	}
}

// rollbackClaimJudgements are about what annotations say of it.
func rollbackClaimJudgements() []judgement {
	// failed is an annotation with the nodes that failed.
	failed := func(names string) func() *tale {
		return func() *tale {
			t := held()
			t.annotate("failed-nodes", names)

			return t
		}
	}

	return []judgement{
		{name: "S8: rolling back while it is so", tale: func() *tale {
			t := sick("cp-1")
			t.journal("cp-1", "rolling-back", after, "run-1")
			t.annotate("talos-status", "rolling-back")

			return t
		}},
		{name: "S8: rolling back before the journal says so", want: breaks(s8), tale: func() *tale {
			t := sick("cp-1")
			t.annotate("talos-status", "rolling-back")
			t.rollback("cp-1")

			return t
		}},
		{name: "S8: rolling back, written a moment late", tale: func() *tale {
			t := sick("cp-1")
			t.rollback("cp-1")
			t.annotate("talos-status", "rolling-back")

			return t
		}},
		{name: "S8: rolling back long after it was so", want: breaks(s8), tale: func() *tale {
			t := sick("cp-1")
			t.rollback("cp-1")
			t.wait(120)
			t.annotate("talos-status", "rolling-back")

			return t
		}},
		{name: "S8: two nodes that failed", tale: failed("worker-0, cp-1")},
		{name: "S8: a node that failed and does not exist", want: breaks(s8), tale: failed("worker-0,worker-9")},
		{name: "S8: a node that failed and was never there", want: breaks(s8), tale: func() *tale {
			t := held()
			t.tell("worker-9", history.KindRead, "what", "machine")
			t.annotate("failed-nodes", "worker-9")

			return t
		}},
		{name: "S8: a list of nodes that is not one", want: breaks(s8), tale: failed("worker-0,")},
	}
}
