// SPDX-License-Identifier: MPL-2.0

package cluster

import "slices"

// Selector chooses nodes by their labels.
type Selector interface {
	// Matches tells whether a node with these labels is chosen.
	Matches(labels map[string]string) bool
	// String is the selector as kubectl spells it, such as "pool=gpu".
	String() string
}

// SelectorOverride is what [Policy] says of every node that a selector chooses.
type SelectorOverride struct {
	Selector Selector
	// Hold leaves the nodes alone.
	Hold bool
	// Image, whose tag says nothing, replaces [Target.InstallerImage]; empty replaces nothing.
	Image string
	// RebootMode replaces [Policy.RebootMode]; empty replaces nothing.
	RebootMode RebootMode
}

// Pool is a part of the workers with a bound of its own.
type Pool struct {
	Name     string
	Selector Selector
	// MaxUnavailable bounds the workers of the pool that are unavailable at a time,
	// within [Policy.MaxUnavailable], and those whose kubelets restart, within
	// [KubernetesPolicy.MaxUnavailableKubelets].
	MaxUnavailable Share
}

// Selection is what the selectors of a policy choose among the nodes of an
// observation. The zero value chooses none.
type Selection struct {
	// Canaries are the names of all canaries, whether a name or the selector makes them
	// that. Those of earlier looks stay.
	Canaries []string
	// Held says, by name, why a selector leaves the node alone. Those of earlier looks
	// stay.
	Held map[string]Hold
	// Overrides are, by name, the index in [Policy.SelectorOverrides] of the element
	// that gives the node its installer image.
	Overrides map[string]int
	// RebootModes are, by name, the index of the element that says how the node restarts.
	RebootModes map[string]int
	// Pools are those of the policy, in its order.
	Pools []SelectedPool
}

// Hold is why a selector leaves a node alone.
type Hold struct {
	// Override is the index in [Policy.SelectorOverrides] of the first element that
	// chooses the node, or could.
	Override int
	// Unread tells that the labels of the node could not be read.
	Unread bool
	// Earlier tells that an earlier look found that, and the last one did not.
	Earlier bool
}

// SelectedPool is a pool with the workers in it.
type SelectedPool struct {
	Pool

	// Workers are the names of those that the selector chooses.
	Workers []string
	// Unread are the names of the workers that may belong to it: their labels could
	// not be read, so they count as unavailable.
	Unread []string
}

// Budget is how many workers of the pool may be unavailable at a time, as
// [Share.Of] rounds it.
func (p SelectedPool) Budget() int { return p.MaxUnavailable.Of(len(p.Workers)) }

// Has tells whether the worker is one of the pool.
func (p SelectedPool) Has(worker string) bool { return slices.Contains(p.Workers, worker) }

// Counts tells whether the worker takes up a place in the pool while it is
// unavailable.
func (p SelectedPool) Counts(worker string) bool {
	return p.Has(worker) || slices.Contains(p.Unread, worker)
}

// PoolOf is the name of the pool that the worker belongs to; empty where there is
// none.
func (s Selection) PoolOf(worker string) string {
	for _, pool := range s.Pools {
		if pool.Has(worker) {
			return pool.Name
		}
	}

	return ""
}
