// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// DropGuards makes the engine disturb nodes without asking any guard. Tests
// plant a bug with it.
func (e *Engine) DropGuards() { e.guards, e.componentGuards = nil, nil }

// DropGuard makes the engine forget one guard.
func (e *Engine) DropGuard(name string) {
	forgotten := func(g guard) bool { return g.name == name }
	e.guards = slices.DeleteFunc(slices.Clone(e.guards), forgotten)
	e.componentGuards = slices.DeleteFunc(slices.Clone(e.componentGuards), forgotten)
}

// HoldUpGuards does something when a guard is asked, after the observation.
func (e *Engine) HoldUpGuards(meanwhile func()) {
	e.guards = append(slices.Clone(e.guards), guard{name: "slow", check: func(guardInput) []cluster.Finding {
		meanwhile()

		return nil
	}})
}

// Asked is a situation, as guards are asked about it.
type Asked struct {
	Snapshot cluster.Observation
	Step     plan.Step
	Run      string
	Share    cluster.Share
	// Others are the nodes of other turns, true where those began before.
	Others map[string]bool
	Policy cluster.Policy
}

// Judge asks all guards.
func Judge(asked Asked) []cluster.Finding {
	var findings []cluster.Finding

	for _, guard := range defaultGuards() {
		policy := asked.Policy
		policy.MaxUnavailable = asked.Share

		findings = append(findings, guard.check(guardInput{
			Observation: asked.Snapshot, step: asked.Step, run: asked.Run, policy: policy, others: asked.Others,
		})...)
	}

	return findings
}
