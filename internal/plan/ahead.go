// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// below is a target that is older than what runs. A suffix that people take for
// a variant, such as -slim, makes it that: it is explained.
func below(target, running version.Version) string {
	if target.Core().Equal(running.Core()) {
		return fmt.Sprintf("%s (a pre-release, which comes before %s)", target, target.Core())
	}

	return target.String()
}

// checkComponentsAhead refuses a target below what runs, and below what machine
// configurations name, which runs soon. All nodes are one finding, because a
// target that is too low concerns them all.
func (p *planner) checkComponentsAhead(highest version.Version) {
	if p.target.Kubernetes.IsZero() {
		return
	}

	var running, named []ahead

	nodes := map[string]bool{}

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		if found := p.newerRunning(node); len(found.components) > 0 {
			running, nodes[node.Name] = append(running, found), true
		}

		if found := p.newerNamed(node); len(found.components) > 0 {
			named, nodes[node.Name] = append(named, found), true
		}
	}

	if len(nodes) == 0 {
		return
	}

	finding := cluster.Finding{
		Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeKubernetes,
		Remedy: fmt.Sprintf("Set kubernetes_version to %s or newer.", highest),
	}

	if len(running) == 0 {
		finding.Remedy = fmt.Sprintf("Set kubernetes_version to %s or newer, or correct the machine configuration.", highest)
	}

	var seen []string

	if len(nodes) == 1 {
		for name := range nodes {
			finding.Node = name
		}

		seen = append(aheadOfOne("the node runs", running), aheadOfOne("the machine configuration names", named)...)
	} else {
		seen = append(aheadOfMany("Kubernetes up to %s runs on %s", running), aheadOfMany("the machine configuration names Kubernetes up to %s on %s", named)...)
	}

	finding.Found = fmt.Sprintf("%s, newer than the target %s, and downgrades are not done", strings.Join(seen, ", and "), below(p.target.Kubernetes, highest))
	p.find(finding)
}

// ahead is what of a node is newer than the target.
type ahead struct {
	node       string
	components []string
	highest    version.Version
}

func (a *ahead) note(component cluster.Component, v version.Version) {
	a.components = append(a.components, fmt.Sprintf("%s %s", component, v))
	a.highest = version.Highest(a.highest, v)
}

// newerRunning are the components of the node that run a newer version than the
// target.
func (p *planner) newerRunning(node *subject) ahead {
	found := ahead{node: node.Name}

	for _, component := range cluster.Components(node.Role) {
		if disables(node.Node, component) {
			continue
		}

		running := node.Versions[component]
		if component == cluster.Proxy && running.Compare(node.pod) != 0 && !node.unnamed(component) {
			// Its pods do not count.
			continue
		}

		if running.Compare(p.target.Kubernetes) > 0 {
			found.note(component, running)
		}
	}

	return found
}

// unnamed tells that nothing is named for the component, so that what runs has
// to tell its version.
func (s *subject) unnamed(component cluster.Component) bool {
	for i := range s.parts {
		if s.parts[i].component == component {
			return s.parts[i].named.IsZero()
		}
	}

	return false
}

// newerNamed are the components for which the machine configuration of the node
// names a newer version than the target, while they do not run a newer one.
func (p *planner) newerNamed(node *subject) ahead {
	found := ahead{node: node.Name}

	for i := range node.parts {
		t := &node.parts[i]

		runs := t.running
		if t.component == cluster.Proxy {
			runs = version.Highest(runs, node.pod)
		}

		if t.named.Compare(p.target.Kubernetes) > 0 && runs.Compare(p.target.Kubernetes) <= 0 {
			found.note(t.component, t.named)
		}
	}

	return found
}

func aheadOfOne(says string, found []ahead) []string {
	if len(found) == 0 {
		return nil
	}

	return []string{says + " " + strings.Join(found[0].components, ", ")}
}

func aheadOfMany(format string, found []ahead) []string {
	if len(found) == 0 {
		return nil
	}

	var highest version.Version

	names := make([]string, 0, len(found))
	for i := range found {
		names = append(names, found[i].node)
		highest = version.Highest(highest, found[i].highest)
	}

	return []string{fmt.Sprintf(format, highest, listed(names))}
}
