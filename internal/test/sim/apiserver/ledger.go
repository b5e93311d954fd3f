// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The objects of an upgrade, all in the namespace kube-system.
const (
	namespaceSystem = "kube-system"
	leaseName       = "talosupgrade"
	journalName     = "talosupgrade-journal"
	publishedName   = "talosupgrade"
	// prefixPublished is the prefix of the annotations that publish the progress of an upgrade.
	prefixPublished = "upgrade.vitistack.io/"
	// annotationSuspend on the lease suspends the upgrades of a cluster.
	annotationSuspend = prefixPublished + "suspend"
)

// tell records a change of an object. before is nil if it was created, now if it was deleted. It reports whether
// the history has a kind of event for that; it records nothing that the cluster does by itself.
func (s *Server) tell(who actor, of *table, before, now object) (told bool) {
	if who == itself() {
		return true
	}

	at := key{}

	for _, one := range []object{before, now} {
		if one != nil {
			at = keyOf(one)
		}
	}

	own := at.namespace == namespaceSystem

	switch {
	case of.name == resourceNodes:
		cordoned, labelled := s.tellCordon(who, at.name, before, now), s.tellLabels(at.name, before, now)
		told = cordoned || labelled
	case own && of.name == resourceLeases && at.name == leaseName:
		return s.tellLease(who, before, now)
	case own && of.name == resourceConfigMaps && at.name == journalName:
		return s.tellJournal(who, before, now)
	case of.custom != nil:
		told = s.tellStatus(who, of.kind+"/"+at.namespace+"/"+at.name, before, now)
	case of.name != resourceConfigMaps:
		return false
	}

	return s.tellAnnotations(who, of, at, before, now) || told
}

// tellCordon records a cordon that was set or lifted.
func (s *Server) tellCordon(who actor, name string, before, now object) bool {
	had, has := cordonOf(before), cordonOf(now)
	if had.Unschedulable == has.Unschedulable {
		return false
	}

	detail := who.detail("unschedulable", strconv.FormatBool(has.Unschedulable))
	if has.Unschedulable && has.Run != "" {
		detail["run"] = has.Run
	}

	s.record(name, history.KindCordon, detail)

	return true
}

// tellLabels records the labels of a node, without those of its kubelet, if they changed.
func (s *Server) tellLabels(name string, before, now object) bool {
	had, has := givenLabels(name, before), givenLabels(name, now)
	if now == nil || maps.Equal(had, has) {
		return false
	}

	s.record(name, history.KindLabel, map[string]string{"labels": pairs(has)})

	return true
}

func givenLabels(name string, node object) map[string]string {
	if node == nil {
		return nil
	}

	given := maps.Clone(node.GetLabels())
	for label := range kubeletLabels(model.KubeState{Name: name, Role: model.ControlPlane}) {
		delete(given, label)
	}

	return given
}

// pairs returns labels with commas between them, sorted by name.
func pairs(labels map[string]string) string {
	var list []string
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, label+"="+labels[label])
	}

	return strings.Join(list, ",")
}

// tellLease records who holds the lease now. A change of neither holder nor time is not recorded.
func (s *Server) tellLease(who actor, before, now object) bool {
	had, renewedBefore := holding(before)
	holder, renewed := holding(now)
	action := "renew"

	switch {
	case holder == had && (holder == "" || renewed == renewedBefore):
		return false
	case holder == "":
		action = "release"
	case holder != had:
		action = "acquire"
	}

	s.record("", history.KindLease, who.detail("holder", holder, "action", action))

	return true
}

// holding returns who holds a lease, and the time of the last renewal.
func holding(of object) (holder, renewed string) {
	lease, ok := of.(*coordinationv1.Lease)
	if !ok {
		return "", ""
	}

	if given := lease.Spec.HolderIdentity; given != nil {
		holder = *given
	}

	if given := lease.Spec.RenewTime; given != nil {
		renewed = given.String()
	}

	return holder, renewed
}

// tellJournal records each record of the journal that changed.
func (s *Server) tellJournal(who actor, before, now object) bool {
	changed := changesBetween(dataOf(before), dataOf(now))

	for _, one := range changed {
		entry := one.now
		if entry == "" {
			entry = one.before
		}

		node, _, run := journalFields(entry)

		s.record(node, history.KindJournal, who.detail("key", one.key, "run", run, "phase", phaseOf(one.key, one.now), "value", one.now))
	}

	return len(changed) > 0
}

// phaseOf returns the phase of the work in a record of the journal; empty for a record without work, and for one
// that is gone.
func phaseOf(key, value string) string {
	switch {
	case value == "", key == "format", key == "holder", key == "etcd-snapshot":
		return ""
	case key == "manifests":
		// A sync of them is due as long as there is a record of it.
		return "due"
	}

	_, phase, _ := journalFields(value)

	// Work that cannot be parsed may be unfinished.
	return cmp.Or(phase, "unreadable")
}

func dataOf(of object) map[string]string {
	held, ok := of.(*corev1.ConfigMap)
	if !ok {
		return nil
	}

	return held.Data
}

// journalFields returns the fields of a record of the journal; empty for those that it does not have.
func journalFields(value string) (node, phase, run string) {
	var entry struct {
		Node  string `json:"node"`
		Phase string `json:"phase"`
		Run   string `json:"run"`
	}

	// A record that cannot be parsed has none of them; the history has its value as it is.
	if json.Unmarshal([]byte(value), &entry) != nil {
		return "", "", ""
	}

	return entry.Node, entry.Phase, entry.Run
}

// tellAnnotations records each annotation of the protocol that changed.
func (s *Server) tellAnnotations(who actor, of *table, at key, before, now object) bool {
	changed := changesBetween(publishedOn(before), publishedOn(now))
	node := ""

	if of.name == resourceNodes {
		node = at.name
	}

	for _, one := range changed {
		s.record(node, history.KindAnnotation, who.detail("object", of.kind+"/"+at.namespace+"/"+at.name, "key", one.key, "value", one.now))
	}

	return len(changed) > 0
}

// publishedOn returns the annotations of the protocol, by key without prefix.
func publishedOn(of object) map[string]string {
	if of == nil {
		return nil
	}

	published := map[string]string{}

	for name, value := range of.GetAnnotations() {
		if key, ours := strings.CutPrefix(name, prefixPublished); ours {
			published[key] = value
		}
	}

	return published
}

// tellStatus records what changed in the status of a custom object.
func (s *Server) tellStatus(who actor, name string, before, now object) bool {
	had, has := statusOf(before), statusOf(now)

	fields := changesBetween(had.fields, has.fields)
	for _, one := range fields {
		s.record("", history.KindStatus, who.detail("object", name, "field", one.key, "value", one.now))
	}

	conditions := changesBetween(had.conditions, has.conditions)
	for _, one := range conditions {
		status, reason, message := conditionFields(one.now)
		s.record("", history.KindStatus, who.detail("object", name, "condition", one.key, "status", status, "reason", reason, "message", message))
	}

	return len(fields)+len(conditions) > 0
}

// status is what the history has of the status of a custom object. The conditions are by type, with status, reason
// and message on lines of their own.
type status struct{ fields, conditions map[string]string }

func statusOf(of object) status {
	made := status{fields: map[string]string{}, conditions: map[string]string{}}

	custom, ok := of.(*unstructured.Unstructured)
	if !ok {
		return made
	}

	for _, field := range []string{"phase", "state", "message"} {
		if value, _, _ := unstructured.NestedString(custom.Object, "status", field); value != "" {
			made.fields[field] = value
		}
	}

	listed, _, _ := unstructured.NestedSlice(custom.Object, "status", "conditions")
	for _, entry := range listed {
		fields, _ := entry.(map[string]any)
		text := func(field string) string { value, _ := fields[field].(string); return value }
		made.conditions[text("type")] = text("status") + "\n" + text("reason") + "\n" + text("message")
	}

	return made
}

func conditionFields(condition string) (status, reason, message string) {
	status, rest, _ := strings.Cut(condition, "\n")
	reason, message, _ = strings.Cut(rest, "\n")

	return status, reason, message
}

// difference is a key of a map whose value changed; before and now are empty if there was, or is, none.
type difference struct{ key, before, now string }

// changesBetween lists the differences, by key.
func changesBetween(before, now map[string]string) []difference {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(now))
	slices.Sort(keys)

	var changed []difference

	for _, key := range slices.Compact(keys) {
		old, had := before[key]

		value, has := now[key]
		if had != has || old != value {
			changed = append(changed, difference{key, old, value})
		}
	}

	return changed
}
