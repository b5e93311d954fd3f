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

// Select is the policy with what its selectors choose in the observation, and what
// is wrong with that. What the policy has selected before are earlier looks of the
// same run: a node that was held stays held, and a canary stays one, whatever its
// labels say now.
//
// A node without a Node object has labels that nobody can read: it is held where a
// selector could hold it, and takes up a place in every pool. Where the Kubernetes
// API does not answer at all nothing is chosen anew, and no node held for that: the
// observation is refused as a whole.
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

// chosenBy tells whether the selector chooses the node. It chooses none whose labels
// cannot be read.
func chosenBy(selector cluster.Selector, node *cluster.Node) bool {
	return node.Kube != nil && selector.Matches(node.Kube.Labels)
}

// hold holds the nodes that an element of selector_overrides holds, could hold, or
// held at an earlier look.
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

// idle says that a selector chooses nothing.
func (s *selection) idle(attribute string, within []cluster.Within, selector cluster.Selector, what string) {
	s.findings = append(s.findings, cluster.Finding{
		Check: cluster.CheckSelectors, Severity: cluster.Advice, Attribute: attribute, Within: within,
		Found:  fmt.Sprintf("no %s of the cluster has labels that the selector %q matches, so that it has no effect now", what, selector),
		Remedy: "Compare it with kubectl get nodes --show-labels. Where such nodes are only expected, nothing is wrong.",
	})
}

// chooseSettings gives the nodes the images and the reboot modes of the elements that choose
// them.
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

// setting is what an element of selector_overrides can say of the nodes that it chooses.
type setting struct {
	// what it is, for people, and the field of the element.
	what  string
	field cluster.Within
	// of is what an element sets; empty where it sets nothing.
	of func(override cluster.SelectorOverride) string
	// named tells whether node_overrides set it for the node.
	named func(node string) bool
}

// choose finds, by node, the element that sets something, and refuses two that set
// different things. A node of which node_overrides say it needs none.
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

// chooseCanaries adds the canaries that the selector chooses to those that have a
// name. To be held and to move first at the same look is a contradiction; a canary
// that is held later stays a canary, behind which the others wait.
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

		// What names alone contradict is found with the names.
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

// contradiction is the finding about a node that is held and a canary.
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

// fillPools puts the workers into their pools, and refuses one that is in two.
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

// HeldBy says what leaves a held node alone, a phrase for people.
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

// holdAt points a finding at what holds the node.
func holdAt(policy cluster.Policy, name string) (attribute string, within []cluster.Within) {
	hold, byLabels := policy.Selected.Held[name]
	if policy.Hold[name] || !byLabels {
		return attributeOverrides, []cluster.Within{cluster.Key(name), fieldHold}
	}

	return attributeSelectorOverrides, []cluster.Within{cluster.Index(hold.Override), fieldHold}
}

// canaryAt points a finding at what makes the node a canary.
func canaryAt(policy cluster.Policy, name string) (attribute string, within []cluster.Within) {
	if index := slices.Index(policy.Canary, name); index >= 0 {
		return attributeCanary, []cluster.Within{cluster.Index(index)}
	}

	return attributeCanarySelector, nil
}
