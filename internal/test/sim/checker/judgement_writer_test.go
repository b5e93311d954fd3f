// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

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
