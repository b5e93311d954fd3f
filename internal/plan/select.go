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
	s.chooseImages()
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

// chooseImages gives the nodes their images, and refuses two for one node. One that
// has an image by name needs none.
func (s *selection) chooseImages() {
	s.policy.Selected.Overrides = map[string]int{}

	for i := range s.nodes {
		node := &s.nodes[i]

		for index, override := range s.policy.SelectorOverrides {
			if override.Image == "" || !chosenBy(override.Selector, node) || s.policy.Images[node.Name] != "" {
				continue
			}

			first, again := s.policy.Selected.Overrides[node.Name]

			switch other := s.policy.SelectorOverrides[first]; {
			case !again:
				s.policy.Selected.Overrides[node.Name] = index
			case other.Image != override.Image:
				s.findings = append(s.findings, cluster.Finding{
					Check: cluster.CheckSelectors, Severity: cluster.Permanent, Node: node.Name,
					Attribute: attributeSelectorOverrides, Within: []cluster.Within{cluster.Index(index), fieldImage},
					Found:  fmt.Sprintf("the selector %q gives the node the installer image %s, and %q gives it %s", other.Selector, other.Image, override.Selector, override.Image),
					Remedy: "Change a selector or a label so that one of them matches, or name the image of this node in node_overrides.",
				})
			}
		}
	}
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
