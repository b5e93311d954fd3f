// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// Labels change during a run. In each observation, the selectors of the policy choose again which nodes are held
// and which are canaries, and neither is revoked before the run has ended: a held node is not started, and the
// others wait for each canary. For images, reboot modes and pools, the last observation counts.

// selected is what the selectors of the policy have chosen in a run. The lock of shared guards it.
type selected struct {
	policy cluster.Policy
	// began are the nodes that were held when the run began, said those whose hold was reported since.
	began map[string]cluster.Hold
	said  map[string]bool
}

// newSelected begins with what the first observation of the run chose.
func newSelected(policy cluster.Policy) selected {
	return selected{policy: policy, began: policy.Selected.Held, said: map[string]bool{}}
}

// add adds what another observation chose, and returns the policy with everything that was chosen so far.
func (s *selected) add(fresh cluster.Selection) cluster.Policy {
	held := maps.Clone(s.policy.Selected.Held)
	canaries := slices.Clone(s.policy.Selected.Canaries)

	if held == nil {
		held = map[string]cluster.Hold{}
	}

	maps.Copy(held, fresh.Held)

	for _, name := range fresh.Canaries {
		if !slices.Contains(canaries, name) {
			canaries = append(canaries, name)
		}
	}

	fresh.Held, fresh.Canaries = held, canaries
	s.policy.Selected = fresh

	return s.policy
}

// news is [shared.holdNews].
func (s *selected) news(policy cluster.Policy, node string) string {
	hold, held := policy.Selected.Held[node]
	_, before := s.began[node]

	switch {
	case !held || policy.Hold[node] || s.said[node] || before && !hold.Earlier:
		return ""
	case hold.Earlier:
		s.said[node] = true

		return fmt.Sprintf("%s stays held until this run ends (%s); the next apply decides anew", node, plan.HeldBy(policy, node))
	default:
		// The hold is reported now; if its label is removed, that is reported as well.
		s.began = with(s.began, node, hold)

		return fmt.Sprintf("%s is held from now on (%s): nothing new is begun on it", node, plan.HeldBy(policy, node))
	}
}

func with(holds map[string]cluster.Hold, node string, hold cluster.Hold) map[string]cluster.Hold {
	more := maps.Clone(holds)
	if more == nil {
		more = map[string]cluster.Hold{}
	}

	more[node] = hold

	return more
}
