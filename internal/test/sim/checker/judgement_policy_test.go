// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// six is a cluster of three control planes and six workers under our lease.
func six() *tale {
	t := begin(3, 6)
	t.acquire("run-1 (test)")

	return t
}

// budgetJudgements are about how many workers may be unavailable.
func budgetJudgements() []judgement {
	three := []checker.Option{checker.MaxUnavailable(3)}
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

// overlapping is a roll of two workers, of which the second one is cordoned,
// looked at and installed while the first one goes down and comes back, and of
// a third one as soon as the first is done.
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

// holdJudgements are about nodes that had to be left alone.
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

// settleJudgements are about nodes that had to stay healthy before another one.
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

// canaryJudgements are about nodes that had to move first.
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
