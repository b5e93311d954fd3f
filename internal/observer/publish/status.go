// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// The fields of the status that are ours.
const (
	fieldPhase      = "phase"
	fieldConditions = "conditions"
)

// stature is what the status of the object should say.
type stature struct {
	// phase is empty where nothing is to be said of it.
	phase string
	// gentle tells that only a phase of ours, or none, is replaced: nothing was done
	// that would tell that the cluster is ready.
	gentle bool
	// talos and kubernetes are the two conditions.
	talos, kubernetes condition
}

// condition is one of the two conditions.
type condition struct {
	// kind is its type.
	kind string
	// reason is empty where nothing is to be said.
	reason  string
	message string
	// over tells that a condition may not stand that speaks of an upgrade which goes
	// on, has failed or waits.
	over bool
	// kept tells that what it speaks of stays as it was before the run, so that it is
	// only replaced where it says otherwise.
	kept bool
}

// stature is what the status should say now, and whether the run goes on.
func (p *Publisher) stature() (wanted stature, running bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	effective := p.effective()
	if len(effective) == 0 {
		return stature{}, false
	}

	return statureOf(effective, p.rests, p.before), p.course.running
}

// statureOf says the same as the annotations, of which those of before stand where
// nothing is to be said of a half.
func statureOf(annotations map[string]*string, rests map[string]quiet, before map[string]string) stature {
	old := kept(annotations, rests, before, StatusCompleted, StatusFailed)
	made := stature{
		talos:      conditionOf(ConditionTalos, annotations[KeyStatus], annotations[KeyMessage], annotations[KeyProgress]),
		kubernetes: conditionOf(ConditionKubernetes, annotations[KeyKubernetesStatus], annotations[KeyKubernetesMessage], annotations[KeyKubernetesProgress]),
	}

	reasons := []string{made.talos.reason, made.kubernetes.reason}

	if old[KeyStatus] != nil {
		made.talos = conditionOf(ConditionTalos, old[KeyStatus], old[KeyMessage], old[KeyProgress])
		made.talos.kept = true
	}

	if old[KeyKubernetesStatus] != nil {
		made.kubernetes = conditionOf(ConditionKubernetes, old[KeyKubernetesStatus], old[KeyKubernetesMessage], old[KeyKubernetesProgress])
		made.kubernetes.kept = true
	}

	switch {
	case !made.talos.told() && !made.kubernetes.told():
	case slices.Contains(reasons, ReasonFailed):
		made.phase = PhaseUpgradeFailed
	case reasons[0] == ReasonInProgress:
		made.phase = PhaseUpgradingTalos
	case reasons[1] == ReasonInProgress:
		made.phase = PhaseUpgradingKubernetes
	case made.talos.reason == ReasonFailed, made.kubernetes.reason == ReasonFailed:
		made.phase, made.gentle = PhaseUpgradeFailed, !slices.Contains(reasons, ReasonCompleted)
	case !slices.Contains(reasons, ReasonBlocked):
		made.phase, made.gentle = PhaseReady, !slices.Contains(reasons, ReasonCompleted)
	}

	return made
}

// conditionOf says the same as the annotations of a half.
func conditionOf(kind string, status, message, progress *string) condition {
	made := condition{kind: kind}
	if status == nil {
		return made
	}

	switch *status {
	case StatusInProgress, StatusRollingBack, StatusPending:
		made.reason = ReasonInProgress
	case StatusCompleted:
		made.reason = ReasonCompleted
	case StatusFailed:
		made.reason = ReasonFailed
	case StatusBlocked:
		made.reason = ReasonBlocked
	default:
		made.over = true

		return made
	}

	if message != nil {
		made.message = *message
	}

	if progress != nil {
		if before, counted := strings.CutSuffix(made.message, " ("+*progress+")"); counted {
			made.message = before + " (" + *progress + " nodes completed)"
		}
	}

	return made
}

// changes are the fields of the status that are to be written where it is as given.
func (s stature) changes(status map[string]any, now time.Time) map[string]any {
	fields := map[string]any{}

	standing, _ := status[fieldPhase].(string)
	if s.phase != "" && s.phase != standing && (!s.gentle || ourPhase(standing)) {
		fields[fieldPhase] = s.phase
	}

	found, isList := status[fieldConditions].([]any)
	if status[fieldConditions] != nil && !isList {
		// They mean something else there.
		return fields
	}

	list := s.kubernetes.placed(s.talos.placed(found, now), now)
	if !slices.EqualFunc(list, found, sameCondition) {
		fields[fieldConditions] = list
	}

	return fields
}

// contradicts tells whether the status says what is not so. What it says in other
// words, or does not say, is no contradiction.
func (s stature) contradicts(status map[string]any) bool {
	standing, _ := status[fieldPhase].(string)
	if s.phase != "" && standing != "" && s.phase != standing && ourPhase(standing) {
		return true
	}

	list, _ := status[fieldConditions].([]any)

	for _, c := range [...]condition{s.talos, s.kubernetes} {
		for _, entry := range list {
			if fieldOf(entry, "type") == c.kind && c.contradicts(entry) {
				return true
			}
		}
	}

	return false
}

func ourPhase(phase string) bool {
	return slices.Contains([]string{"", PhaseReady, PhaseUpgradingTalos, PhaseUpgradingKubernetes, PhaseUpgradeFailed}, phase)
}

// told tells whether something is to be said of the half.
func (c condition) told() bool { return c.reason != "" || c.over }

// contradicts tells whether the entry says by its status, or by a reason of ours,
// what is not so.
func (c condition) contradicts(entry any) bool {
	if !c.told() {
		return false
	}

	status, reason := fieldOf(entry, "status"), fieldOf(entry, "reason")
	if (status == "True") != (c.reason == ReasonInProgress) {
		return true
	}

	ours := []string{ReasonInProgress, ReasonFailed, ReasonBlocked}
	if c.reason != "" {
		ours = append(ours, ReasonCompleted)
	}

	return reason != c.reason && slices.Contains(ours, reason)
}

// placed is the list with the condition as it should be in it. Conditions of others
// stay as and where they are.
func (c condition) placed(list []any, now time.Time) []any {
	at := slices.IndexFunc(list, func(entry any) bool { return fieldOf(entry, "type") == c.kind })

	switch {
	case c.kept && (at < 0 || !c.contradicts(list[at])):
		return list
	case c.reason != "" && at < 0:
		return append(slices.Clone(list), any(c.entry(nil, now)))
	case c.reason != "":
		list = slices.Clone(list)
		standing, _ := list[at].(map[string]any)
		list[at] = c.entry(standing, now)

		return list
	case c.over && at >= 0 && (c.contradicts(list[at]) || fieldOf(list[at], "reason") != ReasonCompleted):
		return slices.Delete(slices.Clone(list), at, at+1)
	default:
		return list
	}
}

// entry is the condition as it is written in place of the standing one. It has
// moved only where its status is another one.
func (c condition) entry(standing map[string]any, now time.Time) map[string]any {
	status := "False"
	if c.reason == ReasonInProgress {
		status = "True"
	}

	moved := fieldOf(standing, "lastTransitionTime")
	if moved == "" || fieldOf(standing, "status") != status {
		moved = now.UTC().Format(time.RFC3339)
	}

	made := map[string]any{}
	maps.Copy(made, standing)

	made["type"], made["status"], made["reason"], made["message"], made["lastTransitionTime"] = c.kind, status, c.reason, c.message, moved

	return made
}

func fieldOf(entry any, name string) string {
	fields, _ := entry.(map[string]any)
	value, _ := fields[name].(string)

	return value
}

// sameCondition tells whether two entries say the same as far as it is ours to say.
func sameCondition(a, b any) bool {
	for _, name := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
		if fieldOf(a, name) != fieldOf(b, name) {
			return false
		}
	}

	return true
}
