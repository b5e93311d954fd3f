// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// Select returns the policy with what its selectors choose in the observation, and findings about that. What the
// policy has selected already comes from earlier observations of the same run: a node that was held stays held,
// and a canary stays a canary, whatever its labels say now.
//
// The labels of a node without a Node object are unknown: it is held if a selector could hold it, and takes up a
// place in every pool. If the Kubernetes API does not answer at all, nothing is chosen anew and no node is held
// for that reason, because the observation is refused as a whole.
func Select(observed cluster.Observation, policy cluster.Policy) (cluster.Policy, []cluster.Finding) {
	if policy.CanarySelector == nil && len(policy.SelectorOverrides)+len(policy.Pools) == 0 {
		return policy, nil
	}

	if observed.KubernetesError != nil {
		return policy, nil
	}

	s := &selection{nodes: observed.Managed(), policy: policy, earlier: policy.Selected}

	s.hold()
	s.chooseSettings()
	s.chooseCanaries()
	s.fillPools()

	return s.policy, s.findings
}

// selection is a choice in the making.
type selection struct {
	nodes    []cluster.Node
	policy   cluster.Policy
	earlier  cluster.Selection
	findings []cluster.Finding
}

// chosenBy reports whether the selector chooses the node. It chooses no node whose labels could not be read.
func chosenBy(selector cluster.Selector, node *cluster.Node) bool {
	return node.Kube != nil && selector.Matches(node.Kube.Labels)
}

// hold holds the nodes that an element of selector_overrides holds, could hold, or held in an earlier
// observation.
func (s *selection) hold() {
	held := map[string]cluster.Hold{}

	for name, before := range s.earlier.Held {
		before.Earlier = true
		held[name] = before
	}

	for i := range s.nodes {
		node := &s.nodes[i]

		index := slices.IndexFunc(s.policy.SelectorOverrides, func(o cluster.SelectorOverride) bool {
			return o.Hold && (node.Kube == nil || chosenBy(o.Selector, node))
		})
		if index >= 0 {
			held[node.Name] = cluster.Hold{Override: index, Unread: node.Kube == nil}
		}
	}

	s.policy.Selected.Held = held

	for index, override := range s.policy.SelectorOverrides {
		if !slices.ContainsFunc(s.nodes, func(node cluster.Node) bool { return chosenBy(override.Selector, &node) }) {
			s.idle(attributeSelectorOverrides, []cluster.Within{cluster.Index(index), fieldSelector}, override.Selector, "node")
		}
	}
}

// idle reports a selector that chooses nothing.
func (s *selection) idle(attribute string, within []cluster.Within, selector cluster.Selector, what string) {
	s.findings = append(s.findings, cluster.Finding{
		Check: cluster.CheckSelectors, Severity: cluster.Advice, Attribute: attribute, Within: within,
		Found:  fmt.Sprintf("no %s of the cluster has labels that the selector %q matches, so that it has no effect now", what, selector),
		Remedy: "Compare it with kubectl get nodes --show-labels. Where such nodes are only expected, nothing is wrong.",
	})
}

// chooseSettings sets the images and the reboot modes of the nodes that elements of selector_overrides choose.
func (s *selection) chooseSettings() {
	s.policy.Selected.Overrides = s.choose(setting{
		what: "installer image", field: fieldImage,
		of:    func(override cluster.SelectorOverride) string { return override.Image },
		named: func(node string) bool { return s.policy.Images[node] != "" },
	})
	s.policy.Selected.RebootModes = s.choose(setting{
		what: "reboot mode", field: fieldRebootMode,
		of:    func(override cluster.SelectorOverride) string { return string(override.RebootMode) },
		named: func(node string) bool { return s.policy.RebootModes[node] != "" },
	})
}

// setting is something that an element of selector_overrides can set for the nodes that it chooses.
type setting struct {
	// what is its name for people, field the field of the element.
	what  string
	field cluster.Within
	// of returns what an element sets; empty if it sets nothing.
	of func(override cluster.SelectorOverride) string
	// named reports whether node_overrides set it for the node.
	named func(node string) bool
}

// choose returns, by node, the element that sets something, and refuses two elements that set different things. A
// node for which node_overrides set it needs no element.
func (s *selection) choose(what setting) map[string]int {
	chosen := map[string]int{}

	for i := range s.nodes {
		node := &s.nodes[i]

		for index, override := range s.policy.SelectorOverrides {
			if what.of(override) == "" || !chosenBy(override.Selector, node) || what.named(node.Name) {
				continue
			}

			first, again := chosen[node.Name]

			switch other := s.policy.SelectorOverrides[first]; {
			case !again:
				chosen[node.Name] = index
			case what.of(other) != what.of(override):
				s.findings = append(s.findings, cluster.Finding{
					Check: cluster.CheckSelectors, Severity: cluster.Permanent, Node: node.Name,
					Attribute: attributeSelectorOverrides, Within: []cluster.Within{cluster.Index(index), what.field},
					Found: fmt.Sprintf("the selector %q gives the node the %s %s, and %q gives it %s",
						other.Selector, what.what, what.of(other), override.Selector, what.of(override)),
					Remedy: "Change a selector or a label so that one of them matches, or name the " + what.what + " of this node in node_overrides.",
				})
			}
		}
	}

	return chosen
}

// chooseCanaries adds the canaries that the selector chooses to those that are named. A node that is held when it
// becomes a canary is a contradiction. A canary that is held later stays a canary, and the other nodes wait for
// it.
func (s *selection) chooseCanaries() {
	known := slices.Clone(s.earlier.Canaries)
	chosen := 0

	for i := range s.nodes {
		node := &s.nodes[i]
		selected := s.policy.CanarySelector != nil && chosenBy(s.policy.CanarySelector, node)

		if node.Role != cluster.Worker || !selected && !slices.Contains(s.policy.Canary, node.Name) {
			continue
		}

		if selected {
			chosen++
		}

		if slices.Contains(known, node.Name) {
			continue
		}

		known = append(known, node.Name)

		// Contradictions between names alone are found by checkNames.
		hold, byLabels := s.policy.Selected.Held[node.Name]
		if (selected || byLabels) && s.policy.Holds(node.Name) && !hold.Unread {
			s.findings = append(s.findings, s.contradiction(node.Name, selected))
		}
	}

	s.policy.Selected.Canaries = known

	if s.policy.CanarySelector != nil && chosen == 0 {
		s.idle(attributeCanarySelector, nil, s.policy.CanarySelector, "worker")
	}
}

// contradiction returns the finding about a node that is both held and a canary.
func (s *selection) contradiction(name string, selected bool) cluster.Finding {
	finding := cluster.Finding{
		Check: cluster.CheckCanary, Severity: cluster.Permanent, Node: name, Attribute: attributeCanarySelector,
		Remedy: "Take one of both away: it cannot go first and stay where it is.",
	}

	first := "canary"
	if selected {
		first = fmt.Sprintf("canary_selector %q", s.policy.CanarySelector)
	} else {
		finding.Attribute, finding.Within = canaryAt(s.policy, name)
	}

	finding.Found = fmt.Sprintf("the node is to be left alone (%s) and to move first (%s)", HeldBy(s.policy, name), first)

	return finding
}

// fillPools puts the workers into their pools, and refuses a worker that is in two pools.
func (s *selection) fillPools() {
	pools := make([]cluster.SelectedPool, 0, len(s.policy.Pools))
	of := map[string][]string{}

	for _, pool := range s.policy.Pools {
		filled := cluster.SelectedPool{Pool: pool}

		for i := range s.nodes {
			node := &s.nodes[i]

			switch {
			case node.Role != cluster.Worker:
			case node.Kube == nil:
				filled.Unread = append(filled.Unread, node.Name)
			case chosenBy(pool.Selector, node):
				filled.Workers = append(filled.Workers, node.Name)
				of[node.Name] = append(of[node.Name], fmt.Sprintf("%s (%s)", pool.Name, pool.Selector))
			}
		}

		if len(filled.Workers) == 0 {
			s.idle(attributePools, []cluster.Within{cluster.Key(pool.Name), fieldSelector}, pool.Selector, "worker")
		}

		pools = append(pools, filled)
	}

	s.policy.Selected.Pools = pools

	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(of[name]) < 2 {
			continue
		}

		s.findings = append(s.findings, cluster.Finding{
			Check: cluster.CheckSelectors, Severity: cluster.Permanent, Node: name, Attribute: attributePools,
			Found:  "the node is in more than one pool: " + readable.List(of[name]),
			Remedy: "Change the selectors or the labels of the node (kubectl get node " + name + " --show-labels) so that one of them matches.",
		})
	}
}

// HeldBy says why a held node is left alone, a phrase for people.
func HeldBy(policy cluster.Policy, name string) string {
	var by []string

	hold, byLabels := policy.Selected.Held[name]

	if policy.Hold[name] || !byLabels {
		by = append(by, attributeOverrides)
	}

	if byLabels {
		selector := policy.SelectorOverrides[hold.Override].Selector

		switch {
		case hold.Unread:
			by = append(by, fmt.Sprintf("its labels could not be read, and %s %q may match them", attributeSelectorOverrides, selector))
		case hold.Earlier:
			by = append(by, fmt.Sprintf("%s %q matched it when this run looked earlier", attributeSelectorOverrides, selector))
		default:
			by = append(by, fmt.Sprintf("%s %q", attributeSelectorOverrides, selector))
		}
	}

	return strings.Join(by, " and ")
}

// holdAt returns the attribute that holds the node, for a finding to point at.
func holdAt(policy cluster.Policy, name string) (attribute string, within []cluster.Within) {
	hold, byLabels := policy.Selected.Held[name]
	if policy.Hold[name] || !byLabels {
		return attributeOverrides, []cluster.Within{cluster.Key(name), fieldHold}
	}

	return attributeSelectorOverrides, []cluster.Within{cluster.Index(hold.Override), fieldHold}
}

// canaryAt returns the attribute that makes the node a canary, for a finding to point at.
func canaryAt(policy cluster.Policy, name string) (attribute string, within []cluster.Within) {
	if index := slices.Index(policy.Canary, name); index >= 0 {
		return attributeCanary, []cluster.Within{cluster.Index(index)}
	}

	return attributeCanarySelector, nil
}
