// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// The fields of the status that this provider writes.
const (
	fieldPhase      = "phase"
	fieldConditions = "conditions"
)

// desiredStatus is what the status of the object should say. It is zero if the status should be left as it is.
type desiredStatus struct {
	// phase is empty if the phase should be left as it is.
	phase string
	// onlyOurs is true if the phase may only replace one of ours or an empty one: nothing was done that shows
	// that the cluster is ready.
	onlyOurs bool
	// conditions are those of Talos and of Kubernetes, in this order.
	conditions [2]condition
}

// condition is what one of the two conditions should say.
type condition struct {
	kind string
	// reason is empty if no condition should be written.
	reason  string
	message string
	// ended is true if a condition about an upgrade that is running, has failed or waits must be removed.
	ended bool
	// kept is true if the product stays as it was before the run, so that a condition is only replaced if it
	// contradicts that.
	kept bool
}

// status returns what the status should say: the same as the annotations, or as those from before the run for a
// product that the statement leaves untouched.
func (s statement) status(wanted annotations, before map[string]string) desiredStatus {
	var (
		made    desiredStatus
		reasons []string
	)

	untouched := s.untouched(wanted, before, protocol.StatusCompleted, protocol.StatusFailed)

	for i, p := range products(cluster.Event{}) {
		made.conditions[i] = p.conditionOf(wanted)
		reasons = append(reasons, made.conditions[i].reason)

		if untouched[p.statusKey] != nil {
			made.conditions[i] = p.conditionOf(untouched)
			made.conditions[i].kept = true
		}
	}

	talos, kubernetes := made.conditions[0], made.conditions[1]

	switch {
	case !talos.speaks() && !kubernetes.speaks():
	case slices.Contains(reasons, protocol.ReasonFailed):
		made.phase = protocol.PhaseUpgradeFailed
	case reasons[0] == protocol.ReasonInProgress:
		made.phase = protocol.PhaseUpgradingTalos
	case reasons[1] == protocol.ReasonInProgress:
		made.phase = protocol.PhaseUpgradingKubernetes
	case talos.reason == protocol.ReasonFailed, kubernetes.reason == protocol.ReasonFailed:
		made.phase, made.onlyOurs = protocol.PhaseUpgradeFailed, !slices.Contains(reasons, protocol.ReasonCompleted)
	case !slices.Contains(reasons, protocol.ReasonBlocked):
		made.phase, made.onlyOurs = protocol.PhaseReady, !slices.Contains(reasons, protocol.ReasonCompleted)
	}

	return made
}

// conditionOf returns the condition that matches the annotations of the product.
func (p product) conditionOf(said annotations) condition {
	made := condition{kind: p.condition}
	if said[p.statusKey] == nil {
		return made
	}

	switch *said[p.statusKey] {
	case protocol.StatusInProgress, protocol.StatusRollingBack, protocol.StatusPending:
		made.reason = protocol.ReasonInProgress
	case protocol.StatusCompleted:
		made.reason = protocol.ReasonCompleted
	case protocol.StatusFailed:
		made.reason = protocol.ReasonFailed
	case protocol.StatusBlocked:
		made.reason = protocol.ReasonBlocked
	default:
		made.ended = true

		return made
	}

	if message := said[p.messageKey]; message != nil {
		made.message = *message
	}

	if count := said[p.progressKey]; count != nil {
		if text, counted := strings.CutSuffix(made.message, " ("+*count+")"); counted {
			made.message = text + " (" + *count + " nodes completed)"
		}
	}

	return made
}

// changes returns the fields to write, given the current status.
func (s desiredStatus) changes(status map[string]any, now time.Time) map[string]any {
	fields := map[string]any{}

	if stands := stringField(status, fieldPhase); s.phase != "" && s.phase != stands && (!s.onlyOurs || isOurPhase(stands)) {
		fields[fieldPhase] = s.phase
	}

	found, isList := status[fieldConditions].([]any)
	if status[fieldConditions] != nil && !isList {
		// The kind uses this name for something else.
		return fields
	}

	list := found
	for _, c := range s.conditions {
		list = c.placeIn(list, now)
	}

	if !slices.EqualFunc(list, found, sameCondition) {
		fields[fieldConditions] = list
	}

	return fields
}

// contradicts reports whether the status says something wrong. Other words, or nothing at all, are no
// contradiction.
func (s desiredStatus) contradicts(status map[string]any) bool {
	if stands := stringField(status, fieldPhase); s.phase != "" && stands != "" && s.phase != stands && isOurPhase(stands) {
		return true
	}

	list, _ := status[fieldConditions].([]any)

	return slices.ContainsFunc(list, func(entry any) bool {
		return slices.ContainsFunc(s.conditions[:], func(c condition) bool { return c.isOf(entry) && c.contradicts(entry) })
	})
}

func isOurPhase(phase string) bool {
	return slices.Contains([]string{"", protocol.PhaseReady, protocol.PhaseUpgradingTalos, protocol.PhaseUpgradingKubernetes, protocol.PhaseUpgradeFailed}, phase)
}

// speaks reports whether the condition has anything to say about the product.
func (c condition) speaks() bool { return c.reason != "" || c.ended }

// isOf reports whether the entry of a list is this condition.
func (c condition) isOf(entry any) bool { return stringField(entry, "type") == c.kind }

// contradicts reports whether the status of the entry, or a reason of ours in it, is wrong.
func (c condition) contradicts(entry any) bool {
	if !c.speaks() {
		return false
	}

	status, reason := stringField(entry, "status"), stringField(entry, "reason")
	if (status == "True") != (c.reason == protocol.ReasonInProgress) {
		return true
	}

	ours := []string{protocol.ReasonInProgress, protocol.ReasonFailed, protocol.ReasonBlocked}
	if c.reason != "" {
		ours = append(ours, protocol.ReasonCompleted)
	}

	return reason != c.reason && slices.Contains(ours, reason)
}

// placeIn returns the list with the condition written, removed or left as it is. Other conditions keep their
// contents and order.
func (c condition) placeIn(list []any, now time.Time) []any {
	at := slices.IndexFunc(list, c.isOf)

	switch {
	case c.kept && (at < 0 || !c.contradicts(list[at])):
		return list
	case c.reason != "" && at < 0:
		return append(slices.Clone(list), c.entry(nil, now))
	case c.reason != "":
		list = slices.Clone(list)
		list[at] = c.entry(list[at], now)

		return list
	case c.ended && at >= 0 && (c.contradicts(list[at]) || stringField(list[at], "reason") != protocol.ReasonCompleted):
		return slices.Delete(slices.Clone(list), at, at+1)
	default:
		return list
	}
}

// entry returns the condition to write in place of the present one. Its transition time changes only with its
// status.
func (c condition) entry(stands any, now time.Time) map[string]any {
	status := "False"
	if c.reason == protocol.ReasonInProgress {
		status = "True"
	}

	moved := stringField(stands, "lastTransitionTime")
	if moved == "" || stringField(stands, "status") != status {
		moved = now.UTC().Format(time.RFC3339)
	}

	fields, _ := stands.(map[string]any)
	made := maps.Collect(maps.All(fields))
	made["type"], made["status"], made["reason"], made["message"], made["lastTransitionTime"] = c.kind, status, c.reason, c.message, moved

	return made
}

func stringField(object any, name string) string {
	fields, _ := object.(map[string]any)
	value, _ := fields[name].(string)

	return value
}

// sameCondition reports whether two entries agree in the fields that this provider writes.
func sameCondition(a, b any) bool {
	return !slices.ContainsFunc([]string{"type", "status", "reason", "message", "lastTransitionTime"}, func(name string) bool {
		return stringField(a, name) != stringField(b, name)
	})
}
