// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// resultStatus is what the status of a custom resource has that the history
// tells of.
type resultStatus struct {
	Phase      string            `json:"phase"`
	State      string            `json:"state"`
	Message    string            `json:"message"`
	Conditions []resultCondition `json:"conditions"`
}

type resultCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// status is what is known of the status of an object, as of a resource version.
type status struct {
	fields     map[string]string
	conditions map[string]resultCondition
	version    uint64
}

func newStatus(object resultObject) status {
	told := object.Status
	made := status{
		fields:     map[string]string{"phase": told.Phase, "state": told.State, "message": told.Message},
		conditions: map[string]resultCondition{},
		version:    object.version(),
	}

	maps.DeleteFunc(made.fields, func(_, value string) bool { return value == "" })

	for _, condition := range told.Conditions {
		made.conditions[condition.Type] = condition
	}

	return made
}

// statusWritten tells of what a request changed in a status. A line that is read
// after that of a later write says nothing new.
func (l *ledger) statusWritten(event auditEvent) bool {
	name := objectName(event)
	before, now := l.statuses[name], newStatus(event.object())

	if now.version < before.version {
		return false
	}

	l.statuses[name] = now

	changes := changesBetween(before.fields, now.fields)
	for _, change := range changes {
		l.recorder.Record("", history.KindStatus, map[string]string{
			"object": name, "field": change.key, "value": change.value, "by": event.by(),
		})
	}

	return l.conditionsChanged(event, before, now) || len(changes) > 0
}

func (l *ledger) conditionsChanged(event auditEvent, before, now status) bool {
	types := map[string]bool{}
	for kind := range before.conditions {
		types[kind] = true
	}

	for kind := range now.conditions {
		types[kind] = true
	}

	changed := false

	for _, kind := range slices.Sorted(maps.Keys(types)) {
		condition := now.conditions[kind]
		if condition == before.conditions[kind] {
			continue
		}

		changed = true

		l.recorder.Record("", history.KindStatus, map[string]string{
			"object": objectName(event), "condition": kind,
			"status": condition.Status, "reason": condition.Reason, "message": condition.Message, "by": event.by(),
		})
	}

	return changed
}

// UnmarshalJSON decodes a status that may have any shape.
func (s *resultStatus) UnmarshalJSON(text []byte) error {
	type plain resultStatus

	// The status of a Node or of a failed request is another one.
	if json.Unmarshal(text, (*plain)(s)) != nil {
		*s = resultStatus{}
	}

	return nil
}
