// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// nodeStages are those of a node.
const nodeStages = rule.Cordon | rule.Install | rule.Reboot | rule.SendBack

// DropGuards makes the engine disturb nodes without asking any guard. Tests
// plant a bug with it.
func (e *Engine) DropGuards() { e.rules = nil }

// DropGuard makes the engine forget one guard.
func (e *Engine) DropGuard(name string) {
	e.rules = slices.DeleteFunc(slices.Clone(e.rules), func(r rule.Rule) bool { return r.Name == name })
}

// TellPermits has somebody told why the engine may do what it does.
func (e *Engine) TellPermits(told func(line string)) { e.permitted = told }

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
	policy := asked.Policy
	policy.MaxUnavailable = asked.Share

	return rule.Judge(rule.Table(), nodeStages, rule.View{
		Observation: asked.Snapshot, Step: asked.Step, Run: asked.Run, Policy: policy, Others: asked.Others,
	})
}
