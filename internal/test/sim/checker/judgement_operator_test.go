// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// owned is the object of an operator.
const owned = "KubernetesCluster/tenant-a/prod"

const hold = "do-not-reconcile"

// write has somebody write an annotation of the object.
func (t *tale) write(by, key, value string) {
	t.tell("", history.KindAnnotation, "object", owned, "key", key, "value", value, "by", by)
}

// asks has our client write what another operator's machines are to run.
func (t *tale) asks(by string) {
	t.tell("", history.KindWrite, "verb", "patch", "resource", "taloscontrolplanes", "namespace", "tenant-a", "name", "prod", "by", by, "code", "200")
}

// besideRoll is an upgrade beside an operator, as it should be.
func besideRoll(changes ...func(t *tale)) *tale {
	t := held()
	t.write("client", hold, "run-1")
	t.write("client", "talos-current", before)

	for _, change := range changes {
		change(t)
	}

	for _, node := range t.names {
		t.turn(node, after)
	}

	t.write("client", "talos-current", after)
	t.write("client", hold, "")
	t.release()

	return t
}

func operatorJudgements() []judgement {
	operated := []checker.Option{checker.Operated(owned)}
	delegated := []checker.Option{checker.Delegated()}

	return append([]judgement{
		{name: "S7: an upgrade beside an operator", options: operated, tale: func() *tale { return besideRoll() }},
		{name: "S7: the operator is not held", want: breaks(s7), options: operated, tale: roll},
		{name: "S7: nobody acts on the object", tale: roll},
		{name: "S7: the operator is held too late", want: breaks(s7), options: operated, tale: func() *tale {
			t := held()
			t.cordon("worker-0", true, "client")
			t.write("client", hold, "run-1")

			return t
		}},
		{name: "S7: the hold of a run that died counts for nothing", want: breaks(s7), options: operated, tale: func() *tale {
			t := held()
			t.write("client", hold, "run-1")
			t.acquire("run-2 (test)")
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S7: the next run takes over", options: operated, tale: func() *tale {
			t := held()
			t.write("client", hold, "run-1")
			t.acquire("run-2 (test)")
			t.write("client", hold, "run-2")
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S7: somebody else lets the operator go", options: operated, tale: func() *tale {
			return besideRoll(func(t *tale) { t.write("other", hold, "") })
		}},
		{name: "S7: the hold outlives the lease", want: breaks(s7), options: operated, tale: func() *tale {
			t := held()
			t.write("client", hold, "run-1")
			t.release()

			return t
		}},
		{name: "S7: what somebody else holds may", options: operated, tale: func() *tale {
			t := held()
			t.write("other", hold, "maintenance")
			t.release()

			return t
		}},
		{name: "S7: a hold in another name", want: breaks(s7), tale: func() *tale {
			t := held()
			t.write("client", hold, "run-7")

			return t
		}},
		{name: "S12: a hold without a lease", want: breaks(s12), tale: func() *tale {
			t := held()
			t.release()
			t.write("client", hold, "run-1")

			return t
		}},
		{name: "S7: let go while the object is behind", want: breaks(s7), options: operated, tale: func() *tale {
			t := held()
			t.write("client", hold, "run-1")
			t.write("other", "talos-current", before)

			for _, node := range t.names {
				t.turn(node, after)
			}

			t.write("client", hold, "")

			return t
		}},
		{name: "S9: a hold that is not ours", want: breaks(s9), tale: func() *tale {
			t := held()
			t.write("other", hold, "maintenance")
			t.write("client", hold, "run-1")

			return t
		}},
		{name: "S7: a second upgrader is asked", want: breaks(s7), tale: func() *tale {
			t := held()
			t.write("client", "talos-target", after)

			return t
		}},
		{name: "S7: so it is by what machines are to run", want: breaks(s7), tale: func() *tale {
			t := held()
			t.asks("client")

			return t
		}},
		{name: "S7: so it is by asking for another attempt", want: breaks(s7), tale: func() *tale {
			t := held()
			t.write("client", "resume", "true")

			return t
		}},
		{name: "S7: somebody else may ask", tale: func() *tale {
			t := held()
			t.write("other", "talos-target", "v"+after)
			t.asks("other")

			return t
		}},
	}, delegateJudgements(delegated)...)
}

// delegateJudgements are about runs that only ask.
func delegateJudgements(delegated []checker.Option) []judgement {
	return []judgement{
		{name: "S7: a run that asks, and looks on", options: delegated, tale: func() *tale {
			t := held()
			t.write("client", "talos-target", after)
			t.asks("client")
			t.write("other", "talos-status", "completed")
			t.cordon("worker-0", true, "other")
			t.write("client", "talos-target", "")
			t.release()

			return t
		}},
		{name: "S7: a run that acts as well", want: breaks(s7), options: delegated, tale: func() *tale {
			t := held()
			t.cordon("worker-0", true, "client")

			return t
		}},
		{name: "S7: a run that drains as well", want: breaks(s7), options: delegated, tale: func() *tale {
			t := held()
			t.tell("worker-0", history.KindEvict, "namespace", "default", "pod", "web", "outcome", "evicted", "by", "client")

			return t
		}},
		{name: "S7: a run that configures as well", want: breaks(s7), options: delegated, tale: func() *tale {
			t := held()
			t.move("cp-0", apiServer, next)

			return t
		}},
		{name: "S7: a run that speaks for the operator", want: breaks(s7), options: delegated, tale: func() *tale {
			t := held()
			t.write("client", "talos-status", "in-progress")

			return t
		}},
		{name: "S12: asking without a lease", want: breaks(s12), options: delegated, tale: func() *tale {
			t := held()
			t.release()
			t.write("client", "talos-target", after)
			t.asks("client")

			return t
		}},
		{name: "S12: taking back is not", options: delegated, tale: func() *tale {
			t := held()
			t.write("client", "talos-target", after)
			t.release()
			t.write("client", "talos-target", "")

			return t
		}},
	}
}
