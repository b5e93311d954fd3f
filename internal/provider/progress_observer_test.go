// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/terraform-plugin-log/tflogtest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestEventsAreLogged(t *testing.T) {
	var written bytes.Buffer

	log := progressLog{ctx: tflogtest.RootLogger(t.Context(), &written)}
	half := cluster.Progress{Managed: true, Done: 2, Total: 5}

	log.Observe(cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-0", Component: cluster.APIServer, Step: cluster.StepConfigure, Talos: half, Kubernetes: half})
	log.Observe(cluster.Event{Kind: cluster.EventRollingBack, Node: "worker-1", To: version.MustParse("1.13.0"), Text: "not\x1b ready", Err: errors.New("late\r")})
	log.Observe(cluster.Event{Kind: cluster.EventNodeStep, Node: "worker-1", Step: cluster.StepRollback})
	log.Observe(cluster.Event{Kind: cluster.EventRunFailed, Component: cluster.Manifests, Text: "why", Err: errors.New("because"), Talos: cluster.Progress{Done: 2, Total: 5}})

	entries, err := tflogtest.MultilineJSONDecode(&written)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}

	for index, want := range []map[string]any{
		{
			"@level": "info", "@message": "upgrade: node-started", "node": "cp-0", "component": "kube-apiserver", "step": "configure",
			"talos_progress": "2/5", "kubernetes_progress": "2/5", "error": nil, "to": nil,
		},
		{"@level": "warn", "@message": "upgrade: rolling-back: not\\x1b ready", "node": "worker-1", "to": "1.13.0", "error": `late\r`},
		{"@level": "info", "@message": "upgrade: node-step", "node": "worker-1", "step": "rollback"},
		{
			"@level": "warn", "@message": "upgrade: run-failed: why", "node": nil, "component": "manifests", "error": "because",
			"talos_progress": nil, "kubernetes_progress": nil,
		},
	} {
		for field, value := range want {
			if got := entries[index][field]; got != value {
				t.Errorf("entry %d: %s is %v, want %v", index, field, got, value)
			}
		}
	}
}
