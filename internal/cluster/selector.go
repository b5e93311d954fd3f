// SPDX-License-Identifier: MPL-2.0

package cluster

import "slices"

// Selector chooses nodes by their labels.
type Selector interface {
	// Matches reports whether a node with these labels is chosen.
	Matches(labels map[string]string) bool
	// String is the selector as kubectl spells it, such as "pool=gpu".
	String() string
}

// SelectorOverride is what [Policy] says about every node that a selector chooses.
type SelectorOverride struct {
	Selector Selector
	// Hold leaves the nodes alone.
	Hold bool
	// Image, whose tag is ignored, replaces [Target.InstallerImage]; empty replaces nothing.
	Image string
	// RebootMode replaces [Policy.RebootMode]; empty replaces nothing.
	RebootMode RebootMode
}

// Pool is a part of the workers with its own bound.
type Pool struct {
	Name     string
	Selector Selector
	// MaxUnavailable bounds the workers of the pool that are unavailable at a time, within
	// [Policy.MaxUnavailable], and those whose kubelets restart at a time, within
	// [KubernetesPolicy.MaxUnavailableKubelets].
	MaxUnavailable Share
}

// Selection is what the selectors of a policy choose among the nodes of an
// observation. The zero value chooses none.
type Selection struct {
	// Canaries are the names of all canaries, chosen by name or by the selector. Those from earlier observations
	// stay.
	Canaries []string
	// Held says, by name, why a selector leaves the node alone. Those from earlier observations stay.
	Held map[string]Hold
	// Overrides are, by name, the index in [Policy.SelectorOverrides] of the element that sets the node's
	// installer image.
	Overrides map[string]int
	// RebootModes are, by name, the index of the element that sets how the node restarts.
	RebootModes map[string]int
	// Pools are the pools of the policy, in its order.
	Pools []SelectedPool
}

// Hold is why a selector leaves a node alone.
type Hold struct {
	// Override is the index in [Policy.SelectorOverrides] of the first element that chooses the node, or could
	// choose it.
	Override int
	// Unread is true if the labels of the node could not be read.
	Unread bool
	// Earlier is true if the hold comes from an earlier observation and the last one did not confirm it.
	Earlier bool
}

// SelectedPool is a pool with the workers in it.
type SelectedPool struct {
	Pool

	// Workers are the names of the workers that the selector chooses.
	Workers []string
	// Unread are the names of the workers that may belong to the pool: their labels could not be read, so they
	// count as unavailable.
	Unread []string
}

// Budget returns how many workers of the pool may be unavailable at a time, rounded as in [Share.Of].
func (p SelectedPool) Budget() int { return p.MaxUnavailable.Of(len(p.Workers)) }

// Has reports whether the worker is in the pool.
func (p SelectedPool) Has(worker string) bool { return slices.Contains(p.Workers, worker) }

// Counts reports whether the worker counts against the budget of the pool while it is unavailable.
func (p SelectedPool) Counts(worker string) bool {
	return p.Has(worker) || slices.Contains(p.Unread, worker)
}

// PoolOf returns the name of the pool that the worker belongs to; empty if it belongs to none.
func (s Selection) PoolOf(worker string) string {
	for _, pool := range s.Pools {
		if pool.Has(worker) {
			return pool.Name
		}
	}

	return ""
}
