// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func (t *tale) fault(node, step, effect string) {
	t.tell(node, history.KindFault, "step", step, "effect", effect, "info", "")
}

func (t *tale) over(node, step, effect string) {
	t.tell(node, history.KindFault, "step", step, "effect", effect, "outcome", "over")
}

// troubled is a cluster with a fault of etcd that everybody has seen.
func troubled(node, effect string) *tale {
	t := held()
	t.fault(node, "etcd", effect)
	t.wait(5)
	t.look()

	return t
}

// etcdJudgements are about members in trouble.
func etcdJudgements() []judgement {
	cordonOf := func(node, effect string) func() *tale {
		return func() *tale {
			t := troubled("cp-1", effect)
			t.cordon(node, true, "client")

			return t
		}
	}

	var all []judgement

	for _, effect := range []string{"alarm-nospace", "alarm-corrupt", "lagging", "silent", "learner", "no-leader", "reports"} {
		all = append(all,
			judgement{name: "S2: a control plane although etcd is in trouble: " + effect, want: breaks(s2), tale: cordonOf("cp-0", effect)},
			judgement{name: "S2: a worker although etcd is in trouble: " + effect, want: breaks(s2), tale: cordonOf("worker-0", effect)},
		)
	}

	return append(all, []judgement{
		{name: "S2: a database that is only big", tale: cordonOf("cp-0", "big")},
		{name: "S2: an alarm that may be skipped", options: []checker.Option{checker.Skips("etcd-alarms")}, tale: cordonOf("cp-0", "alarm-nospace")},
		{name: "S2: skipping alarms skips nothing else", want: breaks(s2), options: []checker.Option{checker.Skips("etcd-alarms")}, tale: cordonOf("cp-0", "lagging")},
		{name: "S2: a trouble that is over", tale: func() *tale {
			t := troubled("cp-1", "silent")
			t.over("cp-1", "etcd", "silent")
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S2: one of two troubles is over", want: breaks(s2), tale: func() *tale {
			t := troubled("cp-1", "silent")
			t.fault("cp-1", "etcd", "lagging")
			t.wait(5)
			t.look()
			t.over("cp-1", "etcd", "silent")
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S2: a trouble of a node that has nothing to do with etcd", tale: func() *tale {
			t := held()
			t.fault("cp-1", "disk", "full")
			t.wait(5)
			t.look()
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S2: a trouble that began after the last look", tale: func() *tale {
			t := held()
			t.look()
			t.fault("cp-1", "etcd", "silent")
			t.wait(40)
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S2: a trouble that began a moment before somebody looked", tale: func() *tale {
			t := held()
			t.fault("cp-1", "etcd", "silent")
			t.tell("cp-1", history.KindRead, "what", "etcd")
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S2: in virtual time nobody may overlook it for long", want: breaks(s2), options: []checker.Option{checker.LeaseDuration(time.Hour)}, tale: func() *tale {
			t := held()
			t.look()
			t.fault("cp-1", "etcd", "silent")
			t.wait(40)
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S2: an install that was meant in the midst of it", want: breaks(s2), tale: func() *tale {
			t := troubled("cp-1", "lagging")
			t.put("cp-0", after)

			return t
		}},
		{name: "S2: it began while the installer ran", tale: func() *tale {
			t := held()
			t.look()
			t.journal("cp-0", "intent", after, "run-1")
			t.fault("cp-1", "etcd", "lagging")
			t.wait(20)
			t.look()
			t.install("cp-0", after, 0)
			t.rpc("cp-0", rpcInstall, "OK")

			return t
		}},
		{name: "S2: an install that waited until it was over", tale: func() *tale {
			t := troubled("cp-1", "lagging")
			t.journal("cp-0", "intent", after, "run-1")
			t.over("cp-1", "etcd", "lagging")
			t.look()
			t.install("cp-0", after, 0)
			t.rpc("cp-0", rpcInstall, "OK")

			return t
		}},
		{name: "S2: a reboot in the midst of it", want: breaks(s2), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.cordon("worker-0", true, "client")
			t.fault("cp-1", "etcd", "alarm-nospace")
			t.wait(5)
			t.goDown("worker-0")

			return t
		}},
		{name: "S2: a legacy upgrade in the midst of it", want: breaks(s2), tale: func() *tale {
			t := troubled("cp-1", "alarm-nospace")
			t.rpc("cp-0", rpcLegacy, "OK")

			return t
		}},
		{name: "S2: the boot that may cure the member of the node itself", tale: func() *tale {
			t := held()
			t.put("cp-1", after)
			t.fault("cp-1", "etcd", "silent")
			t.wait(5)
			t.goDown("cp-1")

			return t
		}},
		{name: "S2: a component of a control plane in the midst of it", want: breaks(s2), tale: func() *tale {
			t := troubled("cp-1", "learner")
			t.configure("cp-0", apiServer, "client")

			return t
		}},
		{name: "S2: a kubelet of a worker in the midst of it", tale: func() *tale {
			t := troubled("cp-1", "learner")
			t.configure("worker-0", kubelet, "client")

			return t
		}},
		{name: "S2: another image to install from in the midst of it", tale: func() *tale {
			t := troubled("cp-1", "learner")
			t.configure("cp-0", "installer", "client")

			return t
		}},
	}...)
}

// pairJudgements are about etcd with two members.
func pairJudgements() []judgement {
	two := []checker.Option{checker.Skips("two-members")}
	pair := func(healthy bool) func() *tale {
		return func() *tale {
			t := begin(2, 0)
			t.acquire("run-1 (test)")

			if !healthy {
				t.etcd("cp-1", "down")
			}

			t.put("cp-0", after)
			t.goDown("cp-0")

			return t
		}
	}

	return []judgement{
		{name: "S2: one of two members", want: breaks(s2), tale: pair(true)},
		{name: "S2: one of two members, as somebody chose", options: two, tale: pair(true)},
		{name: "S2: the last one of two members", want: breaks(s2), options: two, tale: pair(false)},
		{name: "S2: one of three with one down, whatever was skipped", want: breaks(s2), options: two, tale: func() *tale {
			t := held()
			t.etcd("cp-1", "down")
			t.put("cp-0", after)
			t.goDown("cp-0")

			return t
		}},
	}
}
