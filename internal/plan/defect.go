// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkDefects checks what is known against the versions of Talos that nodes leave or are upgraded to.
func (p *planner) checkDefects() {
	for _, hop := range p.made.Hops {
		if hop.Product == version.Talos {
			p.checkReached(hop.To.Talos)
		}
	}

	// leaving holds the nodes by what is known against the versions that they leave, in the order of the nodes.
	var (
		leaving = map[compat.Stop][]string{}
		found   []compat.Stop
	)

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.moves == 0 || node.Machine == nil {
			continue
		}

		for _, stop := range p.policy.Releases.Stops(node.Machine.Talos) {
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

// checkReached checks a version that nodes are upgraded to. If it is not the target, it was named in
// intermediate_versions, or it is the newest of its minor version.
func (p *planner) checkReached(talos version.Version) {
	finding := cluster.Finding{Severity: cluster.Permanent, Attribute: attributeTalos, Found: "Talos " + talos.String()}
	if !talos.Equal(p.target.Talos) {
		finding.Attribute = attributeIntermediate
	}

	advice := finding
	advice.Severity = cluster.Advice

	for _, stop := range p.policy.Releases.Stops(talos) {
		switch stop.When {
		case compat.Withdrawn:
			p.addDefect(stop, nil, finding)
		case compat.BootsUKI:
			// A node whose reboot goes through the firmware would meet the defect at once.
			through, around := p.bootingUKI(talos)
			p.addDefect(stop, through, finding)
			p.addDefect(stop, around, advice)
		case compat.Running:
		}
	}
}

// bootingUKI returns the nodes that boot a UKI and have a step to the version: those whose reboot goes through
// the firmware, and all others.
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

// addDefect completes a finding that names versions with what is known against them, and adds it. A finding that
// is not about a withdrawn version is added only if it concerns nodes.
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

// versionsOf returns the versions of a stop as text.
func versionsOf(stop compat.Stop) string {
	if stop.First.Equal(stop.Last) {
		return stop.First.String()
	}

	return fmt.Sprintf("%s to %s", stop.First, stop.Last)
}

// maxReleasesAge is how old the table of releases may be before a plan that depends on it says so. Talos and
// Kubernetes have a patch release about every month.
const maxReleasesAge = 90 * 24 * time.Hour

// checkReleases checks what the path takes from the table of releases: patches that nobody named, and known
// defects of those that somebody named.
func (p *planner) checkReleases() {
	var chosen, unheard []string

	table := p.policy.Releases

	for _, hop := range p.made.Hops {
		reached := hop.To.version(hop.Product)
		name := hop.Product.Name() + " " + reached.String()

		switch {
		case reached.Equal(hop.From.version(hop.Product)):
			// No version changes: nodes get another image, or manifests are synced.
		case !p.names(hop.Product, reached):
			chosen = append(chosen, name)
		case hop.Product == version.Talos && !slices.ContainsFunc(table.Releases(version.Talos), reached.Equal):
			// The table has no defects of Kubernetes.
			if newest, _ := table.Newest(version.Talos, reached.Minor()); newest.Less(reached) {
				unheard = append(unheard, name)
			}
		}
	}

	if len(chosen) > 0 && table.Unread != "" {
		p.add(cluster.Finding{
			Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeIntermediate,
			Found: fmt.Sprintf("release_source.table of the provider block could not be read (%s), and the patches to walk through are chosen with it; "+
				"the built-in table would give %s", table.Unread, readable.List(chosen)),
			Remedy: "Make that table readable, or name the patches in intermediate_versions.",
		})
	}

	if asOf, err := time.Parse(time.DateOnly, table.AsOf); err == nil && p.snapshot.Taken.Sub(asOf) > maxReleasesAge {
		p.adviseReleases(int(p.snapshot.Taken.Sub(asOf)/(24*time.Hour)), chosen, unheard)
	}
}

// names reports whether somebody named the version, as the target or as an intermediate version.
func (p *planner) names(product version.Product, reached version.Version) bool {
	return reached.Equal(p.goal().version(product)) || slices.ContainsFunc(p.policy.Intermediate, reached.Equal)
}

// adviseReleases says that the table of releases is old, and what depends on it.
func (p *planner) adviseReleases(days int, chosen, unheard []string) {
	advice := cluster.Finding{Check: cluster.CheckVersions, Severity: cluster.Advice}
	table := fmt.Sprintf("the releases that this provider knows are as of %s, %d days ago", p.policy.Releases.AsOf, days)

	if len(chosen) > 0 {
		advice.Attribute = attributeIntermediate
		advice.Found = fmt.Sprintf("%s, and the plan walks through the newest of them: %s; there may be newer patches", table, readable.List(chosen))
		advice.Remedy = "Name the patches to walk through, use a newer version of this provider, or name a newer table in its release_source."
		p.add(advice)
	}

	if len(unheard) > 0 {
		advice.Attribute = attributeTalos
		advice.Found = fmt.Sprintf("%s, and %s newer: whether a defect is known is not checked", table, areNewer(unheard))
		advice.Remedy = "Read the release notes, use a newer version of this provider, or name a newer table in its release_source."
		p.add(advice)
	}
}

// areNewer returns the names as the subject of a sentence: "Talos 1.14.9 is", "Talos 1.13.20, Talos 1.14.9 are".
func areNewer(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}

	return readable.List(names) + " are"
}
