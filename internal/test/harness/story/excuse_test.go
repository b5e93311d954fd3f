// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// excuse is what somebody else did that makes certain violations unavoidable.
type excuse struct {
	why        string
	invariants []checker.Invariant
	// node is empty for any, says what the violation has to say.
	node, says  string
	from, until time.Duration
}

func (s *stage) excuse(made excuse) {
	made.from = s.World().Now()
	if made.until == 0 {
		made.until = 1 << 62
	} else {
		made.until += made.from
	}

	s.excuses = append(s.excuses, made)
	s.touched = time.Now()
}

// excused tells why a violation is nobody's fault; empty when it is.
func (s *stage) excused(broken checker.Violation) string {
	at := time.Duration(broken.Time * float64(time.Second))

	for _, e := range s.excuses {
		// The history rounds.
		if slices.Contains(e.invariants, broken.Invariant) && (e.node == "" || e.node == broken.Node) &&
			strings.Contains(broken.What, e.says) && at >= e.from-time.Millisecond && at <= e.until {
			return e.why
		}
	}

	if s.mistaken(broken) {
		return "the judge knows less than the machines do"
	}

	return ""
}

// mistaken tells whether the judge knows less than the machines do: it has not
// been told that kube-proxy on a node that joined is as new as everywhere, or it
// wants a canary to go through a leg that lies behind it.
func (s *stage) mistaken(broken checker.Violation) bool {
	states := s.World().Nodes()

	if strings.HasPrefix(broken.What, "kubernetes-") && len(s.joined) > 0 {
		claimed, moved := len(states), 0
		// Whatever is no progress is about all of them.
		_, _ = fmt.Sscanf(broken.What, "kubernetes-progress says %d/", &claimed)

		for _, state := range states {
			if runs(state, s.hop.toKubernetes) {
				moved++
			}
		}

		return moved >= claimed
	}

	return s.hop.name == "two minors" && slices.ContainsFunc(states, func(state model.NodeState) bool {
		// It has passed this leg with an older patch, which has no turn for it.
		return strings.Contains(broken.What, fmt.Sprintf("before the canary %s ran Talos 1.12.", state.Name)) && version.MustParse(state.Talos).AtLeast(1, 12)
	})
}
