// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
)

// checkImage says why there is no image for a node. It points at the attribute
// in any case: where that is not at fault, it is the way out.
func (p *planner) checkImage(node *subject) {
	if node.refused == nil {
		return
	}

	if errors.Is(node.refused, image.ErrFactory) {
		p.checkFactory(node.refused)

		return
	}

	finding := cluster.Finding{
		Check: "schematic", Severity: cluster.Permanent, Node: node.Name, Attribute: attributeImage, Err: node.refused,
		Found: node.refused.Error(),
	}

	own := p.policy.Images[node.Name] != ""
	if own {
		finding.Attribute, finding.Within = attributeOverrides, []cluster.Within{cluster.Key(node.Name), fieldImage}
	}

	if errors.Is(node.refused, image.ErrReference) {
		finding.Check = "installer-image"

		switch {
		case own:
			finding.Remedy = "Correct the installer_image of this node, or leave it out to keep the node's own repository."
		case p.target.InstallerImage != "":
			finding.Remedy = "Correct installer_image, or leave it out to keep each node's own repository."
		default:
			finding.Remedy = "Correct machine.install.image in the machine configuration, or set installer_image."
		}
	}

	p.find(finding)
}

// checkFactory says that no image can be had from the Image Factory that the
// provider block names. That concerns no attribute and no node of its own.
func (p *planner) checkFactory(refused error) {
	const check = "image-factory"

	if slices.ContainsFunc(p.made.Findings, func(f cluster.Finding) bool { return f.Check == check }) {
		return
	}

	p.find(cluster.Finding{
		Check: check, Severity: cluster.Permanent, Err: refused, Found: refused.Error(),
		Remedy: "Correct image_factory_url in the provider block.",
	})
}

// checkStep looks at what one node's own upgrade needs.
func (p *planner) checkStep(node *subject, step Step) {
	if node.moves == 0 {
		p.checkImage(node)
	}

	if finding, ok := p.checkFallback(node, step); ok {
		p.find(finding)
	}

	// The defaults move with the version of Talos alone, and the first time is
	// the one to speak of.
	if !step.From.Equal(step.To) && node.Machine.Talos.Equal(step.From) {
		if finding, ok := checkPins(node); ok {
			p.find(finding)
		}
	}

	if step.API == cluster.LegacyAPI && !p.policy.Drain.Enabled && node.moves == 0 {
		p.find(cluster.Finding{
			Check: "versions", Severity: cluster.Permanent, Node: node.Name, Attribute: attributeDrain,
			Found:  fmt.Sprintf("the node runs Talos %s, which always drains itself during an upgrade, so drain.enabled = false cannot be honoured", step.From),
			Remedy: "Leave drain.enabled at true until the nodes run Talos 1.13.",
		})
	}
}

// checkFallback refuses an image from which the node already fell back, until
// the target or the image changes or the user asks for another try.
func (p *planner) checkFallback(node *subject, step Step) (cluster.Finding, bool) {
	entry := node.entry
	if entry.Phase != cluster.PhaseFallback || entry.Image != step.Image {
		return cluster.Finding{}, false
	}

	// An entry without a boot ID must not pass for a retry that nobody asked
	// for.
	if retry, asked := p.policy.Retry[node.Name]; asked && retry == entry.BootID {
		return cluster.Finding{}, false
	}

	return cluster.Finding{
		Check: "pending-install", Severity: cluster.Observed, Node: node.Name, Attribute: attributeOverrides,
		Found: fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself", entry.Image, entry.Previous),
		Remedy: fmt.Sprintf("Find out why (talosctl dmesg and logs machined), then choose another talos_version or installer_image, or set node_overrides = { %q = { retry = %q } } to try the same image again.",
			node.Name, entry.BootID),
	}, true
}
