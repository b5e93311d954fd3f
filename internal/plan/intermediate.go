// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkIntermediate refuses versions to walk through that no way to the target
// leads through. One that lies behind the cluster is none of them: it was
// walked through before.
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

		axis, to := p.half(named)

		switch {
		case to.IsZero():
			finding.Found = fmt.Sprintf("%s lies on no way to %s", named, p.goal())
			finding.Remedy = "Name releases of the release lines between what runs and the target, or remove the entry."
		case named.Minor() == to.Minor():
			finding.Found = fmt.Sprintf("%s is of the release line %s, in which the way to %s %s ends", named, to.Minor(), axis.name(), to)
			finding.Remedy = "Remove the entry: only release lines before the target are walked through."
		case twice:
			finding.Found = fmt.Sprintf("%s and %s are of the same release line %s", other, named, named.Minor())
			finding.Remedy = "Keep one of them."
		default:
			continue
		}

		p.find(finding)
	}
}

// half tells which half of the target a version to walk through leads to, and
// that half; zero where it leads to neither. The release lines of Talos and of
// Kubernetes are too far apart for one number to mean both.
func (p *planner) half(named version.Version) (Axis, version.Version) {
	oldestTalos, _ := compat.TalosMinors()
	oldestKubernetes, _ := compat.KubernetesRange()

	leads := func(oldest version.Minor, to version.Version) bool {
		return !to.IsZero() && named.Minor().Compare(oldest) >= 0 && named.Minor().Compare(to.Minor()) <= 0
	}

	switch {
	case leads(oldestTalos, p.target.Talos):
		return Talos, p.target.Talos
	case leads(oldestKubernetes, p.target.Kubernetes):
		return Kubernetes, p.target.Kubernetes
	default:
		return "", version.Version{}
	}
}

// goal is the target as people read it.
func (p *planner) goal() State {
	return State{Talos: p.target.Talos, Kubernetes: p.target.Kubernetes}
}
