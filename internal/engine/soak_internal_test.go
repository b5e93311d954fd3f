// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// TestSoak_MovedNodesSpeakForThemselves is about what a turn of another node is told of a
// node that was moved, before it has touched its own and afterwards.
func TestSoak_MovedNodesSpeakForThemselves(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := plan.Step{Node: "worker-0", Role: cluster.Worker}

	for name, given := range map[string]struct {
		ready, own     bool
		after          time.Duration
		before, behind string
	}{
		"healthy for a moment":    {ready: true, after: 30 * time.Second, before: "worker-0 is healthy for 30s"},
		"not Ready":               {after: 30 * time.Second, before: "worker-0 is not healthy: it is not Ready", behind: "worker-0 is not healthy: it is not Ready"},
		"healthy for long enough": {ready: true, after: 3 * time.Minute},
		"the turn's own":          {own: true, after: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newSoak(2 * time.Minute)
			w.watch(step, now, now)

			seen := rule.View{Step: plan.Step{Node: "worker-1"}, Observation: cluster.Observation{Nodes: []cluster.Node{{
				Name: "worker-0", Role: cluster.Worker, Machine: &cluster.Machine{Stage: cluster.StageRunning, Ready: true},
				Kube: &cluster.KubeNode{Ready: given.ready, ReadyReason: "KubeletNotReady", ReadySince: now},
			}}}}
			if given.own {
				seen.Step = step
			}

			for touched, want := range map[bool]string{false: given.before, true: given.behind} {
				findings := w.unsettled(seen, now.Add(given.after), touched)
				wording.NoteFindings(t, findings)

				if len(findings) > 0 != (want != "") || len(findings) > 0 && !strings.Contains(findings[0].Found, want) {
					t.Errorf("touched %t: got %+v, want %q", touched, findings, want)
				}
			}
		})
	}
}

// TestSoak_NodeThatNobodyHasLookedAtIsNotOverdue: its upgrade ended while an observation of the others was made.
func TestSoak_NodeThatNobodyHasLookedAtIsNotOverdue(t *testing.T) {
	t.Parallel()

	const settle = 2 * time.Minute

	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newSoak(settle)
	w.watch(plan.Step{Node: "worker-0", Role: cluster.Worker}, now, now)
	w.judge(cluster.Observation{Nodes: []cluster.Node{{Name: "worker-0", Role: cluster.Worker}}}, now)

	if state := w.state(now, nil); !state.waiting || state.overdue != nil {
		t.Errorf("at first it is %+v", state)
	}

	w.judge(cluster.Observation{Nodes: []cluster.Node{{Name: "worker-0", Role: cluster.Worker, Unreachable: cluster.ErrUnreachable}}}, now)

	if state := w.state(now.Add(settle+guardTimeout), nil); state.late != "worker-0" {
		t.Errorf("after its time it is %+v", state)
	}
}
