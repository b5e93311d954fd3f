// SPDX-License-Identifier: MPL-2.0

package diagnostic

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-log/tflogtest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestObserver_LogsEvents(t *testing.T) {
	var written bytes.Buffer

	log := NewProgress(tflogtest.RootLogger(t.Context(), &written))
	half := cluster.Progress{Managed: true, Done: 2, Total: 5}

	log.Observe(cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-0", Component: cluster.APIServer, Step: cluster.StepConfigure, Talos: half, Kubernetes: half})
	log.Observe(cluster.Event{Kind: cluster.EventRollingBack, Node: "worker-1", To: version.MustParse("1.13.0"), Text: "not\x1b ready", Err: errors.New("late\r")})
	log.Observe(cluster.Event{Kind: cluster.EventNodeStep, Node: "worker-1", Step: cluster.StepRollback})
	log.Observe(cluster.Event{Kind: cluster.EventRunFailed, Component: cluster.Manifests, Text: "why", Err: errors.New("because"), Talos: cluster.Progress{Done: 2, Total: 5}})

	log.Permitted("permitted to reboot worker-1; lease\x1b renewed")

	entries, err := tflogtest.MultilineJSONDecode(&written)
	if err != nil || len(entries) != 5 {
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
		{"@level": "debug", "@message": `upgrade: permitted to reboot worker-1; lease\x1b renewed`},
	} {
		for field, value := range want {
			if got := entries[index][field]; got != value {
				t.Errorf("entry %d: %s is %v, want %v", index, field, got, value)
			}
		}
	}
}

func TestObserver_WarningsAreShownAtTheEndOfARun(t *testing.T) {
	warn := func(node, text string) cluster.Event {
		return cluster.Event{Kind: cluster.EventWarning, Node: node, Text: text}
	}
	finding := cluster.Finding{Check: cluster.CheckEtcdAlarms, Node: "cp-0", Found: "etcd raised NOSPACE", Remedy: "Defragment it.", Skipped: true}

	for name, test := range map[string]struct {
		events []cluster.Event
		want   string
	}{
		"nothing": {nil, ""},
		"nothing worth a warning": {[]cluster.Event{
			{Kind: cluster.EventNodeDone, Node: "cp-0", Text: "done"}, {Kind: cluster.EventWaiting, Text: "waiting"}, {Kind: cluster.EventRunFailed, Text: "failed"},
		}, ""},
		"takeover":      {[]cluster.Event{warn("", "taking over the lease of ci-7, which has not been renewed for 30s")}, "- Taking over the lease of ci-7, which has not been renewed for 30s."},
		"skipped check": {[]cluster.Event{warn(finding.Node, finding.String())}, "- cp-0: etcd raised NOSPACE (check etcd-alarms, skipped). Defragment it."},
		"rollback": {[]cluster.Event{
			{Kind: cluster.EventRollingBack, Node: "worker-1", To: version.MustParse("1.13.0"), Text: "not ready"},
			{Kind: cluster.EventRollingBack, Node: "worker-1", To: version.MustParse("1.13.0"), Text: "not ready"},
		}, "- worker-1: to be sent back to Talos 1.13.0, because it did not become healthy with its new system."},
		"lines of a log": {
			[]cluster.Event{warn("worker-1", "the log ends with\nfailed to start\n  controller=x")},
			"- worker-1: the log ends with\n    failed to start\n      controller=x.",
		},
		"the same of several nodes": {[]cluster.Event{
			warn("worker-0", "only cordoned"), warn("", "only cordoned"), warn("worker-1", "only cordoned"), warn("worker-0", "only cordoned"),
		}, "- worker-0, worker-1: only cordoned.\n- Only cordoned."},
	} {
		t.Run(name, func(t *testing.T) {
			var told Warnings

			for _, event := range test.events {
				told.Observe(event)
			}

			got := told.Diagnostics("demo")
			if test.want == "" {
				if len(got) != 0 {
					t.Errorf("got %v", got)
				}

				return
			}

			if len(got) != 1 || got[0].Summary() != "Worth knowing about what was done (demo)" || got[0].Detail() != test.want {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}

func TestObserver_WarningsOfALongRunStayReadable(t *testing.T) {
	var told Warnings

	for index := range 1000 {
		told.Observe(cluster.Event{Kind: cluster.EventWarning, Text: fmt.Sprintf("trouble %d", index)})
	}

	lines := strings.Split(told.Diagnostics("demo")[0].Detail(), "\n")
	if len(lines) != 21 || lines[20] != "- and 980 more, which are in the log (TF_LOG_PROVIDER=WARN)" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}
