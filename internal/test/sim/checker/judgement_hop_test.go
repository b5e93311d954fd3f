// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
)

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
