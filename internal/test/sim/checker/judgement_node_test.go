// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"slices"
	"strings"
	"testing"
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

// troubled is a cluster with an etcd fault that every client has observed.
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

// neighbourJudgements are about the control planes other than the one that is disturbed.
func neighbourJudgements() []judgement {
	unready := func(wait float64, node string) func() *tale {
		return func() *tale {
			t := held()
			t.ready("cp-1", false, runsOn)
			t.wait(wait)
			t.look()
			t.cordon(node, true, "client")

			return t
		}
	}
	foreign := func(node string) func() *tale {
		return func() *tale {
			t := held()
			t.tell("cp-1", history.KindStage, "from", "running", "to", "upgrading", "ready", "true", "by", "other")
			t.wait(5)
			t.look()
			t.cordon(node, true, "client")

			return t
		}
	}
	serverless := func() *tale {
		t := held()
		t.component("cp-1", apiServer, "a", runsOn, "failed")
		t.wait(60)
		t.look()
		t.cordon("cp-0", true, "client")

		return t
	}

	return []judgement{
		{name: "S1: beside a control plane that is not Ready", want: breaks(s1), tale: unready(120, "cp-0")},
		{name: "S1: the one that is not Ready itself", tale: unready(120, "cp-1")},
		{name: "S1: a worker beside a control plane that is not Ready", tale: unready(120, "worker-0")},
		{name: "S1: beside one of which nobody can know yet", tale: unready(10, "cp-0")},
		{name: "S1: beside one that was Ready when somebody last looked", tale: func() *tale {
			t := held()
			t.look()
			t.ready("cp-1", false, runsOn)
			t.wait(120)
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S1: beside an API server that is down", want: breaks(s1), tale: serverless},
		{name: "S1: beside an API server that may be down", options: []checker.Option{checker.Skips("control-plane-components")}, tale: serverless},
		{name: "S1: beside a control plane that somebody else upgrades", want: breaks(s1), tale: foreign("cp-0")},
		{name: "S1: a worker beside a control plane that somebody else upgrades", tale: foreign("worker-0")},
		{name: "S1: what others do may be skipped", options: []checker.Option{checker.Skips("external-changes")}, tale: foreign("cp-0")},
		{name: "S1: somebody else is done", tale: func() *tale {
			t := held()
			t.tell("cp-1", history.KindStage, "from", "running", "to", "rebooting", "ready", "true", "by", "other")
			t.tell("cp-1", history.KindDown, "by", "other")
			t.comeBack("cp-1", before)
			t.look()
			t.cordon("cp-0", true, "client")

			return t
		}},
		{name: "S4, S5: what somebody else installs is for nobody to judge", tale: func() *tale {
			t := held()
			t.tell("cp-1", history.KindInstall, "talos", "1.12.0", "schematic", "", "slot", "B", "exit", "0", "by", "other")
			t.tell("cp-1", history.KindInstall, "talos", before, "schematic", "", "slot", "B", "exit", "0", "by", "other")

			return t
		}},
		{name: "S4: what somebody else installed is not overwritten", want: breaks(s4), tale: func() *tale {
			t := held()
			t.tell("cp-1", history.KindInstall, "talos", after, "schematic", "", "slot", "B", "exit", "0", "by", "other")
			t.put("cp-1", after)

			return t
		}},
	}
}

func TestChecker_ViolationsSayWhatWasWrong(t *testing.T) {
	judge := checker.New()

	told := troubled("cp-1", "lagging")
	told.cordon("cp-0", true, "client")

	for _, event := range told.events {
		judge.Add(event)
	}

	violations := judge.Violations()
	if len(violations) != 1 || violations[0].Node != "cp-0" || !strings.Contains(violations[0].What, "was cordoned although etcd on cp-1 lagged behind") {
		t.Errorf("got %+v", violations)
	}
}

// hopJudgements are about rolls through several minors.
func hopJudgements() []judgement {
	all := []string{"worker-0", "worker-1", "cp-0", "cp-1", "cp-2"}
	walk := func() *tale {
		t := beginOn(3, 2, "1.11.5", runsOn)
		t.acquire("run-1 (test)")
		t.annotate("talos-current", "1.11.5")
		t.annotate("talos-progress", "0/5")

		for _, hop := range []string{"1.12.9", after} {
			for _, node := range all {
				t.turn(node, hop)
			}
		}

		return t
	}

	return []judgement{
		{name: "hops: two minors, one after the other", options: []checker.Option{checker.Canary("worker-0")}, tale: func() *tale {
			t := walk()
			t.annotate("talos-progress", "5/5")
			t.annotate("talos-current", after)
			t.annotate("talos-status", "completed")

			return t
		}},
		{name: "hops: a node that is ahead already", tale: func() *tale {
			t := beginOn(3, 2, "1.11.5", runsOn)
			t.events[slices.Index(t.names, "worker-1")].Detail["talos"] = after
			t.acquire("run-1 (test)")
			t.turn("worker-0", "1.12.9")
			t.annotate("talos-progress", "1/5")

			return t
		}},
		{name: "S4: a node that has done its hop is rebooted", want: breaks(s4), tale: func() *tale {
			t := walk()
			t.goDown("worker-0")

			return t
		}},
		{name: "S4: a node between two hops is rebooted", want: breaks(s4), tale: func() *tale {
			t := beginOn(3, 2, "1.11.5", runsOn)
			t.acquire("run-1 (test)")

			for _, node := range all {
				t.turn(node, "1.12.9")
			}

			t.turn("worker-0", after)
			t.goDown("worker-1")

			return t
		}},
		{name: "S5: a minor is left out", want: breaks(s5), tale: func() *tale {
			t := beginOn(3, 2, "1.11.5", runsOn)
			t.acquire("run-1 (test)")
			t.turn("worker-0", "1.12.9")
			t.turn("worker-1", after)

			return t
		}},
		{name: "S8: the end of the first hop is taken for the end", want: breaks(s8), tale: func() *tale {
			t := beginOn(3, 2, "1.11.5", runsOn)
			t.acquire("run-1 (test)")

			for _, node := range all {
				t.turn(node, "1.12.9")
			}

			t.annotate("talos-status", "completed")
			t.turn("worker-0", after)

			return t
		}},
		{name: "S8: progress in the first hop is claimed for the whole way", want: breaks(s8), tale: func() *tale {
			t := beginOn(3, 2, "1.11.5", runsOn)
			t.acquire("run-1 (test)")

			for _, node := range all {
				t.turn(node, "1.12.9")
			}

			t.annotate("talos-progress", "3/5")
			t.turn("worker-0", after)

			return t
		}},
	}
}

const rpcRollback = "/machine.MachineService/Rollback"

// sick upgrades a node to a new system that does not become healthy.
func sick(node string) *tale {
	t := held()
	t.look()
	t.cordon(node, true, "client")
	t.put(node, after)
	t.journal(node, "rebooting", after, "run-1")
	t.goDown(node)
	t.boot(node, after, t.kubelet, "upgrade")
	t.stage(node, "booting", "running")
	t.wait(600)

	return t
}

// sendBack calls the rollback of a node.
func (t *tale) sendBack(node, code string) {
	t.look()
	t.rpc(node, rpcRollback, code)
}

// returns is the reboot that follows.
func (t *tale) returns(node, talos, cause string) {
	t.stage(node, "running", "rebooting")
	t.down(node, "client")
	t.boot(node, talos, t.kubelet, cause)

	if node[0] == 'c' {
		t.etcd(node, "healthy")
	}

	t.stage(node, "booting", "running")
	t.ready(node, true, t.kubelet)
}

// rollback is a whole rollback without a violation.
func (t *tale) rollback(node string) {
	t.journal(node, "rolling-back", after, "run-1")
	t.sendBack(node, "OK")
	t.returns(node, before, "rollback")
	t.cordon(node, false, "client")
	t.journal(node, "rolled-back", after, "run-1")
}

// rollbackJudgements are about nodes that are rolled back.
func rollbackJudgements() []judgement {
	return []judgement{
		{name: "S5: a rollback that the journal knows of", tale: func() *tale {
			t := sick("cp-1")
			t.rollback("cp-1")
			t.turn("worker-0", after)

			return t
		}},
		{name: "S5: a rollback that the journal does not know of", want: breaks(s5), tale: func() *tale {
			t := sick("cp-1")
			t.sendBack("cp-1", "OK")
			t.returns("cp-1", before, "rollback")

			return t
		}},
		{name: "S5: a rollback of which the journal says that it is over", want: breaks(s5), tale: func() *tale {
			t := sick("cp-1")
			t.journal("cp-1", "rolling-back", after, "run-1")
			t.journal("cp-1", "rolled-back", after, "run-1")
			t.sendBack("cp-1", "OK")
			t.returns("cp-1", before, "rollback")

			return t
		}},
		{name: "S5: the journal knows of a rollback of another node", want: breaks(s5), tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-1", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "OK")
			t.returns("worker-0", before, "rollback")

			return t
		}},
		{name: "S5: a rollback of what nobody installed", want: breaks(s5), tale: func() *tale {
			t := held()
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "OK")
			t.returns("worker-0", "1.13.1", "rollback")

			return t
		}},
		{name: "S5: two rollbacks after one install", want: breaks(s5), tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "OK")
			t.returns("worker-0", before, "rollback")
			t.sendBack("worker-0", "OK")
			t.returns("worker-0", after, "rollback")
			t.sendBack("worker-0", "OK")
			t.returns("worker-0", before, "rollback")

			return t
		}},
		{name: "S5: a rollback after each of two installs", tale: func() *tale {
			t := sick("worker-0")
			t.rollback("worker-0")
			t.look()
			t.cordon("worker-0", true, "client")
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.boot("worker-0", after, t.kubelet, "upgrade")
			t.stage("worker-0", "booting", "running")
			t.rollback("worker-0")

			return t
		}},
		{name: "S5: the old system boots behind a reply that was lost", tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "Unavailable")
			t.returns("worker-0", before, "rollback")

			return t
		}},
		{name: "S4: a second rollback in one boot", want: breaks(s4), tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "OK")
			t.sendBack("worker-0", "OK")

			return t
		}},
		{name: "S4: a second rollback although the first one may have taken effect", want: breaks(s4), tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "Unavailable")
			t.sendBack("worker-0", "OK")

			return t
		}},
		{name: "S4: a second rollback after one that was refused", tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "FailedPrecondition")
			t.sendBack("worker-0", "OK")
			t.returns("worker-0", before, "rollback")

			return t
		}},
		{name: "S4: a reboot that shows what came of a rollback", tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "Unavailable")
			t.look()
			t.rpc("worker-0", rpcReboot, "OK")
			t.returns("worker-0", before, "rollback")

			return t
		}},
		{name: "S4: a rollback that did not take is tried again in the next boot", tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "Unavailable")
			t.look()
			t.rpc("worker-0", rpcReboot, "OK")
			t.returns("worker-0", after, "reboot")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.sendBack("worker-0", "OK")
			t.returns("worker-0", before, "rollback")

			return t
		}},
		{name: "S4: a reboot of a sick node that the journal does not send back", want: breaks(s4), tale: func() *tale {
			t := sick("worker-0")
			t.look()
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S4: an install of what was rolled back needs no boot in between", tale: func() *tale {
			t := sick("worker-0")
			t.rollback("worker-0")
			t.turn("worker-0", after)

			return t
		}},
		{name: "S12: an entry of what was rolled back is no unfinished work", tale: func() *tale {
			t := sick("worker-0")
			t.rollback("worker-0")
			t.release()
			t.journal("worker-0", "", "", "")

			return t
		}},
		{name: "S12: an entry of what is rolled back is", want: breaks(s12), tale: func() *tale {
			t := sick("worker-0")
			t.journal("worker-0", "rolling-back", after, "run-1")
			t.release()
			t.journal("worker-0", "", "", "")

			return t
		}},
	}
}

// rollbackHazardJudgements are about what prevents a rollback of a node; what is wrong with the node itself does
// not.
func rollbackHazardJudgements() []judgement {
	// ill has a member of etcd in trouble, and then disturbs cp-1 with a call.
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

// rollbackClaimJudgements are about what annotations say about rollbacks.
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

// withoutExtension returns a tale of a node with the extensions iscsi and tools that boots what was installed, with
// the given extensions and schematic.
func withoutExtension(extensions, schematic string) *tale {
	t := begin(3, 2)
	for _, event := range t.events {
		if event.Node == "worker-0" && event.Kind == history.KindNode {
			event.Detail["extensions"] = "iscsi,tools"
		}
	}

	t.acquire("run-1 (test)")
	t.cordon("worker-0", true, "client")
	t.put("worker-0", after)
	t.goDown("worker-0")
	t.bootWith("worker-0", after, extensions, schematic, "upgrade")

	return t
}

func returnsWithout(extensions, schematic string) func() *tale {
	return func() *tale {
		t := withoutExtension(extensions, schematic)
		t.ready("worker-0", true, t.kubelet)
		t.cordon("worker-0", false, "client")

		return t
	}
}

// versionJudgements are about what is installed and what runs.
func versionJudgements() []judgement {
	return []judgement{
		{name: "S5: another platform", want: breaks(s5), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.bootOn("worker-0", after, "metal", "upgrade")

			return t
		}},
		{name: "S5: the system of the old platform comes back by itself", want: breaks(s5), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.bootOn("worker-0", after, "metal", "upgrade")
			t.bootOn("worker-0", before, "", "fallback")

			return t
		}},
		{name: "S5: another platform, which somebody else installed", tale: func() *tale {
			t := held()
			t.tell("worker-0", history.KindInstall, "talos", after, "schematic", "", "slot", "B", "exit", "0", "by", "other")
			t.down("worker-0", "other")
			t.bootOn("worker-0", after, "metal", "upgrade")

			return t
		}},
		{name: "S5: back in service without an extension", want: breaks(s5), tale: returnsWithout("tools", "")},
		{name: "S5: back in service with its extensions and another", tale: returnsWithout("agent,iscsi,tools", "")},
		{name: "S5: an extension that another schematic lacks", tale: returnsWithout("tools", strings.Repeat("a", 64))},
		{name: "S5: an extension that may be lost", options: []checker.Option{checker.Skips("schematic")}, tale: returnsWithout("tools", "")},
		{name: "S5: the extension returns with the old system", tale: func() *tale {
			t := withoutExtension("tools", "")
			t.bootWith("worker-0", before, "iscsi,tools", "", "fallback")
			t.ready("worker-0", true, t.kubelet)
			t.cordon("worker-0", false, "client")

			return t
		}},
		{name: "S4: two installs without a boot", want: breaks(s4), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.put("worker-0", after)

			return t
		}},
		{name: "S4: an install after one that failed", want: breaks(s4), tale: func() *tale {
			t := held()
			t.install("worker-0", after, 1)
			t.install("worker-0", after, 0)

			return t
		}},
		{name: "S4: an install after one of 1.14 that refused", tale: func() *tale {
			t := held()
			t.install("worker-0", "1.14.1", 4)
			t.install("worker-0", after, 0)

			return t
		}},
		{name: "S4: an install after one of 1.13 with such a code", want: breaks(s4), tale: func() *tale {
			t := held()
			t.install("worker-0", after, 4)
			t.install("worker-0", after, 0)

			return t
		}},
		{name: "S4: a reboot after an install that refused", want: breaks(s4), tale: func() *tale {
			t := held()
			t.install("worker-0", "1.14.1", 4)
			t.goDown("worker-0")

			return t
		}},
		{name: "S4: a reboot after an install that failed on the node, and another intent of its run", want: breaks(s4), tale: func() *tale {
			t := held()
			t.journal("worker-0", "intent", after, "run-1")
			t.rpc("worker-0", rpcInstall, "Internal")
			t.journal("worker-0", "intent", after, "run-1")
			t.goDown("worker-0")

			return t
		}},
		{name: "a reboot after an install that failed on the node, and an intent of another run", tale: func() *tale {
			t := held()
			t.journal("worker-0", "intent", after, "run-1")
			t.rpc("worker-0", rpcInstall, "Internal")
			t.journal("worker-0", "", "", "run-1")
			t.acquire("run-2 (test)")
			t.journal("worker-0", "intent", after, "run-2")
			t.goDown("worker-0")

			return t
		}},
		{name: "a reboot by a run that cannot know that the install of another one failed on the node", tale: func() *tale {
			t := held()
			t.journal("worker-0", "intent", after, "run-1")
			t.rpc("worker-0", rpcInstall, "Internal")
			t.acquire("run-2 (test)")
			t.goDown("worker-0")

			return t
		}},
		{name: "S4: a reboot after an install that failed on the node", want: breaks(s4), tale: func() *tale {
			t := held()
			t.rpc("worker-0", rpcInstall, "Internal")
			t.goDown("worker-0")

			return t
		}},
		{name: "S4: an install of what runs", want: breaks(s4), tale: func() *tale {
			t := held()
			t.put("worker-0", before)

			return t
		}},
		{name: "S4: a reboot of a node at the target", want: breaks(s4), tale: func() *tale {
			t := held()
			t.turn("worker-0", after)
			t.goDown("worker-0")

			return t
		}},
		{name: "S4: a reboot of a node at the target that runs still when the call ends", want: breaks(s4), tale: func() *tale {
			t := held()
			t.turn("worker-0", after)
			t.look()
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S4: a second reboot right after the one that was needed", want: breaks(s4), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.comeBack("worker-0", after)
			t.look()
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S4: the end of the reboot is written down when the node is back", tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.look()
			t.stage("worker-0", "running", "rebooting")
			t.down("worker-0", "client")
			t.comeBack("worker-0", after)
			t.rpc("worker-0", rpcReboot, "OK")

			return t
		}},
		{name: "S4: an install after a boot", tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.comeBack("worker-0", before)
			t.put("worker-0", after)

			return t
		}},
		{name: "S5: an older version is installed", want: breaks(s5), tale: func() *tale {
			t := held()
			t.put("worker-0", "1.12.6")

			return t
		}},
		{name: "S5: a minor is skipped", want: breaks(s5), tale: func() *tale {
			t := held()
			t.put("worker-0", "1.15.0")

			return t
		}},
		{name: "S5: an older version boots", want: breaks(s5), tale: func() *tale {
			t := held()
			t.goDown("worker-0")
			t.boot("worker-0", "1.12.6", runsOn, "rollback")

			return t
		}},
		{name: "S5: a node falls back by itself", tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.boot("worker-0", after, runsOn, "upgrade")
			t.down("worker-0", "machine")
			t.boot("worker-0", before, runsOn, "fallback")

			return t
		}},
		{name: "S5: a kubelet newer than the API servers", want: breaks(s5), tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.boot("worker-0", after, "1.35.0", "upgrade")

			return t
		}},
		{name: "S5: a kubelet newer by a patch", tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.boot("worker-0", after, "1.34.9", "upgrade")

			return t
		}},
		{name: "S15: a look at the new boot", tale: rebooted(func(t *tale) { t.told("worker-0", "boot-1", after, "", "") })},
		{name: "S15: a look that ended after the boot that it is of", tale: rebooted(func(t *tale) {
			t.told("worker-0", "boot-0", before, "", "")
			t.events[len(t.events)-1].Detail["began"] = "1"
		})},
		{name: "S15: a version that may not be semantic", tale: rebooted(func(t *tale) { t.told("worker-0", "boot-1", "", "", "") })},
		{name: "S15: a boot of which nobody knows", tale: rebooted(func(t *tale) { t.told("worker-0", "", before, "x", "y") })},
		{name: "S15: the boot of before", want: breaks(s15), tale: rebooted(func(t *tale) { t.told("worker-0", "boot-0", before, "", "") })},
		{name: "S15: the version of before", want: breaks(s15), tale: rebooted(func(t *tale) { t.told("worker-0", "boot-1", before, "", "") })},
		{name: "S15: another schematic", want: breaks(s15), tale: rebooted(func(t *tale) { t.told("worker-0", "boot-1", after, "x", "") })},
		{name: "S15: a look that did not ask for the schematic", tale: func() *tale {
			t := held()
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.bootWith("worker-0", after, "", "x", "upgrade")
			t.wait(5)
			t.told("worker-0", "boot-1", after, "", "")
			delete(t.events[len(t.events)-1].Detail, "schematic")

			return t
		}},
		{name: "S15: another platform", want: breaks(s15), tale: rebooted(func(t *tale) { t.told("worker-0", "boot-1", after, "", "aws") })},
		{name: "S6: Kubernetes too old for the new Talos", want: breaks(s6), tale: func() *tale {
			t := beginOn(3, 2, before, "1.31.4")
			t.acquire("run-1")
			t.put("worker-0", "1.14.1")
			t.goDown("worker-0")
			t.boot("worker-0", "1.14.1", "1.31.4", "upgrade")

			return t
		}},
		{name: "S6: what was there before is not our doing", tale: func() *tale {
			t := beginOn(3, 2, "1.14.0", "1.31.4")
			t.acquire("run-1")
			t.goDown("worker-0")
			t.boot("worker-0", "1.14.0", "1.31.4", "reboot")

			return t
		}},
	}
}

// rebooted returns a tale of a worker that boots another version, and of what happens then.
func rebooted(then func(*tale)) func() *tale {
	return func() *tale {
		t := held()
		t.put("worker-0", after)
		t.goDown("worker-0")
		t.comeBack("worker-0", after)
		t.wait(5)
		then(t)

		return t
	}
}
