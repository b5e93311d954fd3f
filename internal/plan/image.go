// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// chooseImage chooses the installer image of a node, and returns what speaks against it. Objections that the
// policy skips are accepted, so that there is an image all the same. It chooses nothing if the node's own
// repository decides and cannot be read, which checkReadable reports.
func (p *planner) chooseImage(node *cluster.Node, to version.Version) (image.Choice, []error) {
	override := p.override(node.Name)
	if node.Machine.Config == nil && override == "" {
		return image.Choice{}, nil
	}

	running := runningImage(node.Machine)
	wish := image.Wish{Repository: override, Factory: p.target.ImageFactory}

	var refused []error

	for {
		choice, err := image.Resolve(running, to, wish)
		if err == nil {
			return choice, refused
		}

		refused = append(refused, err)

		if !p.policy.Skips(imageCheck(err)) || !accept(&wish, err) {
			return choice, refused
		}
	}
}

// acceptable reports whether a policy may accept the objection to an image. A node that boots an image for
// another platform does not find its configuration, and an invalid reference cannot be installed.
func acceptable(refused error) bool {
	return errors.Is(refused, image.ErrSchematic) || errors.Is(refused, image.ErrBoot)
}

// accept changes the wish so that the objection to an image no longer applies, and reports whether that was
// possible.
func accept(wish *image.Wish, refused error) bool {
	lenient := &wish.Lenient

	switch {
	case lenient.Accepts(refused), !acceptable(refused):
		return false
	case errors.Is(refused, image.ErrSchematic):
		lenient.AnySchematic = true
	default:
		lenient.AnyBoot = true
	}

	return true
}

// imageCheck returns the check that an error about an image belongs to.
func imageCheck(refused error) string {
	switch {
	case errors.Is(refused, image.ErrBoot):
		return cluster.CheckSecureBoot
	case errors.Is(refused, image.ErrPlatform), errors.Is(refused, image.ErrReference):
		return cluster.CheckInstallerImage
	default:
		return cluster.CheckSchematic
	}
}

func runningImage(machine *cluster.Machine) image.Running {
	running := image.Running{
		Schematic:   machine.Schematic,
		Extensions:  machine.Extensions,
		Platform:    machine.Platform,
		SecureBoot:  machine.SecureBoot,
		BootUnknown: machine.BootUnknown,
		UKI:         machine.BootedWithUKI || machine.SecureBoot,
	}

	if machine.Config != nil {
		running.InstallImage = machine.Config.InstallImage
		running.UKI = running.UKI || machine.Config.UKIArguments
		running.InstallField = fieldOf(machine, cluster.Installer)
	}

	return running
}

// checkImage reports what speaks against the image of a node. The finding points at the attribute even if the
// attribute is not at fault, because setting it is the way out.
func (p *planner) checkImage(node *plannedNode) {
	for _, refused := range node.refused {
		finding := p.imageFinding(node, refused)

		// An error in the provider block is reported once, for however many nodes need the factory.
		said := func(f cluster.Finding) bool {
			return f.Node == "" && f.Check == finding.Check && f.Found == finding.Found
		}
		if finding.Node == "" && slices.ContainsFunc(p.made.Findings, said) {
			continue
		}

		p.add(finding)
	}
}

// imageFinding returns the finding for an error about an image.
func (p *planner) imageFinding(node *plannedNode, refused error) cluster.Finding {
	finding := cluster.Finding{
		Check: imageCheck(refused), Severity: cluster.Permanent, Node: node.Name, Err: refused,
		Found: refused.Error(), Firm: !acceptable(refused),
	}

	if errors.Is(refused, image.ErrFactory) {
		finding.Node, finding.Remedy = "", "Correct image_factory_url in the provider block."

		return finding
	}

	p.pointAtImage(&finding, node)

	var unsuitable *image.UnsuitableError

	switch {
	case errors.As(refused, &unsuitable):
		finding.Found = image.ErrUnsuitable.Error() + ": " + unsuitable.Found
		finding.Remedy = strings.ToUpper(unsuitable.Remedy[:1]) + unsuitable.Remedy[1:] + "."
	case finding.Within != nil:
		finding.Remedy = "Correct the installer_image of this node, or leave it out to keep the node's own repository."
	case p.target.InstallerImage != "":
		finding.Remedy = "Correct installer_image, or leave it out to keep each node's own repository."
	default:
		finding.Remedy = fmt.Sprintf("Correct %s in the machine configuration, or set installer_image.", fieldOf(node.Machine, cluster.Installer))
	}

	return finding
}

// checkPinned refuses an image pinned by digest for a node that needs several images.
func (p *planner) checkPinned(node *plannedNode, step Step) {
	repository, err := image.ParseInstaller(p.override(node.Name))
	if err != nil || !repository.Pinned() || step.To.Equal(p.target.Talos) {
		return
	}

	finding := cluster.Finding{
		Check: cluster.CheckInstallerImage, Severity: cluster.Permanent, Firm: true,
		Found:  fmt.Sprintf("%s is one image, and on its way to Talos %s a node needs another one before it, of Talos %s", p.override(node.Name), p.target.Talos, step.To),
		Remedy: fmt.Sprintf("Set installer_image to %s, of which each step takes the tag that it needs, or upgrade to %s first.", repository, step.To),
	}
	p.pointAtImage(&finding, node)

	same := func(f cluster.Finding) bool { return f.Found == finding.Found && f.Attribute == finding.Attribute }
	if !slices.ContainsFunc(p.made.Findings, same) {
		p.add(finding)
	}
}

// checkWritten checks the images as they are written, even if no node uses them.
func (p *planner) checkWritten() {
	p.checkInstaller(writtenImage{text: p.target.InstallerImage, attribute: attributeImage})

	for _, name := range slices.Sorted(maps.Keys(p.policy.Images)) {
		p.checkInstaller(writtenImage{
			text: p.policy.Images[name], attribute: attributeOverrides, within: []cluster.Within{cluster.Key(name), fieldImage}, held: p.policy.Holds(name),
		})
	}

	for index, override := range p.policy.SelectorOverrides {
		p.checkInstaller(writtenImage{
			text: override.Image, attribute: attributeSelectorOverrides, within: []cluster.Within{cluster.Index(index), fieldImage}, held: override.Hold,
		})
	}
}

// writtenImage is an installer image, the place in the configuration where it is written, and whether its nodes
// are held.
type writtenImage struct {
	text, attribute string
	within          []cluster.Within
	held            bool
}

// checkInstaller refuses images that siderolabs publishes and that install nothing, whatever registry mirrors
// them, because a registry serves them like any other image. It also refuses the tag of another version than the
// target. Otherwise the tag is ignored: each step uses the tag of its own version.
func (p *planner) checkInstaller(written writtenImage) {
	repository, err := image.ParseInstaller(written.text)
	if err != nil {
		// This is reported when the image of a node is chosen.
		return
	}

	finding := cluster.Finding{Check: cluster.CheckInstallerImage, Severity: cluster.Permanent, Attribute: written.attribute, Within: written.within}

	if repository.InstallsNothing() {
		finding.Found = fmt.Sprintf("%s is an image of Talos that installs nothing", repository)
		finding.Remedy = "Name an installer, such as factory.talos.dev/<platform>-installer/<schematic>, or leave the image out to keep each node's own."
		p.add(finding)
	}

	tagged := repository.Version()
	if tagged.IsZero() || tagged.Equal(p.target.Talos) {
		return
	}

	finding.Firm = true
	finding.Found = fmt.Sprintf("%s has the tag %s, and talos_version is %s", written.text, tagged.Tag(), p.target.Talos)
	finding.Remedy = fmt.Sprintf("Set talos_version to %s, or give the image the tag %s; without a tag, it is always the one of talos_version.",
		tagged, p.target.Talos.Tag())

	switch {
	case p.target.Talos.IsZero():
		finding.Severity = cluster.Advice
		finding.Found = fmt.Sprintf("%s has the tag %s, and talos_version is not set, so no node is upgraded to it", written.text, tagged.Tag())
		finding.Remedy = fmt.Sprintf("Set talos_version to %s, or leave the image out.", tagged)
	case written.held:
		finding.Severity = cluster.Advice
		finding.Found += "; its nodes are held, and will be refused as soon as they are not"
	}

	p.add(finding)
}

// pointAtImage makes a finding point at the attribute that sets the image of the node.
func (p *planner) pointAtImage(finding *cluster.Finding, node *plannedNode) {
	finding.Attribute = attributeImage

	index, byLabels := p.policy.Selected.Overrides[node.Name]

	switch {
	case p.policy.Images[node.Name] != "":
		finding.Attribute, finding.Within = attributeOverrides, []cluster.Within{cluster.Key(node.Name), fieldImage}
	case byLabels:
		finding.Attribute, finding.Within = attributeSelectorOverrides, []cluster.Within{cluster.Index(index), fieldImage}
	}
}

// adviseImages reports what is worth knowing about the images of the target, once for all nodes that share it.
func (p *planner) adviseImages() {
	var (
		said  []string
		nodes = map[string][]string{}
	)

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.moves == 0 || node.choice.Advice == "" {
			continue
		}

		if nodes[node.choice.Advice] == nil {
			said = append(said, node.choice.Advice)
		}

		nodes[node.choice.Advice] = append(nodes[node.choice.Advice], node.Name)
	}

	for _, advice := range said {
		finding := cluster.Finding{
			Check: cluster.CheckInstallerImage, Severity: cluster.Advice, Attribute: attributeImage, Found: advice,
			Remedy: "Set installer_image, or image_factory_url in the provider block, where the installer is to come from elsewhere.",
		}

		if names := nodes[advice]; len(names) == 1 {
			finding.Node = names[0]
		} else {
			finding.Found += " (" + readable.List(names) + ")"
		}

		p.add(finding)
	}
}

// checkBoot refuses to choose an image for a node if it is unknown how it boots: with the wrong image it would
// not come up. A node that an earlier run may have rebooted reports it when it is back.
func (p *planner) checkBoot(node *plannedNode) {
	if !node.Machine.BootUnknown || (node.open && !node.Machine.Settled()) {
		return
	}

	chosen := "no image could be chosen"
	if node.choice.Reference != "" {
		chosen = "the image would be " + node.choice.Reference
	}

	p.add(cluster.Finding{
		Check: cluster.CheckSecureBoot, Severity: cluster.Observed, Unknown: true, Node: node.Name,
		Found:  "the node does not say whether it booted with secure boot, and " + chosen,
		Remedy: fmt.Sprintf("See what it booted with (talosctl -n %s get securitystate), and apply when it says so.", node.Address),
	})
}
