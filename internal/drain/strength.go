// SPDX-License-Identifier: MPL-2.0

package drain

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// strength is how many pods a budget covers when all are there that there are to
// be.
type strength struct {
	// pods are those that the controllers want, and those that nobody counts: of
	// no controller, or of one that does not tell.
	pods int
	// managed tells that one of them has a controller.
	managed bool
	// owners are the controllers that were counted. A budget covers one namespace.
	owners map[string]bool
}

// add adds a pod that is covered. One that goes away and is not counted on stays
// away.
func (s *strength) add(pod *cluster.WorkloadPod) {
	s.managed = s.managed || pod.Owner != ""

	switch {
	case pod.Owner != "" && pod.Replicas > 0:
		if s.owners == nil {
			s.owners = map[string]bool{}
		}

		if !s.owners[pod.Owner] {
			s.owners[pod.Owner] = true
			s.pods += pod.Replicas
		}
	case !pod.Terminating:
		s.pods++
	}
}

// most is how many pods of a budget there may be, as far as anyone knows.
func (f *forecast) most(budget int) int {
	return max(f.budgets[budget].Expected, f.strength[budget].pods)
}
