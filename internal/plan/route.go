// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// OldestManaged returns the first version in the support matrix. Its legacy upgrade keeps etcd and its data
// whatever the flags say: Talos removed leaving etcd in 1.8. Older versions are refused.
func OldestManaged() version.Version {
	oldest, _ := compat.TalosMinors()

	return version.MustParse(oldest.String() + ".0")
}

// OldestTested returns the first version that the tests upgrade from. Below it, the plan has a warning.
func OldestTested() version.Version { return version.MustParse("1.11.0") }

// NewestTested returns the newest minor version that the tests upgrade to.
func NewestTested() version.Minor { return version.Minor{Major: 1, Minor: 14} }

// route finds the hops from what the cluster runs to the target, and refuses targets that no waiting makes
// possible.
func (p *planner) route() {
	highest := p.lowestVersions()
	to := State{Talos: p.target.Talos, Kubernetes: p.target.Kubernetes}

	if p.start.Kubernetes.IsZero() {
		// It is unknown what runs; what could not be observed is a finding of its own.
		to.Kubernetes = version.Version{}
	}

	age := p.checkAge()
	p.add(age...)

	if len(age) > 0 && age[0].Severity == cluster.Permanent {
		p.blocked = true

		return
	}

	states, err := Path(p.start, to, p.walk)
	if err != nil {
		p.blocked = true
		p.add(pathFinding(err))

		return
	}

	if finding, ok := p.checkHighest(states, highest); ok {
		p.add(finding)
	}

	p.made.Hops = hopsOf(states)
	p.add(p.checkLength()...)
	p.addImageHop()

	if !slices.ContainsFunc(p.made.Hops, func(h Hop) bool { return h.Product == version.Talos }) && p.reinstalls() {
		// It comes before Kubernetes, as always if the matrix allows both orders.
		p.made.Hops = slices.Insert(p.made.Hops, 0, Hop{Product: version.Talos, From: p.start, To: p.start})
	}
}

// lowestVersions sets start to the lowest version of each product on nodes that are not held. It reports the
// nodes that are ahead, and returns the highest version of Kubernetes.
func (p *planner) lowestVersions() version.Version {
	named := p.namedProxy()

	var lowest, highest version.Version

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		switch {
		case p.ahead(node):
			p.add(cluster.Finding{
				Check: cluster.CheckVersions, Severity: cluster.Permanent, Node: node.Name, Attribute: attributeTalos,
				Found:  fmt.Sprintf("the node runs Talos %s, which is newer than the target %s, and downgrades are not done", node.talos, below(p.target.Talos, node.talos)),
				Remedy: fmt.Sprintf("Set talos_version to %s or newer, or bring the node back by hand.", node.talos),
			})
		case node.Machine != nil, node.open && (p.target.Talos.IsZero() || node.talos.Compare(p.target.Talos) <= 0):
			p.start.Talos = version.Lowest(p.start.Talos, node.talos)
		}

		low, high := p.versionRange(node, named)
		lowest, highest = version.Lowest(lowest, low), version.Highest(highest, high)
	}

	p.checkComponentsAhead(highest)

	if p.start.Talos.IsZero() {
		p.start.Talos = p.target.Talos
	}

	if lowest.IsZero() && !highest.IsZero() {
		lowest = p.target.Kubernetes
	}

	p.start.Kubernetes = lowest

	return highest
}

// versionRange returns the lowest version of the node's components that is not ahead of the target, and the
// highest version. Named is the version that the configurations name for kube-proxy.
func (p *planner) versionRange(node *plannedNode, named version.Version) (lowest, highest version.Version) {
	see := func(v version.Version) {
		highest = version.Highest(highest, v)
		if p.target.Kubernetes.IsZero() || v.Compare(p.target.Kubernetes) <= 0 {
			lowest = version.Lowest(lowest, v)
		}
	}

	for i := range node.parts {
		see(node.parts[i].running)
		see(node.parts[i].named)
	}

	see(podFrom(node.pod, named))

	return lowest, highest
}

// pathFinding returns the finding for an error of [Path].
func pathFinding(err error) cluster.Finding {
	finding := cluster.Finding{
		Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeTalos, Found: err.Error(),
	}

	var refused *PathError
	if errors.As(err, &refused) {
		finding.Remedy = refused.Remedy
		if refused.Product == version.Kubernetes {
			finding.Attribute = attributeKubernetes
		}
	}

	if errors.Is(err, compat.ErrUnknownMinor) || errors.Is(err, compat.ErrUnsupported) || errors.Is(err, ErrNoWay) {
		finding.Check = cluster.CheckCompatibility
	}

	return finding
}

// checkHighest checks the newest components against each version of Talos on the path, which was found for the
// oldest ones.
func (p *planner) checkHighest(states []State, highest version.Version) (cluster.Finding, bool) {
	for index, state := range states {
		if index == 0 || highest.Compare(state.Kubernetes) <= 0 || p.walk.supports(state.Talos, highest) {
			continue
		}

		return cluster.Finding{
			Check: cluster.CheckCompatibility, Severity: cluster.Permanent, Attribute: attributeTalos,
			Found:  fmt.Sprintf("%s, and some components of the cluster run %s", mismatch(state.Talos, highest), highest),
			Remedy: "Bring all components to one version first, or choose another talos_version.",
		}, true
	}

	return cluster.Finding{}, false
}

// checkAge refuses versions that are too old to be upgraded at all, and warns about those that are not tested.
func (p *planner) checkAge() []cluster.Finding {
	from := p.start.Talos
	moves := !p.target.Talos.IsZero() && from.Less(p.target.Talos)

	switch {
	case from.IsZero(), !moves && !p.start.Kubernetes.Less(p.target.Kubernetes):
		return nil
	case from.Less(OldestManaged()):
		return []cluster.Finding{{
			Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeTalos,
			Found:  fmt.Sprintf("nodes on Talos %s are too old to be upgraded with this provider", from),
			Remedy: fmt.Sprintf("Bring them to Talos %s or newer with talosctl first.", OldestManaged()),
		}}
	case moves && from.Less(OldestTested()):
		return []cluster.Finding{{
			Check: cluster.CheckVersions, Severity: cluster.Advice, Attribute: attributeTalos,
			Found:  fmt.Sprintf("nodes run Talos %s; this provider is tested from %s on", from, OldestTested()),
			Remedy: "Try it on a cluster like this one first, or name a worker in canary, which goes before all others.",
		}}
	default:
		return nil
	}
}

// checkLength refuses a path through several minor versions unless the policy allows it, and spells it out.
func (p *planner) checkLength() []cluster.Finding {
	if p.policy.AllowIntermediate {
		return nil
	}

	var findings []cluster.Finding

	for _, half := range []struct {
		axis      version.Product
		attribute string
		to        version.Version
	}{{version.Talos, attributeTalos, p.target.Talos}, {version.Kubernetes, attributeKubernetes, p.target.Kubernetes}} {
		hops := slices.DeleteFunc(slices.Clone(p.made.Hops), func(h Hop) bool { return h.Product != half.axis || p.onlyForPods(h) })
		if len(hops) < 2 {
			continue
		}

		first := hops[0].To.version(half.axis)
		findings = append(findings, cluster.Finding{
			Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: half.attribute,
			Found: fmt.Sprintf("going from %s %s to %s would skip the minor version %s; the path is %s",
				half.axis.Name(), p.start.version(half.axis), half.to, first.Minor(), hopsText(p.made.Hops)),
			Remedy: fmt.Sprintf("Set allow_intermediate_versions = true to follow all of it, or set %s to %s first.", half.attribute, first),
		})
	}

	return findings
}

// onlyForPods reports whether the hop moves only pods of kube-proxy that nothing waits for: it does not count
// towards the length of the path.
func (p *planner) onlyForPods(hop Hop) bool {
	if hop.Product != version.Kubernetes || p.waitsForPods() {
		return false
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		for j := range node.parts {
			if at := node.parts[j].lowest(); !at.IsZero() && at.Minor().Compare(hop.To.Kubernetes.Minor()) < 0 {
				return false
			}
		}
	}

	return true
}

// reinstalls reports whether a node has a step in Talos although no version changes: its schematic changes, or an
// earlier run left it unfinished.
func (p *planner) reinstalls() bool {
	for i := range p.nodes {
		if node := &p.nodes[i]; p.movable(node) && (node.unfinished() || !p.atTarget(node)) {
			return true
		}
	}

	return false
}

// checkIntermediate refuses intermediate versions that are on no path to the target. Versions that the cluster
// has already passed are accepted.
func (p *planner) checkIntermediate() {
	taken := map[version.Minor]version.Version{}

	for index, named := range p.policy.Intermediate {
		finding := cluster.Finding{
			Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeIntermediate, Within: []cluster.Within{cluster.Index(index)},
		}

		if named.IsZero() {
			continue
		}

		other, twice := taken[named.Minor()]
		if !twice {
			taken[named.Minor()] = named
		}

		product, to := p.productOf(named)

		switch {
		case to.IsZero():
			finding.Found = fmt.Sprintf("%s is not on the path to %s", named, p.goal())
			finding.Remedy = "Name releases of the minor versions between what runs and the target, or remove the entry."
		case named.Minor() == to.Minor():
			finding.Found = fmt.Sprintf("%s is of the minor version %s, in which the path to %s %s ends", named, to.Minor(), product.Name(), to)
			finding.Remedy = "Remove the entry: only minor versions before the target are passed through."
		case twice:
			finding.Found = fmt.Sprintf("%s and %s are of the same minor version %s", other, named, named.Minor())
			finding.Remedy = "Keep one of them."
		default:
			continue
		}

		p.add(finding)
	}
}

// productOf returns the product whose target an intermediate version leads to, and that target; zero if it leads
// to neither. The minor versions of Talos and Kubernetes are too far apart for one version to fit both.
func (p *planner) productOf(named version.Version) (version.Product, version.Version) {
	oldestTalos, _ := compat.TalosMinors()
	oldestKubernetes, _ := compat.KubernetesRange()

	leads := func(oldest version.Minor, to version.Version) bool {
		return !to.IsZero() && named.Minor().Compare(oldest) >= 0 && named.Minor().Compare(to.Minor()) <= 0
	}

	switch {
	case leads(oldestTalos, p.target.Talos):
		return version.Talos, p.target.Talos
	case leads(oldestKubernetes, p.target.Kubernetes):
		return version.Kubernetes, p.target.Kubernetes
	default:
		return "", version.Version{}
	}
}

// goal returns the target as people read it.
func (p *planner) goal() State {
	return State{Talos: p.target.Talos, Kubernetes: p.target.Kubernetes}
}
