// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// patched is the line of a patch of annotations that was answered with an object.
func patched(t *testing.T, agent string, version int, patch, now map[string]any) auditEvent {
	t.Helper()

	object := func(annotations map[string]any) json.RawMessage {
		prefixed := map[string]any{}
		for key, value := range annotations {
			prefixed[annotationPrefix+key] = value
		}

		text, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"annotations": prefixed, "resourceVersion": fmt.Sprint(version),
		}})
		if err != nil {
			t.Fatal(err)
		}

		return text
	}

	event := auditEvent{Verb: "patch", UserAgent: agent, RequestObject: object(patch), ResponseObject: object(now)}
	event.ObjectRef.APIGroup, event.ObjectRef.Resource = "vitistack.io", "kubernetesclusters"
	event.ObjectRef.Namespace, event.ObjectRef.Name = "tenant-a", "prod"
	event.ResponseStatus.Code = 200

	return event
}

func TestWritersOfOneObjectAreToldApart(t *testing.T) {
	t.Parallel()

	type keys = map[string]any

	first := patched(t, providerAgent, 11, keys{"do-not-reconcile": "talosupgrade-1"}, keys{"do-not-reconcile": "talosupgrade-1"})
	second := patched(t, "operator", 12, keys{"talos-status": "failed"}, keys{"do-not-reconcile": "talosupgrade-1", "talos-status": "failed"})
	third := patched(t, providerAgent, 13, keys{"talos-status": "in-progress"},
		keys{"do-not-reconcile": "talosupgrade-1", "talos-status": "in-progress"})

	told := func(key, value, by string) history.Event {
		return history.Event{Kind: history.KindAnnotation, Detail: map[string]string{
			"object": "KubernetesCluster/tenant-a/prod", "key": key, "value": value, "by": by,
		}}
	}
	late := func(by string) history.Event {
		return history.Event{Kind: history.KindWrite, Detail: map[string]string{
			"verb": "patch", "resource": "kubernetesclusters", "namespace": "tenant-a", "name": "prod", "by": by, "code": "200",
		}}
	}

	for name, test := range map[string]struct {
		lines []auditEvent
		want  []history.Event
	}{
		"in order": {[]auditEvent{first, second, third}, []history.Event{
			told("do-not-reconcile", "talosupgrade-1", "client"), told("talos-status", "failed", "other"), told("talos-status", "in-progress", "client"),
		}},
		"the first is read last": {[]auditEvent{second, third, first}, []history.Event{
			told("talos-status", "failed", "other"), told("talos-status", "in-progress", "client"), told("do-not-reconcile", "talosupgrade-1", "client"),
		}},
		"what is overwritten already": {[]auditEvent{third, second}, []history.Event{
			told("talos-status", "in-progress", "client"), late("other"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			notes := &notebook{}
			ledger := newLedger(notes)

			for _, line := range test.lines {
				ledger.take(line)
			}

			expect(t, notes.since(0), test.want...)
		})
	}
}
