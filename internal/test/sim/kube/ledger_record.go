// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// What the record of the lease says was done with it.
const (
	leaseAcquired = "acquire"
	leaseRenewed  = "renew"
	leaseReleased = "release"
)

// change is a key of a map whose value is another one now; empty when the key
// is gone.
type change struct{ key, value string }

// changesBetween lists what differs, sorted by key.
func changesBetween(before, now map[string]string) []change {
	keys := map[string]bool{}
	for key := range before {
		keys[key] = true
	}

	for key := range now {
		keys[key] = true
	}

	var changes []change

	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, had := before[key]

		value, has := now[key]
		if had != has || old != value {
			changes = append(changes, change{key, value})
		}
	}

	return changes
}

// leaseWritten tells who holds the lease now. A request that changed neither
// holder nor time means nothing.
func (l *ledger) leaseWritten(event auditEvent) bool {
	var holder, renewed string

	if event.Verb != "delete" {
		object := event.object()
		holder, renewed = object.Spec.HolderIdentity, object.Spec.RenewTime
	}

	action := leaseRenewed

	// Each cluster has a log of its own, and a lease is given back after everything
	// else.
	if holder != l.holder {
		l.awaitElsewhere()
	}

	switch {
	case holder == l.holder && (renewed == l.renewed || holder == ""):
		return false
	case holder == "":
		action = leaseReleased
	case holder != l.holder:
		action = leaseAcquired
	}

	l.holder, l.renewed = holder, renewed
	l.recorder.Record("", history.KindLease, map[string]string{"holder": holder, "action": action, "by": event.by()})

	return true
}

func (l *ledger) awaitElsewhere() {
	l.mutex.Lock()
	wait := l.elsewhere
	l.mutex.Unlock()

	if wait != nil {
		wait()
	}
}

// journalWritten tells of each entry that changed. It does not know the format
// beyond the two fields that the history names.
func (l *ledger) journalWritten(event auditEvent) bool {
	var now map[string]string

	switch object := event.object(); {
	case event.Verb == "delete":
	case object.Kind == "Table":
		// The client wanted no object in answer.
		now = event.dataOver(l.journal)
	default:
		now = object.Data
	}

	changes := changesBetween(l.journal, now)
	for _, change := range changes {
		written, run := change.value, journalRun(change.value)
		if written == "" {
			run = journalRun(l.journal[change.key])
		}

		node := l.machineName(change.key)
		l.touch(event, node)
		l.recorder.Record(node, history.KindJournal, map[string]string{
			"key": change.key, "phase": journalPhase(written), "run": run, "value": written, "by": event.by(),
		})
	}

	l.journal = now

	return len(changes) > 0
}

func journalPhase(value string) string {
	phase, _ := journalFields(value)

	return phase
}

func journalRun(value string) string {
	_, run := journalFields(value)

	return run
}

func journalFields(value string) (phase, run string) {
	var entry struct {
		Phase string `json:"phase"`
		Run   string `json:"run"`
	}

	// What cannot be read has neither; its value is in the history as it is.
	if json.Unmarshal([]byte(value), &entry) != nil {
		return "", ""
	}

	return entry.Phase, entry.Run
}

// deleted tells of a pod that a client removed without asking its budgets.
func (l *ledger) deleted(event auditEvent) {
	namespace, name := event.ObjectRef.Namespace, event.name()
	pod := l.place(namespace, name)
	detail := map[string]string{"namespace": namespace, "pod": name, "by": event.by()}

	l.touch(event, pod.node)

	if exhausted := l.budgets.exhausted(namespace, pod.labels, event.Received); len(exhausted) > 0 {
		detail["budget"] = exhausted[0].String()
	}

	l.recorder.Record(pod.node, history.KindDelete, detail)
}

// evicted tells how an eviction ended.
func (l *ledger) evicted(event auditEvent) {
	namespace, name := event.ObjectRef.Namespace, event.name()
	pod := l.place(namespace, name)
	outcome := evictionOutcome(event)

	if outcome == outcomeEvicted {
		l.touch(event, pod.node)
	}

	detail := map[string]string{"namespace": namespace, "pod": name, "by": event.by(), "outcome": outcome}

	if outcome == outcomeFailed {
		detail["code"] = strconv.Itoa(int(event.ResponseStatus.Code))
	}

	if outcome == outcomeBlocked {
		exhausted := l.budgets.exhausted(namespace, pod.labels, event.Received)
		if len(exhausted) > 0 {
			detail["budget"] = exhausted[0].String()
		} else {
			detail["budget"] = budgetNamed(namespace, event)
		}

		l.strike(pod.node, exhausted)
	}

	l.recorder.Record(pod.node, history.KindEvict, detail)
}

// strike tells, once, of a fault that has blocked a drain.
func (l *ledger) strike(node string, exhausted []*budget) {
	for _, budget := range exhausted {
		if budget.fault == "" || l.struck[budget] {
			continue
		}

		l.struck[budget] = true
		l.recorder.Record(node, history.KindFault, map[string]string{
			"step": "drain", "effect": "blocked-by-budget", "info": budget.String(),
		})
	}
}
