// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkDefects looks for what is known against the versions of Talos that nodes leave or are
// upgraded to.
func (p *planner) checkDefects() {
	for _, hop := range p.made.Hops {
		if hop.Product == version.Talos {
			p.checkReached(hop.To.Talos)
		}
	}

	// Nodes by what is known against the versions that they leave, in the order of the nodes.
	var (
		leaving = map[compat.Stop][]string{}
		found   []compat.Stop
	)

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.moves == 0 || node.Machine == nil {
			continue
		}

		for _, stop := range compat.Stops(node.Machine.Talos) {
			if stop.When != compat.Running {
				continue
			}

			if leaving[stop] == nil {
				found = append(found, stop)
			}

			leaving[stop] = append(leaving[stop], node.Name)
		}
	}

	for _, stop := range found {
		p.addDefect(stop, leaving[stop], cluster.Finding{Severity: cluster.Advice, Attribute: attributeTalos, Found: "Talos " + versionsOf(stop)})
	}
}

// checkReached looks at a version that nodes are upgraded to. Where that is not the target, somebody
// has named it in intermediate_versions, or it is the newest of its release line.
func (p *planner) checkReached(talos version.Version) {
	finding := cluster.Finding{Severity: cluster.Permanent, Attribute: attributeTalos, Found: "Talos " + talos.String()}
	if !talos.Equal(p.target.Talos) {
		finding.Attribute = attributeIntermediate
	}

	advice := finding
	advice.Severity = cluster.Advice

	for _, stop := range compat.Stops(talos) {
		switch stop.When {
		case compat.Withdrawn:
			p.addDefect(stop, nil, finding)
		case compat.BootsUKI:
			// Through the firmware the node would meet it at once.
			through, around := p.bootingUKI(talos)
			p.addDefect(stop, through, finding)
			p.addDefect(stop, around, advice)
		case compat.Running:
		}
	}
}

// bootingUKI are the nodes that boot a UKI and have a step to the version: those whose reboot goes
// through the firmware, and all others.
func (p *planner) bootingUKI(talos version.Version) (through, around []string) {
	nodes := make(map[string]*plannedNode, len(p.nodes))
	for i := range p.nodes {
		nodes[p.nodes[i].Name] = &p.nodes[i]
	}

	for _, step := range p.made.Steps {
		node := nodes[step.Node]

		switch {
		case step.Component != "" || !step.To.Equal(talos) || node == nil || node.Machine == nil || !node.Machine.BootedWithUKI:
		case p.policy.RebootModeOf(step.Node) == cluster.RebootPowercycle:
			through = append(through, step.Node)
		default:
			around = append(around, step.Node)
		}
	}

	return through, around
}

// addDefect completes a finding that names versions by what is known against them, and adds it.
// What is not about a withdrawn version is about nodes: without any, nothing is added.
func (p *planner) addDefect(stop compat.Stop, nodes []string, finding cluster.Finding) {
	finding.Check = cluster.CheckDefects
	finding.Found += fmt.Sprintf(" %s (%s)", stop.Reason, stop.Source)
	finding.Remedy = stop.Remedy

	switch {
	case stop.When == compat.Withdrawn:
		finding.Remedy += fmt.Sprintf(` preflight = { skip = [%q] } upgrades to it all the same, from where its images still are.`, cluster.CheckDefects)
	case len(nodes) == 0:
		return
	case len(nodes) == 1:
		finding.Node = nodes[0]
	default:
		finding.Found += "; it concerns " + readable.List(nodes)
	}

	p.add(finding)
}

// versionsOf are the versions of a stop, for people.
func versionsOf(stop compat.Stop) string {
	if stop.First.Equal(stop.Last) {
		return stop.First.String()
	}

	return fmt.Sprintf("%s to %s", stop.First, stop.Last)
}
