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
		p.addDefect(stop, versionsOf(stop), leaving[stop], cluster.Advice)
	}
}

// checkReached looks at a version that nodes are upgraded to.
func (p *planner) checkReached(talos version.Version) {
	for _, stop := range compat.Stops(talos) {
		switch stop.When {
		case compat.Withdrawn:
			p.addDefect(stop, talos.String(), nil, cluster.Permanent)
		case compat.BootsUKI:
			// Through the firmware the node would meet it at once.
			through, around := p.bootingUKI(talos)
			p.addDefect(stop, talos.String(), through, cluster.Permanent)
			p.addDefect(stop, talos.String(), around, cluster.Advice)
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

// addDefect says what is known against versions, about nodes where it is about some; then there
// have to be any.
func (p *planner) addDefect(stop compat.Stop, versions string, nodes []string, severity cluster.Severity) {
	if len(nodes) == 0 && stop.When != compat.Withdrawn {
		return
	}

	finding := cluster.Finding{
		Check: cluster.CheckDefects, Severity: severity, Attribute: attributeTalos,
		Found:  fmt.Sprintf("Talos %s %s (%s)", versions, stop.Reason, stop.Source),
		Remedy: stop.Remedy,
	}

	switch {
	case stop.When == compat.Withdrawn && !p.target.Talos.Equal(stop.First) && stop.First.Equal(stop.Last):
		finding.Attribute = attributeIntermediate
	case len(nodes) == 1:
		finding.Node = nodes[0]
	case len(nodes) > 1:
		finding.Found += "; it concerns " + readable.List(nodes)
	}

	if stop.When == compat.Withdrawn {
		finding.Remedy += fmt.Sprintf(` preflight = { skip = [%q] } upgrades to it all the same, from where its images still are.`, cluster.CheckDefects)
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
