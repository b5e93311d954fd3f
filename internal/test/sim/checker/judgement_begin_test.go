// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// beginningJudgements are about when something may begin.
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
