// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func breaks(invariants ...checker.Invariant) []checker.Invariant { return invariants }

// machineJudgements are about who goes down when.
func machineJudgements() []judgement {
	return []judgement{
		{name: "a roll as it should be", tale: roll},
		{name: "S1: two of five control planes down", want: breaks(s1), tale: func() *tale {
			t := begin(5, 0)
			t.acquire("run-1")
			t.put("cp-0", after)
			t.goDown("cp-0")
			t.put("cp-1", after)
			t.goDown("cp-1")

			return t
		}},
		{name: "S1: a second one asked to reboot before the first went down", want: breaks(s1), tale: func() *tale {
			t := begin(5, 0)
			t.acquire("run-1")
			t.put("cp-0", after)
			t.look()
			t.stage("cp-0", "running", "rebooting")
			t.rpc("cp-0", rpcReboot, "OK")
			t.put("cp-1", after)
			t.goDown("cp-1")

			return t
		}},
		{name: "S1: one goes down while another one is down by itself", want: breaks(s1), tale: func() *tale {
			t := begin(5, 0)
			t.acquire("run-1")
			t.etcd("cp-4", "down")
			t.down("cp-4", "fault")
			t.put("cp-0", after)
			t.goDown("cp-0")

			return t
		}},
		{name: "S1: the end of the call is written down when the node is back", tale: func() *tale {
			t := begin(5, 0)
			t.acquire("run-1")
			t.put("cp-0", after)
			t.look()
			t.stage("cp-0", "running", "rebooting")
			t.etcd("cp-0", "down")
			t.down("cp-0", "client")
			t.comeBack("cp-0", after)
			t.rpc("cp-0", rpcReboot, "OK")
			t.put("cp-1", after)
			t.goDown("cp-1")

			return t
		}},
		{name: "S1: a refused reboot takes nothing down", tale: func() *tale {
			t := begin(5, 0)
			t.acquire("run-1")
			t.put("cp-0", after)
			t.goDown("cp-0")
			t.rpc("cp-1", rpcReboot, "PermissionDenied")

			return t
		}},
		{name: "S1: a worker may be down beside a control plane", tale: func() *tale {
			t := held()
			t.ready("worker-0", false, runsOn)
			t.down("worker-0", "fault")
			t.put("cp-0", after)
			t.goDown("cp-0")

			return t
		}},
		{name: "S2: a member has not come back", want: breaks(s2), tale: func() *tale {
			t := held()
			t.put("cp-0", after)
			t.goDown("cp-0")
			t.boot("cp-0", after, runsOn, "upgrade")
			t.put("cp-1", after)
			t.goDown("cp-1")

			return t
		}},
		{name: "S2: one of two members", want: breaks(s2), tale: func() *tale {
			t := begin(2, 0)
			t.acquire("run-1")
			t.put("cp-0", after)
			t.goDown("cp-0")

			return t
		}},
		{name: "S2: the only member may go", tale: func() *tale {
			t := begin(1, 0)
			t.acquire("run-1")
			t.turn("cp-0", after)

			return t
		}},
		{name: "S3: nothing was looked at since the install", want: breaks(s3), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S3: etcd was not looked at on one control plane", want: breaks(s3), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			for _, node := range []string{"worker-0", "cp-0", "cp-1"} {
				t.tell(node, history.KindRead, "what", "etcd")
			}
			t.tell("", history.KindRead, "what", "nodes")
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S3: the Node objects were not looked at", want: breaks(s3), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			for _, node := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
				t.tell(node, history.KindRead, "what", "etcd")
			}
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S3: looked at before the node before had booted", want: breaks(s3), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.look()
			t.comeBack("worker-0", after)
			t.rpc("worker-1", rpcInstall, "OK")

			return t
		}},
		{name: "S3: asking whether an installer runs disturbs nothing", tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.rpc("worker-0", rpcInstall, "InvalidArgument")

			return t
		}},
		{name: "S10: a worker is cordoned while another is", want: breaks(s10), tale: func() *tale {
			t := held()
			t.cordon("worker-1", true, "other")
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S10: a worker is cordoned before the one before is ready", want: breaks(s10), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.cordon("worker-0", true, "client")
			t.goDown("worker-0")
			t.boot("worker-0", after, runsOn, "upgrade")
			t.cordon("worker-0", false, "client")
			t.cordon("worker-1", true, "client")

			return t
		}},
		{name: "S10: a worker is rebooted without a cordon beside one that is not ready", want: breaks(s10), tale: func() *tale {
			t := held()
			t.ready("worker-1", false, runsOn)
			t.wait(120)
			t.put("worker-0", after)
			t.goDown("worker-0")

			return t
		}},
		{name: "S10: a worker that is unavailable anyway costs nothing", tale: func() *tale {
			t := held()
			t.cordon("worker-1", true, "other")
			t.ready("worker-0", false, runsOn)
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S10: what nobody can know yet is no offence", tale: func() *tale {
			t := held()
			t.ready("worker-1", false, runsOn)
			t.cordon("worker-0", true, "client")

			return t
		}},
	}
}

// workloadJudgements are about cordons and pods.
func workloadJudgements() []judgement {
	evict := func(t *tale, outcome, budget string) {
		t.tell("worker-0", history.KindEvict, "namespace", "default", "pod", "web", "outcome", outcome, "budget", budget, "by", "client")
	}
	deletes := func(t *tale, budget, by string) {
		t.tell("worker-0", history.KindDelete, "namespace", "default", "pod", "web", "budget", budget, "by", by)
	}
	patience := checker.DrainDelete(5 * time.Minute)

	return []judgement{
		{name: "S9: a person's cordon is lifted", want: breaks(s9), tale: func() *tale {
			t := held()
			t.cordon("worker-0", true, "other")
			t.cordon("worker-0", false, "client")

			return t
		}},
		{name: "S9: a machine lifts a person's cordon", want: breaks(s9), tale: func() *tale {
			t := held()
			t.cordon("worker-0", true, "other")
			t.cordon("worker-0", false, "machine")

			return t
		}},
		{name: "S9: people may lift what they like", tale: func() *tale {
			t := held()
			t.cordon("worker-0", true, "client")
			t.cordon("worker-0", false, "other")
			t.cordon("worker-0", true, "other")
			t.cordon("worker-0", false, "other")

			return t
		}},
		{name: "S11: a pod is deleted against its budget", want: breaks(s11), tale: func() *tale {
			t := held()
			evict(t, "blocked", "default/web")
			t.wait(400)
			deletes(t, "default/web", "client")

			return t
		}},
		{name: "S11: deleted before the drain timed out", want: breaks(s11), options: []checker.Option{patience}, tale: func() *tale {
			t := held()
			evict(t, "blocked", "default/web")
			t.wait(200)
			deletes(t, "default/web", "client")

			return t
		}},
		{name: "S11: deleted without trying to evict", want: breaks(s11), options: []checker.Option{patience}, tale: func() *tale {
			t := held()
			deletes(t, "default/web", "client")

			return t
		}},
		{name: "S11: evicted although the budget had nothing to give", want: breaks(s11), tale: func() *tale {
			t := held()
			evict(t, "evicted", "default/web")

			return t
		}},
		{name: "S11: deleted after the timeout as the policy says", options: []checker.Option{patience}, tale: func() *tale {
			t := held()
			evict(t, "blocked", "default/web")
			t.wait(400)
			deletes(t, "default/web", "client")

			return t
		}},
		{name: "S11: pods with budgets that give, and pods of others", tale: func() *tale {
			t := held()
			evict(t, "evicted", "")
			deletes(t, "", "client")
			deletes(t, "default/web", "other")

			return t
		}},
	}
}
