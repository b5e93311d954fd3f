// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestWarningsOfARunAreShownAtItsEnd(t *testing.T) {
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
			var told warningLog

			for _, event := range test.events {
				told.Observe(event)
			}

			got := told.diagnostics("demo")
			if test.want == "" {
				check(t, got)

				return
			}

			if len(got) != 1 || got[0].Summary() != "Worth knowing about what was done (demo)" || got[0].Detail() != test.want {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}

func TestWarningsOfALongRunStayReadable(t *testing.T) {
	var told warningLog

	for index := range 1000 {
		told.Observe(cluster.Event{Kind: cluster.EventWarning, Text: fmt.Sprintf("trouble %d", index)})
	}

	lines := strings.Split(told.diagnostics("demo")[0].Detail(), "\n")
	if len(lines) != 21 || lines[20] != "- and 980 more, which are in the log (TF_LOG_PROVIDER=WARN)" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}
