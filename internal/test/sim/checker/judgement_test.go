// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func breaks(invariants ...checker.Invariant) []checker.Invariant { return invariants }

// machineJudgements are about which machines go down when.
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
		{name: "S10: a worker that was deleted on its way counts for the run that sent it there", want: breaks(s10), tale: departing("run-1")},
		{name: "S10: a worker that was deleted on its way does not count for the next run", tale: departing("run-2")},
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

// beginningJudgements are about when a step may begin.
func beginningJudgements() []judgement {
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	window := func(from, to time.Duration) []checker.Option {
		return []checker.Option{checker.Window(began, checker.Opening{From: began.Add(from), To: began.Add(to)})}
	}
	first := []checker.Option{checker.SnapshotFirst()}
	snapped := func(whole string) func() *tale {
		return func() *tale {
			t := held()
			t.tell("cp-0", history.KindSnapshot, "bytes", "4194336", "whole", whole)
			t.turn("worker-0", after)

			return t
		}
	}
	turn := func() *tale {
		t := held()
		t.turn("worker-0", after)

		return t
	}
	configured := func(what string) func() *tale {
		return func() *tale {
			t := held()
			t.look()
			t.configure("cp-0", what, "client")

			return t
		}
	}

	return []judgement{
		{name: "S13: a turn in the window", options: window(0, time.Hour), tale: turn},
		{name: "S13: a turn before the window", want: breaks(s13), options: window(time.Hour, 2*time.Hour), tale: turn},
		{name: "S13: a turn that began in the window ends after it", options: window(0, 15*time.Second), tale: func() *tale {
			t := held()
			t.look()
			t.cordon("worker-0", true, "client")
			t.wait(600)
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.comeBack("worker-0", after)
			t.cordon("worker-0", false, "client")

			return t
		}},
		{name: "S13: the next turn begins after the window", want: breaks(s13), options: window(0, time.Minute), tale: func() *tale {
			t := turn()
			t.wait(600)
			t.turn("worker-1", after)

			return t
		}},
		{name: "S13: in another window", options: []checker.Option{checker.Window(began,
			checker.Opening{From: began, To: began.Add(time.Minute)}, checker.Opening{From: began.Add(10 * time.Minute), To: began.Add(time.Hour)},
		)}, tale: func() *tale {
			t := turn()
			t.wait(600)
			t.turn("worker-1", after)

			return t
		}},
		{name: "S13: an install without a cordon outside the window", want: breaks(s13), options: window(time.Hour, 2*time.Hour), tale: func() *tale {
			t := held()
			t.put("worker-0", after)

			return t
		}},
		{name: "S13: what an earlier run left is finished", options: window(0, 20*time.Second), tale: func() *tale {
			t := held()
			t.put("cp-0", after)
			t.wait(600)
			t.cordon("cp-0", true, "client")
			t.goDown("cp-0")

			return t
		}},
		{name: "S13: a component outside the window", want: breaks(s13), options: window(time.Hour, 2*time.Hour), tale: configured(apiServer)},
		{name: "S13: another image to install from outside the window", options: window(time.Hour, 2*time.Hour), tale: configured("installer")},
		{name: "S13: what others do outside the window", options: window(time.Hour, 2*time.Hour), tale: func() *tale {
			t := held()
			t.cordon("worker-0", true, "other")
			t.cordon("worker-1", true, "machine")

			return t
		}},
		{name: "S14: a turn without a snapshot", want: breaks(s14), options: first, tale: turn},
		{name: "S14: a turn after a snapshot", options: first, tale: snapped("true")},
		{name: "S14: a turn after half a snapshot", want: breaks(s14), options: first, tale: snapped("false")},
		{name: "S14: a component without a snapshot", want: breaks(s14), options: first, tale: configured(apiServer)},
		{name: "S14: a snapshot is nobody's wish", tale: turn},
		{name: "S7: the journal remembers a snapshot of somebody else's run", want: breaks(s7), tale: func() *tale {
			t := held()
			t.tell("", history.KindJournal, "key", "etcd-snapshot", "phase", "", "run", "run-2", "client", "run-2", "value", `{"path":"/a"}`, "by", "client")

			return t
		}},
		{name: "S12: the record of a snapshot is forgotten without a lease", tale: func() *tale {
			t := begin(1, 0)
			t.tell("", history.KindJournal, "key", "etcd-snapshot", "phase", "", "run", "run-1", "value", "", "by", "client")

			return t
		}},
		{name: "S4, S8: the image to install from is no part of Kubernetes", tale: func() *tale {
			t := held()
			t.annotate("kubernetes-status", "completed")
			t.look()
			t.configure("cp-0", "installer", "client")
			t.configure("cp-1", "installer", "client")

			return t
		}},
	}
}

// claimJudgements are about annotations.
func claimJudgements() []judgement {
	return []judgement{
		{name: "S8: completed with nodes behind", want: breaks(s8), tale: func() *tale {
			t := held()
			t.turn("worker-0", after)
			t.annotate("talos-status", "completed")

			return t
		}},
		{name: "S8: completed before anything was begun", want: breaks(s8), tale: func() *tale {
			t := held()
			t.annotate("talos-status", "completed")
			t.turn("worker-0", after)

			return t
		}},
		{name: "S8: one node too many", want: breaks(s8), tale: func() *tale {
			t := held()
			t.turn("worker-0", after)
			t.annotate("talos-progress", "2/5")

			return t
		}},
		{name: "S8: all of fewer nodes than there are", want: breaks(s8), tale: func() *tale {
			t := held()
			t.turn("worker-0", after)
			t.annotate("talos-progress", "1/1")

			return t
		}},
		{name: "S8: progress that is none", want: breaks(s8), tale: func() *tale {
			t := held()
			t.annotate("talos-progress", "nearly")

			return t
		}},
		{name: "S8: a current version above the lowest", want: breaks(s8), tale: func() *tale {
			t := held()
			t.turn("worker-0", after)
			t.annotate("talos-current", after)

			return t
		}},
		{name: "S8: a node that is down still counts", want: breaks(s8), tale: func() *tale {
			t := begin(1, 1)
			t.acquire("run-1")
			t.turn("cp-0", after)
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.annotate("talos-current", after)

			return t
		}},
		{name: "S8: a node that is gone does not", tale: func() *tale {
			t := begin(1, 1)
			t.acquire("run-1")
			t.ready("worker-0", false, runsOn)
			t.down("worker-0", "fault")
			t.turn("cp-0", after)
			t.wait(2000)
			t.annotate("talos-current", after)
			t.annotate("talos-progress", "1/1")
			t.annotate("talos-status", "completed")

			return t
		}},
		{name: "S8: a node that has left does not", tale: func() *tale {
			t := begin(1, 1)
			t.acquire("run-1")
			t.down("worker-0", "client")
			t.tell("worker-0", history.KindWrite, "verb", "delete", "resource", "nodes", "name", "worker-0", "by", "other", "code", "200")
			t.turn("cp-0", after)
			t.annotate("talos-progress", "1/1")
			t.annotate("talos-status", "completed")

			return t
		}},
		{name: "S8: a run that goes on where another one ended", tale: func() *tale {
			t := roll()
			t.acquire("run-1 (again)")
			t.annotate("talos-progress", "0/5")
			t.annotate("talos-status", "in-progress")
			t.turn("worker-0", "1.13.5")
			t.annotate("talos-progress", "1/5")

			return t
		}},
	}
}

// lookJudgements are about observations of the Node objects by a watch: S3.
func lookJudgements() []judgement {
	// step installs on one worker, and then observes everything except the Node objects.
	step := func() *tale {
		t := begin(3, 2)
		t.acquire("run-1")
		t.put("worker-0", after)

		for _, node := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
			t.tell(node, history.KindRead, "what", "etcd")
		}

		return t
	}

	claim := func(t *tale, node, version string) {
		t.tell(node, history.KindWrite, "verb", "patch", "resource", "nodes", "name", node, "by", "client", "client", "run-1", "code", "200", "version", version)
	}

	deliver := func(t *tale, via, node, version string) {
		t.tell("", history.KindRead, "what", "nodes", "client", "run-1", "via", via, "object", node, "version", version)
	}

	down := func(t *tale) *tale {
		t.rpc("worker-0", rpcReboot, "OK")

		return t
	}

	told := func(events func(*tale)) func() *tale {
		return func() *tale {
			t := step()
			events(t)

			return down(t)
		}
	}

	return []judgement{
		{name: "S3: a watch delivered the claim", tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: a watch delivered what came after the claim", tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-1", "101")
		})},
		{name: "S3: a list of a cache contains the claim", tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "cache", "", "100")
		})},
		{name: "S3: the claim was not delivered", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
		})},
		{name: "S3: a watch delivered what is older than the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-1", "99")
		})},
		{name: "S3: another node says nothing of the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-0", "99")
			deliver(t, "watch", "worker-0", "101")
		})},
		{name: "S3: a bookmark says nothing of the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "bookmark", "", "101")
		})},
		{name: "S3: a list of a cache is older than the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "cache", "", "99")
		})},
		{name: "S3: the claim of somebody else", want: breaks(s3), tale: told(func(t *tale) {
			t.tell("worker-1", history.KindWrite, "verb", "patch", "resource", "nodes", "name", "worker-1", "by", "other", "client", "run-1", "code", "200", "version", "100")
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: the claim was refused", want: breaks(s3), tale: told(func(t *tale) {
			t.tell("worker-1", history.KindWrite, "verb", "patch", "resource", "nodes", "name", "worker-1", "by", "client", "client", "run-1", "code", "404", "version", "100")
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: events without a claim", want: breaks(s3), tale: told(func(t *tale) {
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: the claim counts, and not its delivery", want: breaks(s3), tale: func() *tale {
			t := begin(3, 2)
			t.acquire("run-1")
			t.look()
			claim(t, "worker-1", "100")
			t.put("worker-0", after)

			for _, node := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
				t.tell(node, history.KindRead, "what", "etcd")
			}

			deliver(t, "watch", "worker-1", "100")

			return down(t)
		}},
	}
}

// lateJudgements are about a request that a run left behind, and that takes effect while the next run's is under way: S3.
func lateJudgements() []judgement {
	// asked is a node that downloads the image of a legacy upgrade for run-2, and for run-1 before that.
	asked := func() *tale {
		t := begin(3, 2)
		t.acquire("run-1 (test)")
		t.look()
		t.cordon("worker-0", true, "client")
		t.journal("worker-0", "intent", after, "run-1")
		t.release()
		t.acquire("run-2 (test)")
		t.look()
		t.journal("worker-0", "intent", after, "run-2")

		return t
	}

	upgrade := func(t *tale, node, client, code string) {
		t.tell(node, history.KindRPC, "method", rpcLegacy, "role", "os:admin", "code", code, "mutating", "true", "client", client)
	}

	return []judgement{
		// The call of run-1 itself is S7.
		{name: "S3: the request of a run that died takes effect while the node downloads for the next", want: breaks(s7), tale: func() *tale {
			t := asked()
			upgrade(t, "worker-0", "run-1", "OK")
			upgrade(t, "worker-0", "run-2", "Unavailable")

			return t
		}},
		{name: "S3: it had taken effect before the next run asked", want: breaks(s3, s7), tale: func() *tale {
			t := asked()
			upgrade(t, "worker-0", "run-1", "OK")
			t.journal("worker-0", "intent", after, "run-2")
			upgrade(t, "worker-0", "run-2", "Unavailable")

			return t
		}},
		{name: "S3: it had taken effect before a configuration", want: breaks(s3, s7), tale: func() *tale {
			t := asked()
			upgrade(t, "worker-0", "run-1", "OK")
			t.configure("worker-0", kubelet, "client")

			return t
		}},
		{name: "S3: the run itself takes a step while the node downloads", want: breaks(s3), tale: func() *tale {
			t := asked()
			t.look()
			t.journal("cp-0", "intent", after, "run-2")
			t.install("cp-0", after, 0)
			t.rpc("cp-0", rpcInstall, "OK")
			upgrade(t, "worker-0", "run-2", "OK")

			return t
		}},
	}
}

// unheardJudgements are about calls whose answers were lost.
func unheardJudgements() []judgement {
	lost := func(wait float64) func() *tale {
		return func() *tale {
			t := held()
			t.put("cp-0", after)
			t.put("cp-1", after)
			t.look()
			t.rpc("cp-1", rpcReboot, "Unavailable")
			t.wait(wait)
			t.goDown("cp-0")

			return t
		}
	}

	return []judgement{
		{name: "S1: beside one that may be going down, as the answer got lost", want: breaks(s1, s2), tale: lost(600)},
		{name: "S1: beside one that was asked to and has not gone down", tale: lost(1000)},
		{name: "S12: a pull that was under way when the lease was lost, and given back by whoever took it", tale: func() *tale {
			t := held()
			t.acquire("run-2 (test)")
			t.release()
			t.rpc("worker-0", rpcPull, "OK")

			return t
		}},
		{name: "S12: a pull without there ever having been a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.rpc("worker-0", rpcPull, "OK")

			return t
		}},
		{name: "S2: the last voter is no learner", tale: func() *tale {
			t := begin(1, 1)
			t.acquire("run-1 (test)")
			t.fault("cp-0", "etcd", "learner")
			t.wait(5)
			t.look()
			t.cordon("worker-0", true, "client")

			return t
		}},
	}
}

// writerJudgements are about who may act.
func writerJudgements() []judgement {
	return []judgement{
		{name: "S7: somebody else has taken the lease", want: breaks(s7), tale: func() *tale {
			t := held()
			t.tell("", history.KindLease, "holder", "intruder", "action", "acquire", "by", "other")
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S7: another run of ours writes the journal", want: breaks(s7), tale: func() *tale {
			t := held()
			t.journal("worker-0", "intent", after, "run-2")

			return t
		}},
		{name: "S7: an intent in a journal that another run has put its name into", want: breaks(s7), tale: func() *tale {
			t := held()
			t.tell("", history.KindJournal, "key", "holder", "value", "run-1 (test)", "by", "client")
			t.tell("", history.KindJournal, "key", "holder", "value", "run-2 (test)", "by", "other")
			t.journal("worker-0", "intent", after, "run-1")

			return t
		}},
		{name: "S7: an intent in a journal with the own name", tale: func() *tale {
			t := held()
			t.tell("", history.KindJournal, "key", "holder", "value", "run-2 (test)", "by", "other")
			t.tell("", history.KindJournal, "key", "holder", "value", "run-1 (test)", "by", "client")
			t.journal("worker-0", "intent", after, "run-1")

			return t
		}},
		{name: "S12: a name in the journal without a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.tell("", history.KindJournal, "key", "holder", "value", "run-1 (test)", "by", "client")

			return t
		}},
		{name: "S7: a client that is known not to hold it", want: breaks(s7), tale: func() *tale {
			t := held()
			t.tell("worker-0", history.KindCordon, "unschedulable", "true", "by", "client", "client", "run-2")

			return t
		}},
		{name: "S7: a lease that was not renewed", want: breaks(s7), options: []checker.Option{checker.LeaseDuration(30 * time.Second)}, tale: func() *tale {
			t := held()
			t.wait(40)
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S7: the next run removes what the last one left", tale: func() *tale {
			t := held()
			t.journal("worker-0", "intent", after, "run-1")
			t.acquire("run-2 (test)")
			t.journal("worker-0", "", "", "run-1")

			return t
		}},
		{name: "S12: a call before there is a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.look()
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S12: a write after the release", want: breaks(s12), tale: func() *tale {
			t := held()
			t.release()
			t.journal("worker-0", "intent", after, "run-1")

			return t
		}},
		{name: "S12: an annotation by a plan", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.annotate("talos-status", "in-progress")

			return t
		}},
		{name: "S12: any other write by a plan", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.tell("", history.KindWrite, "verb", "create", "resource", "configmaps", "namespace", "kube-system",
				"name", "talosupgrade-journal", "by", "client", "code", "201")

			return t
		}},
		{name: "S12: an open entry is forgotten", want: breaks(s12), tale: func() *tale {
			t := held()
			t.journal("worker-0", "installed", after, "run-1")
			t.release()
			t.journal("worker-0", "", "", "run-1")

			return t
		}},
		{name: "S12: reads, refusals and the work of others", tale: func() *tale {
			t := begin(3, 2)
			t.look()
			t.rpc("worker-0", rpcReboot, "PermissionDenied")
			t.rpc("worker-0", rpcInstall, "InvalidArgument")
			t.tell("worker-0", history.KindRPC, "method", "/machine.MachineService/Version", "code", "OK", "mutating", "false")
			t.tell("worker-0", history.KindEvict, "namespace", "a", "pod", "b", "outcome", "dry-run", "by", "client")
			t.tell("", history.KindWrite, "verb", "create", "resource", "leases", "namespace", "kube-system",
				"name", "talosupgrade", "by", "client", "code", "409")
			t.tell("", history.KindWrite, "verb", "update", "resource", "nodes", "name", "worker-0", "by", "other", "code", "200")
			t.cordon("worker-0", true, "other")

			return t
		}},
		{name: "S12: a destroy takes away what is left of us", tale: func() *tale {
			t := held()
			t.annotate("talos-status", "in-progress")
			t.journal("worker-0", "fallback", after, "run-1")
			t.release()
			t.annotate("talos-status", "")
			t.journal("worker-0", "", "", "run-1")
			t.tell("", history.KindWrite, "verb", "delete", "resource", "configmaps", "namespace", "kube-system",
				"name", "talosupgrade-journal", "by", "client", "code", "200")

			return t
		}},
	}
}

// six returns a tale of three control planes and six workers, with our lease held.
func six() *tale {
	t := begin(3, 6)
	t.acquire("run-1 (test)")

	return t
}

// budgetJudgements are about how many workers may be unavailable.
func budgetJudgements() []judgement {
	three := []checker.Option{checker.MaxUnavailable(3)}
	// underway takes a worker down while another one, which is no longer cordoned, is installed for the intent of
	// a run.
	underway := func(run string) *tale {
		t := begin(3, 6)
		t.acquire(run + " (test)")
		t.look()
		t.cordon("worker-0", true, "client")
		t.journal("worker-0", "intent", after, run)
		t.acquire("run-1 (test)")
		t.cordon("worker-1", true, "client")
		t.put("worker-1", after)
		t.cordon("worker-0", false, "other")
		t.look()
		t.rpc("worker-1", rpcReboot, "OK")
		t.install("worker-0", after, 0)
		t.rpc("worker-0", rpcInstall, "OK")

		return t
	}
	cordoned := func(count int) func() *tale {
		return func() *tale {
			t := six()
			for index := range count {
				t.cordon(t.names[3+index], true, "client")
			}

			return t
		}
	}
	mixed := func() *tale {
		t := six()
		t.ready("worker-5", false, runsOn)
		t.wait(120)
		t.cordon("worker-4", true, "other")
		t.cordon("worker-0", true, "client")

		return t
	}

	pulled := func(outcomes ...string) func() *tale {
		return func() *tale {
			t := six()
			for _, ok := range outcomes {
				t.tell("worker-0", history.KindPull, "image", "ghcr.io/siderolabs/installer:v1.13.4", "ok", ok)
			}

			t.tell("worker-0", history.KindPull, "image", "ghcr.io/siderolabs/kubelet:v1.35.2", "ok", "false")
			t.tell("worker-1", history.KindPull, "image", "ghcr.io/siderolabs/installer:v1.13.4", "ok", "false")
			t.cordon("worker-0", true, "client")

			return t
		}
	}

	return []judgement{
		{name: "S10: cordoned with its image", tale: pulled("true")},
		{name: "S10: cordoned with an image that came at last", tale: pulled("false", "true")},
		{name: "S10: cordoned without its image", want: breaks(s10), tale: pulled("true", "false")},
		{name: "S10: another run than the one that could not pull", tale: func() *tale {
			t := six()
			t.tell("worker-0", history.KindPull, "image", "ghcr.io/siderolabs/installer:v1.13.4", "ok", "false")
			t.release()
			t.acquire("run-2 (test)")
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S10: three of three", options: three, tale: cordoned(3)},
		{name: "S10: four of three", want: breaks(s10), options: three, tale: cordoned(4)},
		{name: "S10: what others did counts, up to the border", options: three, tale: mixed},
		{name: "S10: what others did counts, beyond the border", want: breaks(s10), options: three, tale: func() *tale {
			t := mixed()
			t.cordon("worker-1", true, "client")

			return t
		}},
		{name: "S10: a slot is used again when its node is back", options: []checker.Option{checker.MaxUnavailable(2)}, tale: overlapping},
		{name: "S10: turns overlap although they may not", want: breaks(s10), tale: overlapping},
		{name: "S10: others used up the slots behind the cordon", want: breaks(s10), options: []checker.Option{checker.MaxUnavailable(2)}, tale: func() *tale {
			t := six()
			t.look()
			t.cordon("worker-0", true, "client")
			t.cordon("worker-1", true, "other")
			t.cordon("worker-2", true, "other")
			t.put("worker-0", after)

			return t
		}},
		{name: "S10: a later turn gives way to an earlier one", options: []checker.Option{checker.MaxUnavailable(2)}, tale: func() *tale {
			t := six()
			t.look()
			t.cordon("worker-0", true, "client")
			t.cordon("worker-1", true, "client")
			t.cordon("worker-2", true, "other")
			t.put("worker-0", after)

			return t
		}},
		{name: "S10: a number below one means one", options: []checker.Option{checker.MaxUnavailable(0)}, tale: roll},
		{name: "S3: a worker is taken down on what was seen before another one began", want: breaks(s3), options: three, tale: func() *tale {
			t := six()
			t.put("worker-1", after)
			t.look()
			t.rpc("worker-1", rpcReboot, "OK")
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "an install that was under way when a person deleted the Node and another worker was taken down", options: three, tale: func() *tale {
			return underway("run-1")
		}},
		{name: "S3: an install for which an earlier run wrote the intent", want: breaks(s3), options: three, tale: func() *tale {
			return underway("run-0")
		}},
		{name: "S3: a control plane is taken down on what was seen before a worker was", want: breaks(s3), options: three, tale: func() *tale {
			t := six()
			t.put("worker-1", after)
			t.put("cp-0", after)
			t.cordon("cp-0", true, "client")
			t.look()
			t.rpc("worker-1", rpcReboot, "OK")
			t.rpc("cp-0", rpcReboot, "OK")

			return t
		}},
	}
}

// overlapping is a roll of workers: the second one is cordoned, observed and installed while the first one goes
// down and comes back, and a third one is cordoned as soon as the first is done.
func overlapping() *tale {
	t := six()
	t.look()
	t.cordon("worker-0", true, "client")
	t.look()
	t.cordon("worker-1", true, "client")
	t.put("worker-0", after)
	t.look()
	t.journal("worker-1", "intent", after, "run-1")
	t.goDown("worker-0")
	t.install("worker-1", after, 0)
	t.comeBack("worker-0", after)
	t.rpc("worker-1", rpcInstall, "OK")
	t.cordon("worker-0", false, "client")
	t.look()
	t.cordon("worker-2", true, "client")
	t.goDown("worker-1")
	t.comeBack("worker-1", after)
	t.cordon("worker-1", false, "client")

	return t
}

// holdJudgements are about nodes that are held.
func holdJudgements() []judgement {
	options := []checker.Option{checker.Held("worker-1")}
	on := func(do func(*tale)) func() *tale {
		return func() *tale {
			t := held()
			do(t)

			return t
		}
	}

	return []judgement{
		{name: "held: the others move", options: options, tale: func() *tale {
			t := held()
			t.annotate("talos-current", before)

			for _, node := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
				t.rpc("worker-1", rpcPull, "OK")
				t.turn(node, after)
			}

			t.annotate("talos-current", after)
			t.annotate("talos-progress", "4/4")
			t.annotate("talos-status", "completed")

			return t
		}},
		{name: "held: completion is claimed without saying so", want: breaks(s8), tale: func() *tale {
			t := held()
			for _, node := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
				t.turn(node, after)
			}

			t.annotate("talos-status", "completed")

			return t
		}},
		{name: "S4: a held node is cordoned", want: breaks(s4), options: options, tale: on(func(t *tale) { t.cordon("worker-1", true, "client") })},
		{name: "S4: a held node is drained", want: breaks(s4), options: options, tale: on(func(t *tale) {
			t.tell("worker-1", history.KindEvict, "namespace", "a", "pod", "b", "outcome", "evicted", "by", "client")
		})},
		{name: "S4: a held node is installed", want: breaks(s4), options: options, tale: on(func(t *tale) { t.put("worker-1", after) })},
		{name: "S4: a held node is rebooted", want: breaks(s4), options: options, tale: on(func(t *tale) { t.goDown("worker-1") })},
		{name: "held: somebody else may do as they like", options: options, tale: on(func(t *tale) {
			t.cordon("worker-1", true, "other")
			t.tell("worker-1", history.KindEvict, "namespace", "a", "pod", "b", "outcome", "evicted", "by", "other")
			t.tell("worker-1", history.KindEvict, "namespace", "a", "pod", "b", "outcome", "dry-run", "by", "client")
			t.cordon("worker-1", false, "other")
		})},
		{name: "S10: a held node counts when it is unavailable", want: breaks(s10), options: options, tale: on(func(t *tale) {
			t.cordon("worker-1", true, "other")
			t.cordon("worker-0", true, "client")
		})},
	}
}

// settleJudgements are about nodes that have to stay healthy for a time before the next one.
func settleJudgements() []judgement {
	options := []checker.Option{checker.Settle(2 * time.Minute)}
	moved := func(do func(*tale)) func() *tale {
		return func() *tale {
			t := held()
			t.turn("worker-1", after)
			do(t)

			return t
		}
	}

	return []judgement{
		{name: "settle: it was healthy for long enough", options: options, tale: moved(func(t *tale) {
			t.wait(120)
			t.turn("worker-0", after)
		})},
		{name: "S10: another node is cordoned too early", want: breaks(s10), options: options, tale: moved(func(t *tale) {
			t.wait(60)
			t.turn("worker-0", after)
		})},
		{name: "S10: another node is cordoned too early, although nobody looked", want: breaks(s10), options: options, tale: moved(func(t *tale) {
			t.wait(200)
			t.ready("worker-1", false, runsOn)
			t.wait(20)
			t.ready("worker-1", true, runsOn)
			t.wait(60)
			t.turn("worker-0", after)
		})},
		{
			name: "S10: another node is installed while it is not Ready", want: breaks(s10),
			options: append(options, checker.MaxUnavailable(2)), tale: moved(func(t *tale) {
				t.wait(120)
				t.cordon("worker-0", true, "client")
				t.ready("worker-1", false, runsOn)
				t.put("worker-0", after)
			}),
		},
	}
}

// canaryJudgements are about nodes that have to be upgraded first.
func canaryJudgements() []judgement {
	options := []checker.Option{checker.Canary("worker-1"), checker.MaxUnavailable(2)}
	left := func(do func(*tale)) func() *tale {
		return func() *tale {
			t := held()
			t.turn("worker-1", after)
			t.wait(60)
			do(t)

			return t
		}
	}

	return []judgement{
		{name: "canary: first, and the rest after it", options: options, tale: func() *tale {
			t := held()
			for _, node := range []string{"worker-1", "worker-0", "cp-0"} {
				t.turn(node, after)
			}

			return t
		}},
		{name: "canary: one that runs the target already", options: options, tale: func() *tale {
			t := held()
			t.turn("worker-1", after)
			t.release()
			t.acquire("run-1 (again)")
			t.turn("worker-0", after)

			return t
		}},
		{name: "canary: what an earlier run has armed boots before it", options: options, tale: func() *tale {
			t := held()
			t.cordon("worker-0", true, "client")
			t.install("worker-0", after, 0)
			t.goDown("worker-0")
			t.comeBack("worker-0", after)
			t.cordon("worker-0", false, "client")
			t.turn("worker-1", after)

			return t
		}},
		{name: "S10: another node is installed before the canary", want: breaks(s10), options: options, tale: func() *tale {
			t := held()
			t.put("worker-0", after)

			return t
		}},
		{name: "S10: another node is cordoned while the canary is on its way", want: breaks(s10), options: options, tale: func() *tale {
			t := held()
			t.put("worker-1", after)
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S10: another node is cordoned before the canary is back", want: breaks(s10), options: options, tale: func() *tale {
			t := held()
			t.put("worker-1", after)
			t.goDown("worker-1")
			t.boot("worker-1", after, runsOn, "upgrade")
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S10: another node is cordoned before the canary is uncordoned", want: breaks(s10), options: options, tale: func() *tale {
			t := held()
			t.cordon("worker-1", true, "client")
			t.put("worker-1", after)
			t.goDown("worker-1")
			t.comeBack("worker-1", after)
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S10: another node is cordoned although the canary is not Ready any more", want: breaks(s10), options: options, tale: left(func(t *tale) {
			t.ready("worker-1", false, runsOn)
			t.look()
			t.cordon("worker-0", true, "client")
		})},
		{name: "S10: another node is installed although somebody cordoned the canary", want: breaks(s10), options: options, tale: left(func(t *tale) {
			t.cordon("worker-0", true, "client")
			t.cordon("worker-1", true, "other")
			t.put("worker-0", after)
		})},
		{name: "canary: nobody could know yet that it left", options: options, tale: left(func(t *tale) {
			t.look()
			t.ready("worker-1", false, runsOn)
			t.cordon("worker-0", true, "client")
		})},
		{name: "canary: it leaves while an installer runs", options: options, tale: left(func(t *tale) {
			t.cordon("worker-0", true, "client")
			t.look()
			t.journal("worker-0", "intent", after, "run-1")
			t.ready("worker-1", false, runsOn)
			t.install("worker-0", after, 0)
			t.look()
			t.rpc("worker-0", rpcInstall, "OK")
			t.goDown("worker-0")
		})},
		{name: "S10: the canary is first in the first hop only", want: breaks(s10), options: options, tale: func() *tale {
			t := beginOn(3, 2, "1.12.6", runsOn)
			t.acquire("run-1 (test)")
			t.turn("worker-1", before)
			t.turn("worker-0", before)
			t.put("worker-0", "1.14.1")

			return t
		}},
	}
}

// departing is a worker that is deleted while it is being upgraded, and another one that a run cordons after that.
func departing(run string) func() *tale {
	return func() *tale {
		t := held()
		t.look()
		t.cordon("worker-0", true, "client")
		t.put("worker-0", after)
		t.goDown("worker-0")
		t.tell("worker-0", history.KindLabel, "labels", "", "object", "none")

		if run != "run-1" {
			t.release()
			t.acquire(run)
		}

		t.wait(600)
		t.look()
		t.cordon("worker-1", true, "client")

		return t
	}
}
