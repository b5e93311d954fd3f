// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// owned is the object of an operator.
const owned = "KubernetesCluster/tenant-a/prod"

const hold = "do-not-reconcile"

// write is a write of an annotation of the object.
func (t *tale) write(by, key, value string) {
	t.tell("", history.KindAnnotation, "object", owned, "key", key, "value", value, "by", by)
}

// asks is a write of what the machines of another operator should run.
func (t *tale) asks(by string) {
	t.tell("", history.KindWrite, "verb", "patch", "resource", "taloscontrolplanes", "namespace", "tenant-a", "name", "prod", "by", by, "code", "200")
}

// besideRoll is an upgrade beside an operator without a violation.
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

// delegateJudgements are about runs that only ask the operator.
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

// shows changes a field of the object's status.
func (t *tale) shows(field, value string) {
	t.tell("", history.KindStatus, "object", owned, "field", field, "value", value, "by", "client")
}

func (t *tale) condition(kind, status, reason, message string) {
	t.tell("", history.KindStatus, "object", owned, "condition", kind, "status", status, "reason", reason, "message", message, "by", "client")
}

// statusJudgements are about phases, conditions, messages and the available versions.
func statusJudgements() []judgement {
	// said returns a tale in which one thing is said while the lease is held.
	said := func(say func(t *tale)) func() *tale {
		return func() *tale {
			t := held()
			say(t)

			return t
		}
	}
	annotated := func(key, value string) func() *tale { return said(func(t *tale) { t.annotate(key, value) }) }

	return []judgement{
		{name: "S8: a newer version is offered", tale: annotated("talos-available", after)},
		{name: "S8: what runs is offered", want: breaks(s8), tale: annotated("talos-available", before)},
		{name: "S8: one node behind is enough to offer", tale: said(func(t *tale) {
			t.turn("worker-0", after)
			t.annotate("talos-available", after)
		})},
		{name: "S8: a newer Kubernetes is offered", tale: annotated("kubernetes-available", next)},
		{name: "S8: the Kubernetes that runs is offered", want: breaks(s8), tale: annotated("kubernetes-available", runsOn)},
		{name: "S8: a Kubernetes is offered that Talos does not support", want: breaks(s8), tale: annotated("kubernetes-available", "1.37.0")},
		{name: "S8: the message offers what runs", want: breaks(s8), tale: annotated("talos-message", "Upgrade available: 1.13.0 \u2192 "+before)},
		{name: "S8: the message offers what is newer", tale: annotated("talos-message", "Upgrade available: "+before+" \u2192 "+after)},
		{name: "S8: a version with v", want: breaks(s8), tale: annotated("talos-current", "v"+before)},
		{name: "S8: a version that is none", want: breaks(s8), tale: annotated("kubernetes-available", "latest")},
		{name: "S8: a status that is none", want: breaks(s8), tale: annotated("kubernetes-status", "done")},
		{name: "S8: all statuses that there are", tale: said(func(t *tale) {
			for _, status := range []string{"idle", "pending", "in-progress", "failed", "blocked"} {
				t.annotate("kubernetes-status", status)
				t.annotate("talos-status", status)
			}
		})},
		{name: "S8: idle while a node reboots", want: breaks(s8), tale: said(func(t *tale) {
			t.cordon("worker-0", true, "client")
			t.put("worker-0", after)
			t.goDown("worker-0")
			t.annotate("kubernetes-status", "idle")
			t.annotate("talos-status", "idle")
		})},
		{name: "S8: idle while a component restarts", want: breaks(s8), tale: said(func(t *tale) {
			t.look()
			t.configure("cp-0", apiServer, "client")
			t.annotate("talos-status", "idle")
			t.annotate("kubernetes-status", "idle")
		})},
		{name: "S8: a message about a node that there is not", want: breaks(s8), tale: annotated("talos-message", "Upgrading node cp-9 (0/5)")},
		{name: "S8: a message about a component nowhere", want: breaks(s8), tale: annotated("kubernetes-message", "Upgrading kubelet on worker-9 (0/5)")},
		{name: "S8: messages about nodes", tale: said(func(t *tale) {
			t.annotate("talos-message", "Upgrading node cp-0 to 1.13.3 (0/5)")
			t.annotate("talos-message", "Node cp-0 upgraded (1/5)")
			t.annotate("kubernetes-message", "Upgrading kubelet on worker-1")
			t.annotate("kubernetes-message", "Syncing the bootstrap manifests")
		})},
		{name: "S8: a message names a version too new", want: breaks(s8), tale: annotated("talos-message", "Talos upgrade completed: now running "+after)},
		{name: "S8: a message about Kubernetes does", want: breaks(s8), tale: annotated("kubernetes-message", "Kubernetes upgrade completed: now running "+next)},
		{name: "S8: phases of an upgrade", tale: said(func(t *tale) {
			t.shows("phase", "UpgradingTalos")
			t.turn("worker-0", after)
			t.shows("phase", "UpgradeFailed")
			t.release()
		})},
		{name: "S8: ready with nodes behind", want: breaks(s8), tale: said(func(t *tale) {
			t.turn("worker-0", after)
			t.shows("phase", "Ready")
		})},
		{name: "S8: ready while a node is in its turn", want: breaks(s8), tale: said(func(t *tale) {
			t.journal("worker-0", "intent", before, "run-1")
			t.shows("phase", "Ready")
		})},
		{name: "S8: ready with components behind", want: breaks(s8), tale: said(func(t *tale) {
			t.moveAll(apiServer, next, controlPlaneNames()...)
			t.shows("phase", "Ready")
		})},
		{name: "S8: ready with components behind that nobody moves", tale: func() *tale {
			t := held()
			t.configure("cp-0", apiServer, "other")
			t.restart("cp-0", apiServer, next)
			t.shows("phase", "Ready")

			return t
		}},
		{name: "S8: ready when all of Kubernetes is done", tale: func() *tale {
			t := kubernetesRoll()
			t.events = t.events[:len(t.events)-1]
			t.shows("phase", "Ready")
			t.condition("KubernetesUpgrade", "False", "Completed", "Kubernetes upgrade completed: now running "+next)
			t.release()

			return t
		}},
		{name: "S8: a list of failed nodes that is too long", tale: annotated("failed-nodes", "worker-0,worker-1,...")},
		{name: "S8: ready when all is done", tale: func() *tale {
			t := held()
			for _, node := range t.names {
				t.turn(node, after)
			}

			t.shows("phase", "Ready")
			t.condition("TalosUpgrade", "False", "Completed", "Talos upgrade completed: now running "+after)

			return t
		}},
		{name: "S8: upgrading when nobody does", want: breaks(s8), tale: said(func(t *tale) {
			t.release()
			t.wait(300)
			t.shows("phase", "UpgradingKubernetes")
		})},
		{name: "S8: upgrading, told a moment late", tale: said(func(t *tale) {
			t.release()
			t.shows("phase", "UpgradingTalos")
		})},
		{name: "S8: a phase that is none", want: breaks(s8), tale: said(func(t *tale) { t.shows("phase", "Upgrading") })},
		{name: "S8: a status message about a node that there is not", want: breaks(s8), tale: said(func(t *tale) {
			t.shows("message", "Upgrading node cp-9 (0/5)")
		})},
		{name: "S8: a condition that is completed too early", want: breaks(s8), tale: said(func(t *tale) {
			t.turn("worker-0", after)
			t.condition("TalosUpgrade", "False", "Completed", "")
		})},
		{name: "S8: Kubernetes is completed too early", want: breaks(s8), tale: said(func(t *tale) {
			t.moveAll(apiServer, next, "cp-0")
			t.condition("KubernetesUpgrade", "False", "Completed", "")
		})},
		{name: "S8: a condition that contradicts itself", want: breaks(s8), tale: said(func(t *tale) {
			t.condition("KubernetesUpgrade", "True", "Blocked", "Waiting for Talos upgrade to complete")
		})},
		{name: "S8: a reason that is none", want: breaks(s8), tale: said(func(t *tale) { t.condition("TalosUpgrade", "False", "Idle", "") })},
		{name: "S8: what another one says in its status", tale: said(func(t *tale) {
			t.tell("", history.KindStatus, "object", owned, "field", "phase", "value", "Provisioning", "by", "other")
			t.tell("", history.KindStatus, "object", owned, "condition", "Valid", "status", "True", "reason", "Checked", "message", "", "by", "other")
		})},
		{name: "S9: a condition of another one", want: breaks(s9), tale: said(func(t *tale) { t.condition("Valid", "", "", "") })},
		{name: "S12: a status before there is a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.shows("phase", "Ready")

			return t
		}},
		{name: "S12: an Event before there is a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.tell("", history.KindWrite, "verb", "create", "resource", "events", "namespace", "default", "name", "x", "by", "client", "code", "201")

			return t
		}},
		{name: "S12: an Event that arrives late", tale: func() *tale {
			t := roll()
			t.tell("", history.KindWrite, "verb", "create", "resource", "events", "namespace", "default", "name", "x", "by", "client", "code", "201")

			return t
		}},
	}
}
