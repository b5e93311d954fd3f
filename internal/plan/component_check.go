// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkComponentImage says why no image can be chosen for a component.
func (p *planner) checkComponentImage(node *subject, t *part, refused error) {
	override := p.policy.Kubernetes.Images[t.component]
	finding := cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Permanent, Attribute: attributeKubernetesOf, Within: imageField(t.component), Err: refused,
		Found:  refused.Error(),
		Remedy: "Name a registry, a path and a name, without a tag.",
	}

	// What a node names is at fault only where nothing replaces it.
	_, err := image.ParseRepository(override)
	if override == "" || err == nil {
		finding.Node = node.Name
		field := fieldOf(node.Machine, t.component)
		finding.Found = fmt.Sprintf("%s in the machine configuration: %s", field, finding.Found)
		finding.Remedy = fmt.Sprintf("Correct %s of this node (talosctl -n %s edit machineconfig), or set the repository here.", field, node.Address)
	}

	// A component has a turn in each hop, and an override is of all nodes.
	said := func(f cluster.Finding) bool { return f.Node == finding.Node && slices.Equal(f.Within, finding.Within) }
	if !slices.ContainsFunc(p.made.Findings, said) {
		p.find(finding)
	}
}

// checkProxyImage refuses an image for what Talos does not manage.
func (p *planner) checkProxyImage() {
	if !p.proxyless || p.policy.Kubernetes.Images[cluster.Proxy] == "" {
		return
	}

	p.find(cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Permanent, Attribute: attributeKubernetesOf, Within: imageField(cluster.Proxy),
		Found:  "kube-proxy is disabled in the machine configuration of every control plane" + p.thatIsNotHeld() + ", so this image would be used nowhere",
		Remedy: "Leave it out, or enable kube-proxy (" + p.proxySwitch() + ") first.",
	})
}

// thatIsNotHeld narrows "every control plane" where some are left alone.
func (p *planner) thatIsNotHeld() string {
	for i := range p.nodes {
		if node := &p.nodes[i]; node.held && node.Role == cluster.ControlPlane && !allHeld(p.snapshot, p.policy) {
			return " that is not held"
		}
	}

	return ""
}

// checkUntold refuses to move Kubernetes past components of which nobody can say
// how old they are.
func (p *planner) checkUntold() {
	if p.target.Kubernetes.IsZero() {
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held || node.Machine == nil {
			continue
		}

		var untold, paths, bare []string

		for j := range node.parts {
			t := &node.parts[j]
			if !node.untold(t) {
				continue
			}

			named := "no image is named"
			if t.image != "" {
				named = "image " + t.image
			}

			untold = append(untold, fmt.Sprintf("%s (%s)", t.component, named))
			paths = append(paths, fieldOf(node.Machine, t.component))
			bare = append(bare, string(t.component))
		}

		if len(untold) == 0 {
			continue
		}

		if !node.read() {
			p.find(p.unread(node, bare))

			continue
		}

		p.find(cluster.Finding{
			Check: cluster.CheckComponentImages, Severity: cluster.Observed, Unknown: true, Node: node.Name,
			Found: fmt.Sprintf("the version of %s cannot be told, neither from what runs nor from the machine configuration, and nothing may overtake it unseen", strings.Join(untold, ", ")),
			Remedy: fmt.Sprintf("Name an image with a version tag in %s (talosctl -n %s edit machineconfig), or wait until it runs.",
				strings.Join(paths, ", "), node.Address),
		})
	}
}

// unread says of components of a node that nobody can tell how old they are:
// Kubernetes does not, and the machine configuration is not shown.
func (p *planner) unread(node *subject, components []string) cluster.Finding {
	roles := "these credentials"
	if len(p.snapshot.Roles) > 0 {
		roles += " (" + listed(p.snapshot.Roles) + ")"
	}

	return cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Observed, Unknown: true, Node: node.Name, Err: p.snapshot.KubernetesError,
		Found: fmt.Sprintf("the version of %s cannot be told: Kubernetes does not tell what runs, and the node does not show its machine configuration to %s",
			strings.Join(components, ", "), roles),
		Remedy: "Set kubeconfig in the provider block, so that Kubernetes tells, or use a talosconfig with the role " + adminRole + ", which an upgrade needs anyway.",
	}
}

// checkAgreement names the nodes on which something else runs than the machine
// configuration names. The pods of kube-proxy follow it only with a sync, and
// that is no contradiction.
func (p *planner) checkAgreement() {
	var (
		names []string
		one   []string
	)

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		var differing []string

		for j := range node.parts {
			if t := &node.parts[j]; t.differs() && !p.beyond(t) {
				differing = append(differing, fmt.Sprintf("%s runs %s while the machine configuration names %s", t.component, t.running, t.named))
			}
		}

		if len(differing) > 0 {
			names, one = append(names, node.Name), differing
		}
	}

	finding := cluster.Finding{Check: cluster.CheckComponentImages, Severity: cluster.Advice, Remedy: p.agreementRemedy()}

	switch len(names) {
	case 0:
		return
	case 1:
		finding.Node = names[0]
		finding.Found = strings.Join(one, ", ") + "; the lower of both is what the node counts with"
	default:
		finding.Found = fmt.Sprintf("components run other versions than the machine configuration names on %s; the lower of both is what a node counts with", listed(names))
	}

	p.find(finding)
}

// beyond tells that the component is ahead of the target, which is a finding of
// its own.
func (p *planner) beyond(t *part) bool {
	return !p.target.Kubernetes.IsZero() && version.Highest(t.running, t.named).Compare(p.target.Kubernetes) > 0
}

func (p *planner) agreementRemedy() string {
	if p.target.Kubernetes.IsZero() {
		return "Restart what does not follow its configuration, or correct the configuration; a reboot starts what it names."
	}

	return fmt.Sprintf("An apply brings both to %s.", p.target.Kubernetes)
}

// checkDigests names the nodes whose configuration pins an image by its digest:
// the tag alone is named afterwards.
func (p *planner) checkDigests() {
	var names, components []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if len(node.digests) == 0 {
			continue
		}

		names = append(names, node.Name)

		for _, component := range node.digests {
			if !slices.Contains(components, string(component)) {
				components = append(components, string(component))
			}
		}
	}

	if len(names) == 0 {
		return
	}

	finding := cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Advice,
		Found:  fmt.Sprintf("the machine configuration names the image of %s with a digest on %s, which is of the present version and is left out", strings.Join(components, ", "), listed(names)),
		Remedy: "Add the digest of the new image afterwards if it is to be pinned by it.",
	}

	if len(names) == 1 {
		finding.Node = names[0]
		finding.Found = fmt.Sprintf("the machine configuration names the image of %s with a digest, which is of the present version and is left out", strings.Join(components, ", "))
	}

	p.find(finding)
}
