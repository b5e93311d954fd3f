// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// presentPolicy is the one that was asked for, without the nodes that have left since
// the run began: a name that was right then is no mistake of the configuration,
// and the rest of the cluster does not have to stop for it. All names are right
// when a run begins, or it would not have.
func (s *rollout) presentPolicy(observed cluster.Snapshot) cluster.Policy {
	asked := s.run.request.Policy
	if !s.begun || observed.KubernetesError != nil || observed.DiscoveryError != nil {
		return asked
	}

	there := make(map[string]bool, len(observed.Nodes)+len(observed.Foreign))
	for _, node := range observed.Nodes {
		there[node.Name] = !node.Left()
	}

	for _, name := range observed.Foreign {
		there[name] = true
	}

	asked.Canary = slices.DeleteFunc(slices.Clone(asked.Canary), func(name string) bool { return s.hasLeft(there, name) })
	asked.Hold = present(s, there, asked.Hold)
	asked.Images = present(s, there, asked.Images)
	asked.Retry = present(s, there, asked.Retry)

	return asked
}

// present are the entries of the nodes that are there.
func present[V any](s *rollout, there map[string]bool, entries map[string]V) map[string]V {
	kept := maps.Clone(entries)

	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if s.hasLeft(there, name) {
			delete(kept, name)
		}
	}

	return kept
}

// hasLeft tells whether a node that the policy names is no longer there, and
// says so the first time.
func (s *rollout) hasLeft(there map[string]bool, name string) bool {
	if there[name] {
		return false
	}

	if !s.departed[name] {
		s.departed[name] = true
		s.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: name, Text: fmt.Sprintf(
			"%s, which canary or node_overrides names, has left the cluster; the run goes on without it", name)})
	}

	return true
}
