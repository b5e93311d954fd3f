// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Bound is how many workers may be unavailable at a time, or how many of their kubelets may restart: all workers,
// or those of a pool.
type Bound struct {
	// Says is the attribute with its value and its workers, as in "max_unavailable = 25% of 8 workers".
	Says string
	// Budget is the number, at least 1 if there are workers.
	Budget int

	pool *cluster.SelectedPool
}

// Bounds returns the bound of all workers and those of the pools. A step needs a free place in each bound that
// covers its worker.
func Bounds(observed cluster.Observation, policy cluster.Policy) []Bound {
	return bounds(observed, policy, "max_unavailable", policy.MaxUnavailable)
}

// KubeletBounds is like [Bounds], for restarts of kubelets.
func KubeletBounds(observed cluster.Observation, policy cluster.Policy) []Bound {
	return bounds(observed, policy, "kubernetes.max_unavailable_kubelets", policy.Kubernetes.MaxUnavailableKubelets)
}

func bounds(observed cluster.Observation, policy cluster.Policy, attribute string, most cluster.Share) []Bound {
	all := make([]Bound, 0, 1+len(policy.Selected.Pools))
	all = append(all, Bound{Says: fmt.Sprintf("%s = %s of %d workers", attribute, most, observed.CountWorkers()), Budget: observed.Budget(most)})

	for i := range policy.Selected.Pools {
		pool := &policy.Selected.Pools[i]
		all = append(all, Bound{
			Says: fmt.Sprintf("pools[%q].max_unavailable = %s of %d workers", pool.Name, pool.MaxUnavailable, len(pool.Workers)), Budget: pool.Budget(), pool: pool,
		})
	}

	return all
}

// Covers reports whether a step of the worker takes up a place.
func (b Bound) Covers(worker string) bool { return b.pool == nil || b.pool.Has(worker) }

// Counts reports whether the worker takes up a place while it is unavailable.
func (b Bound) Counts(worker string) bool { return b.pool == nil || b.pool.Counts(worker) }

// Pool returns the name of the pool; empty for the bound of all workers.
func (b Bound) Pool() string {
	if b.pool == nil {
		return ""
	}

	return b.pool.Name
}

// atLeast returns the line of a configuration that allows the given number of workers to be unavailable.
func (b Bound) atLeast(places int) string {
	if b.pool == nil {
		return fmt.Sprintf("max_unavailable = \"%d\"", places)
	}

	return fmt.Sprintf("pools[%q].max_unavailable = \"%d\"", b.pool.Name, places)
}

// PoolAt returns the attribute of a pool's bound, for a finding to point at.
func PoolAt(pool string) (attribute string, within []cluster.Within) {
	return attributePools, []cluster.Within{cluster.Key(pool), fieldMaxUnavailable}
}
