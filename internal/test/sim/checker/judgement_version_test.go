// SPDX-License-Identifier: MPL-2.0

package checker_test

import "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"

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
