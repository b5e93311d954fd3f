// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// record adds to the history what changed of the annotations of the protocol and
// of the status.
func (m *Memory) record(of cluster.Reference, old, wanted map[string]any, by string) {
	name := of.Kind + "/" + of.Namespace + "/" + of.Name

	before, after := annotationsOf(old), annotationsOf(wanted)
	for _, key := range union(before, after) {
		short, ours := strings.CutPrefix(key, prefix)
		if ours && before[key] != after[key] {
			m.world.Record("", history.KindAnnotation, map[string]string{"object": name, "key": short, "value": after[key], "by": by})
		}
	}

	for _, field := range []string{"phase", keyState, keyMessage} {
		if value := text(wanted, partStatus, field); value != text(old, partStatus, field) {
			m.world.Record("", history.KindStatus, map[string]string{"object": name, "field": field, "value": value, "by": by})
		}
	}

	hadConditions, hasConditions := conditionsOf(old), conditionsOf(wanted)
	for _, kind := range union(hadConditions, hasConditions) {
		if now := hasConditions[kind]; now != hadConditions[kind] {
			m.world.Record("", history.KindStatus, map[string]string{
				"object": name, "condition": kind, "status": now.status, "reason": now.reason, keyMessage: now.message, "by": by,
			})
		}
	}
}

// told is what the history tells of a condition.
type told struct{ status, reason, message string }

func conditionsOf(object map[string]any) map[string]told {
	listed, _ := section(object, partStatus)["conditions"].([]any)
	conditions := make(map[string]told, len(listed))

	for _, entry := range listed {
		fields, _ := entry.(map[string]any)
		conditions[text(fields, "type")] = told{text(fields, "status"), text(fields, "reason"), text(fields, keyMessage)}
	}

	return conditions
}

// union are the keys of both maps, in order.
func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)

	return slices.Compact(keys)
}
