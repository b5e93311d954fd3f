// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// chooseImage chooses the installer image of a node, and says what speaks against
// it. What the policy skips is accepted, so that there is an image all the same.
// It chooses nothing where the node's own repository decides and cannot be read:
// checkReadable says so.
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

// acceptable tells whether a policy may accept what speaks against an image. A
// node that boots from an image for another platform does not find its
// configuration, and what is no image cannot be installed.
func acceptable(refused error) bool {
	return errors.Is(refused, image.ErrSchematic) || errors.Is(refused, image.ErrBoot)
}

// accept changes what is wished for so that this no longer speaks against an
// image; false where nothing changes it.
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

// imageCheck is the check that the error of an image belongs to.
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
