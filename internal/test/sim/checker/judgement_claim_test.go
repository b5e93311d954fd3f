// SPDX-License-Identifier: MPL-2.0

package checker_test

import "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"

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
