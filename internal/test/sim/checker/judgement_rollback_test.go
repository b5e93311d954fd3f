// SPDX-License-Identifier: MPL-2.0

package checker_test

const rpcRollback = "/machine.MachineService/Rollback"

// sick takes a node to a new system that does not become healthy.
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

// sendBack tells a node to start its old system.
func (t *tale) sendBack(node, code string) {
	t.look()
	t.rpc(node, rpcRollback, code)
}

// returns is what follows.
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

// rollback is a whole one, as it should be.
func (t *tale) rollback(node string) {
	t.journal(node, "rolling-back", after, "run-1")
	t.sendBack(node, "OK")
	t.returns(node, before, "rollback")
	t.cordon(node, false, "client")
	t.journal(node, "rolled-back", after, "run-1")
}

// rollbackJudgements are about nodes that are sent back to their old system.
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
