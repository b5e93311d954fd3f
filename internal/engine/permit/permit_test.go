// SPDX-License-Identifier: MPL-2.0

package permit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// now is the present of all rows.
func now() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// world is one in which nothing stands in the way but what the rules find: a look that ended a second
// ago, and another upgrade beside.
func world(role cluster.Role, found ...cluster.Finding) permit.World {
	return permit.World{
		View:   rule.View{Step: plan.Step{Node: "node-0", Role: role}, Others: map[string]bool{"worker-9": true}},
		Rules:  []rule.Rule{{Stages: rule.Cordon | rule.Install | rule.Reboot | rule.SendBack | rule.Component, Check: func(rule.View) []cluster.Finding { return found }}},
		Looked: fact.Steps{All: 7, Grave: 2}, Seen: now().Add(-time.Second),
		Now: fact.Moment{At: now(), Steps: fact.Steps{All: 7, Grave: 2}}, Leased: true,
	}
}

// The findings of the rows.
func blocking(check string) cluster.Finding {
	return cluster.Finding{Check: check, Severity: cluster.Observed, Node: "worker-1", Found: "it is so"}
}

func budget() cluster.Finding {
	found := blocking(rule.CheckBudget)
	found.Attribute = "max_unavailable"

	return found
}

func denied() cluster.Finding {
	found := blocking(cluster.CheckTalosAPI)
	found.Err = cluster.ErrDenied

	return found
}

func away() cluster.Finding {
	found := blocking(cluster.CheckTalosAPI)
	found.Err = cluster.ErrUnreachable

	return found
}

// errOver is why no other node is begun.
var errOver = errors.New("the window has closed")

// TestPermit is what is made of what stands in the way, a row each.
func TestPermit(t *testing.T) {
	t.Parallel()

	cordon := permit.Ask{Stage: rule.Cordon, Cordons: true, Acts: true}
	install, act := permit.Ask{Stage: rule.Install}, permit.Ask{Stage: rule.Install, Acts: true, Judged: true}
	reboot := permit.Ask{Stage: rule.Reboot, Installed: true}
	component := permit.Ask{Stage: rule.Component, Acts: true}
	cordoned, retried := cordon, cordon
	cordoned.Cordoned, retried.Retried = true, true

	alone := func(w *permit.World) { w.Others = nil }
	doubtful := func(w *permit.World) { w.Untouched, w.Doubtful = true, []string{"worker-3"} }
	over := func(w *permit.World) { w.Untouched, w.Over = true, errOver }
	old := func(w *permit.World) { w.Seen = now().Add(-permit.MostAge - time.Second) }
	unleased := func(w *permit.World) { w.Leased = false }
	workerStep := func(w *permit.World) { w.Now.Steps.All++ }
	graveStep := func(w *permit.World) { w.Now.Steps = fact.Steps{All: 8, Grave: 3} }
	occupied := func(w *permit.World) { w.Occupied = true; w.Now.Steps.All++ }
	occupiedGrave := func(w *permit.World) { graveStep(w); w.Occupied = true }
	skipped := func(w *permit.World) { w.Policy.SkipChecks = map[string]bool{cluster.CheckExternalChanges: true} }
	closed := func(w *permit.World) { w.Closed = []cluster.Finding{blocking(cluster.CheckGates)} }

	skippedGate := func(w *permit.World) {
		closed(w)
		w.Policy.SkipChecks = map[string]bool{cluster.CheckGates: true}
	}

	unknown := blocking(cluster.CheckSuspended)
	unknown.Err = cluster.ErrUnreachable

	gate, canary, moved, room := blocking(cluster.CheckGates), blocking(cluster.CheckCanary), blocking(rule.CheckSettle), blocking(rule.CheckRoom)
	suspended, held, operator, alarm := blocking(cluster.CheckSuspended), blocking(cluster.CheckSelectors), blocking(cluster.CheckOperator), blocking(cluster.CheckExternalChanges)

	for name, test := range map[string]struct {
		ask    permit.Ask
		role   cluster.Role
		found  []cluster.Finding
		change func(*permit.World)
		want   permit.Kind
		err    error
		slow   bool
		// as is the error of the verdict, where its type matters.
		as string
	}{
		"nothing in the way of a cordon":                       {ask: cordon, want: permit.Go},
		"nothing in the way of an install":                     {ask: install, want: permit.Go},
		"a finding of a rule":                                  {ask: install, found: []cluster.Finding{alarm}, want: permit.Wait},
		"the policy skips the rule":                            {ask: install, found: []cluster.Finding{alarm}, change: skipped, want: permit.Go},
		"no waiting helps":                                     {ask: install, found: []cluster.Finding{denied()}, want: permit.Abort, err: cluster.ErrDenied},
		"an operator acts":                                     {ask: install, found: []cluster.Finding{operator}, want: permit.Abort, err: permit.ErrOccupied},
		"an operator acts, and a label holds the node":         {ask: cordon, found: []cluster.Finding{held, operator}, want: permit.Abort, err: permit.ErrOccupied},
		"a label holds the node":                               {ask: cordon, found: []cluster.Finding{held}, want: permit.Yield, err: permit.ErrYield, as: "*permit.LeftError"},
		"suspended before the cordon":                          {ask: cordon, found: []cluster.Finding{suspended}, want: permit.Yield, err: permit.ErrStopped, as: "*permit.LeftError"},
		"others use up the budget":                             {ask: cordon, found: []cluster.Finding{budget()}, want: permit.Yield, err: permit.ErrYield, as: "*errors.errorString"},
		"the budget is used up by nobody of this run":          {ask: cordon, found: []cluster.Finding{budget()}, change: alone, want: permit.Wait},
		"others used up the budget since the cordon":           {ask: cordoned, found: []cluster.Finding{budget()}, want: permit.Yield, err: permit.ErrYield},
		"the budget is used up before a reboot":                {ask: reboot, found: []cluster.Finding{budget()}, want: permit.Wait},
		"the budget is used up before the second try":          {ask: retried, found: []cluster.Finding{budget()}, want: permit.Wait},
		"others took the room":                                 {ask: cordon, found: []cluster.Finding{room}, want: permit.Yield, err: permit.ErrYield, as: "*permit.NoPlaceError"},
		"others took the room since the cordon":                {ask: cordoned, found: []cluster.Finding{room}, want: permit.Wait},
		"a moved node is not settled":                          {ask: cordon, found: []cluster.Finding{moved}, want: permit.Yield, err: permit.ErrYield, as: "*permit.WaitsError"},
		"a moved node is ill behind the cordon":                {ask: install, found: []cluster.Finding{moved}, want: permit.Wait},
		"budget, and a rule that no other upgrade cures":       {ask: cordon, found: []cluster.Finding{budget(), alarm}, want: permit.Wait},
		"a gate closed before the cordon":                      {ask: cordon, found: []cluster.Finding{gate}, want: permit.Yield, err: permit.ErrGateClosed},
		"a gate, and a rule":                                   {ask: cordon, found: []cluster.Finding{gate, alarm}, want: permit.Wait},
		"a gate, and others use up the budget":                 {ask: cordon, found: []cluster.Finding{gate, budget()}, want: permit.Yield, err: permit.ErrYield},
		"the canary fails behind the cordon":                   {ask: install, found: []cluster.Finding{canary}, want: permit.Wait},
		"the lease has to be renewed":                          {ask: install, change: unleased, want: permit.Wait},
		"the look behind a cordon is old":                      {ask: cordon, change: old, want: permit.Wait, slow: true},
		"the look is old, and nothing is done yet":             {ask: install, change: old, want: permit.Go},
		"the look is old when it is acted on":                  {ask: act, change: old, want: permit.Wait, slow: true},
		"the rules are not asked again to act":                 {ask: act, found: []cluster.Finding{alarm}, want: permit.Go},
		"another worker was rebooted since the look":           {ask: act, change: workerStep, want: permit.Wait},
		"another worker, and this one was out of service":      {ask: act, change: occupied, want: permit.Go},
		"a control plane, and this worker was out of service":  {ask: act, change: occupiedGrave, want: permit.Wait},
		"a worker was rebooted since the look at this control": {ask: act, role: cluster.ControlPlane, change: occupied, want: permit.Wait},
		"another worker was rebooted before a cordon":          {ask: cordon, change: workerStep, want: permit.Go},
		"no other node is begun":                               {ask: cordon, change: over, want: permit.Yield, err: errOver},
		"what became of a node is not clear":                   {ask: cordon, change: doubtful, want: permit.Yield, err: permit.ErrStopped},
		"no other component is begun":                          {ask: component, change: over, want: permit.Yield, err: errOver},
		"a component, and another node was changed":            {ask: component, change: workerStep, want: permit.Wait},
		"a component on an old look":                           {ask: component, change: old, want: permit.Go},
		"a gate of a component":                                {ask: component, found: []cluster.Finding{alarm}, change: closed, want: permit.Yield, err: permit.ErrGateClosed},
		"a canary that a kubelet follows":                      {ask: component, found: []cluster.Finding{canary}, want: permit.Yield, err: permit.ErrYield, as: "*permit.LeftError"},
		"what waiting may cure has an error, too":              {ask: install, found: []cluster.Finding{away()}, want: permit.Wait},
		"nobody can tell whether upgrades are suspended":       {ask: cordon, found: []cluster.Finding{unknown}, want: permit.Wait},
		"acting without the lease":                             {ask: act, change: unleased, want: permit.Wait},
		"a gate closed behind our own cordon":                  {ask: cordoned, found: []cluster.Finding{gate}, want: permit.Wait},
		"a gate closed before the second try":                  {ask: retried, found: []cluster.Finding{gate}, want: permit.Wait},
		"a moved node is ill behind our own cordon":            {ask: cordoned, found: []cluster.Finding{moved}, want: permit.Wait},
		"there is no room, and nobody beside":                  {ask: cordon, found: []cluster.Finding{room}, change: alone, want: permit.Wait},
		"no other node is begun, and this one was":             {ask: cordon, change: func(w *permit.World) { w.Over = errOver }, want: permit.Go},
		"no other node is begun, and one is not clear":         {ask: cordon, change: func(w *permit.World) { doubtful(w); w.Over = errOver }, want: permit.Yield, err: errOver},
		"a look of ten seconds":                                {ask: act, change: func(w *permit.World) { w.Seen = now().Add(-10 * time.Second) }, want: permit.Go},
		"a look of more than ten seconds":                      {ask: act, change: func(w *permit.World) { w.Seen = now().Add(-10*time.Second - 1) }, want: permit.Wait, slow: true},
		"a suspended component":                                {ask: component, change: func(w *permit.World) { w.Closed = []cluster.Finding{suspended} }, want: permit.Yield, err: permit.ErrYield, as: "*permit.LeftError"},
		"a component that a label holds":                       {ask: component, found: []cluster.Finding{held}, want: permit.Yield, as: "*permit.LeftError", err: permit.ErrStopped},
		"a component, and an operator acts":                    {ask: component, found: []cluster.Finding{operator}, want: permit.Abort, err: permit.ErrOccupied},
		"a skipped gate of a component":                        {ask: component, found: []cluster.Finding{alarm}, change: skippedGate, want: permit.Wait},
		"gates that are asked for a node are no shortcut":      {ask: cordon, found: []cluster.Finding{alarm}, change: closed, want: permit.Wait},
		"a component gives way to no other":                    {ask: component, found: []cluster.Finding{budget()}, want: permit.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			role := test.role
			if role == "" {
				role = cluster.Worker
			}

			w := world(role, test.found...)
			if test.change != nil {
				test.change(&w)
			}

			got := permit.Permit(w, test.ask)
			if got.Kind != test.want || !errors.Is(got.Err, test.err) || got.Slow != test.slow {
				t.Errorf("got %+v, want %d with %v, slow %t", got, test.want, test.err, test.slow)
			}

			if as := fmt.Sprintf("%T", got.Err); test.as != "" && as != test.as {
				t.Errorf("the error is a %s, want a %s", as, test.as)
			}

			if got.Kind == permit.Wait && got.Missing == "" {
				t.Error("nothing says what is waited for")
			}

			if got.Kind == permit.Wait && len(test.found) > 0 && len(got.Findings) != len(test.found) {
				t.Errorf("the findings are %v", got.Findings)
			}
		})
	}
}

// TestPermit_SkippedFindingsAreKept: they stop nothing, and people are told of them.
func TestPermit_SkippedFindingsAreKept(t *testing.T) {
	t.Parallel()

	w := world(cluster.Worker, blocking(cluster.CheckExternalChanges), blocking(cluster.CheckEtcdQuorum))
	w.Policy.SkipChecks = map[string]bool{cluster.CheckExternalChanges: true}

	got := permit.Permit(w, permit.Ask{Stage: rule.Install})
	if len(got.Findings) != 1 || got.Findings[0].Check != cluster.CheckEtcdQuorum || len(got.Skipped) != 1 || got.Skipped[0].Check != cluster.CheckExternalChanges {
		t.Errorf("in the way %v, skipped %v", got.Findings, got.Skipped)
	}
}

// TestWorld_Line: each thing that is permitted has its words.
func TestWorld_Line(t *testing.T) {
	t.Parallel()

	for want, asked := range map[string]permit.Ask{
		"to cordon node-0":                {Stage: rule.Reboot, Cordons: true},
		"to install on node-0":            {Stage: rule.Install},
		"to reboot node-0":                {Stage: rule.Reboot},
		"to send node-0 back":             {Stage: rule.SendBack},
		"to restart kube-proxy on node-0": {Stage: rule.Component},
	} {
		w := world(cluster.Worker)
		w.Step.Component = cluster.Proxy
		w.Dates = []fact.Date{{What: "members", Got: now().Add(-time.Minute)}}

		want = "permitted " + want + "; ages of the facts: nodes 1s, members 1m0s; steps of this run before it: 7, 7 when the look began; " +
			"lease renewed 3s ago; other nodes under way: worker-9"
		if got := w.Line(asked, now().Add(-3*time.Second)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
