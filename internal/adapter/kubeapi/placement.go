// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// placement knows which nodes a pod may run on. What one pod found out serves
// all that want the same.
type placement struct {
	nodes []*corev1.Node
	known map[string][]string
}

// newPlacement takes nodes sorted by name, and leaves them with the taints that
// keep pods away.
func newPlacement(nodes []*corev1.Node) *placement {
	for _, node := range nodes {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			// A node that is cordoned or not ready is one that fits, but not now.
			return toldApart(taint) || !keepsAway(taint)
		})
	}

	return &placement{nodes: nodes, known: map[string][]string{}}
}

// fits are the names of the nodes that a pod may run on, sorted. Its own node is
// always one of them: a taint or a label may have changed since it came there.
func (p *placement) fits(one *draft, bindings []nodeBinding) []string {
	key := one.constraint.key

	var bound strings.Builder
	for _, binding := range bindings {
		bound.WriteString("\n")
		bound.WriteString(binding.key)
	}

	key += bound.String()

	names, known := p.known[key]
	if !known {
		for _, node := range p.nodes {
			if one.constraint.admits(node) && reached(node, bindings) {
				names = append(names, node.Name)
			}
		}

		p.known[key] = slices.Clip(names)
	}

	at, found := slices.BinarySearch(names, one.pod.Node)
	if found || one.pod.Node == "" {
		return names
	}

	return slices.Insert(slices.Clone(names), at, one.pod.Node)
}

// admits tells whether the pod wants the node and tolerates its taints. What
// cannot be understood matches nothing, as for the scheduler.
func (c *constraint) admits(node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		// Comparisons in tolerations are there only if the API server let them in.
		if !scheduling.TolerationsTolerateTaint(klog.Logger{}, c.tolerations, &node.Spec.Taints[i], true) {
			return false
		}
	}

	matches, err := c.affinity.Match(node)

	return err == nil && matches
}

func reached(node *corev1.Node, bindings []nodeBinding) bool {
	return !slices.ContainsFunc(bindings, func(binding nodeBinding) bool {
		matches, err := binding.selector.Match(node)

		return err != nil || !matches
	})
}
