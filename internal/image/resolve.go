// SPDX-License-Identifier: MPL-2.0

package image

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Running is what a node runs, as far as the choice of its image goes.
type Running struct {
	// InstallImage is machine.install.image; empty when unset or unreadable.
	InstallImage string
	// Schematic of the running system; empty when no factory built it.
	Schematic string
	// Extensions in the running system, by name.
	Extensions []string
	Platform   string
	SecureBoot bool
	// BootUnknown tells that nobody knows whether the node booted with secure
	// boot: an image that says how it boots is taken at its word, and any other
	// is the one without.
	BootUnknown bool
}

// bare tells whether the node runs Talos without anything added.
func (n Running) bare() bool {
	return (n.Schematic == "" && len(n.Extensions) == 0) || n.Schematic == EmptySchematic
}

// Wish is what the configuration says about the image of a node.
type Wish struct {
	// Repository, without tag, replaces the node's own; empty keeps that.
	Repository string
	// Factory is the host, with port and path if it has them, of the Image
	// Factory that serves images which neither names; [FactoryHost] when empty.
	Factory string
	// Lenient is what the image may cost the node.
	Lenient Leniency
}

// Choice is the image that a node is to run, and what the name of it promises.
type Choice struct {
	// Reference is the image with its tag.
	Reference string
	// Schematic that the installed system will report; empty when the name
	// does not tell.
	Schematic string
	// Demanded tells that the configuration asks for this schematic, so that a
	// node with another one is not at its target.
	Demanded bool
}

// Resolve chooses the image for a node: its own repository, or the one that is
// wished for, with the tag of the target. Errors are an [UnsuitableError] or wrap
// [ErrReference], and say what to do; beside them the choice has no reference
// but still tells which schematic an override demands.
func Resolve(node Running, target version.Version, wish Wish) (Choice, error) {
	if wish.Factory == "" {
		wish.Factory = FactoryHost
	}

	if wish.Repository != "" {
		return resolveOverride(node, target, wish)
	}

	if node.InstallImage == "" {
		return fromFactory(node, target, wish)
	}

	repository, _, err := Split(node.InstallImage)
	if err != nil {
		return Choice{}, fmt.Errorf("machine.install.image: %w", err)
	}

	if repository.Generic() {
		return resolveGeneric(node, target, repository, wish)
	}

	factory, ok := repository.Factory()
	if !ok {
		return resolveOwnBuild(node, target, repository, wish)
	}

	if err := matchFactory(node, factory, repository, wish.Lenient); err != nil {
		return Choice{}, err
	}

	return Choice{Reference: repository.At(target), Schematic: factory.Schematic}, nil
}

// resolveOverride takes the repository that the configuration names. One that
// names a schematic asks for it; one that names none must not cost the node
// its extensions, unless that is accepted.
func resolveOverride(node Running, target version.Version, wish Wish) (Choice, error) {
	repository, err := ParseRepository(wish.Repository)
	if err != nil {
		return Choice{}, err
	}

	if factory, ok := repository.Factory(); ok {
		choice := Choice{Schematic: factory.Schematic, Demanded: true}
		if err := matchFlavour(node, factory, repository, wish.Lenient); err != nil {
			return choice, err
		}

		choice.Reference = repository.At(target)

		return choice, nil
	}

	if repository.names(node.Schematic) {
		return Choice{Reference: repository.At(target), Schematic: node.Schematic}, nil
	}

	if !node.bare() && !wish.Lenient.AnySchematic {
		return Choice{}, &UnsuitableError{
			Kind:   ErrSchematic,
			Found:  fmt.Sprintf("%s does not name the schematic of the node and would drop %s", repository, node.added()),
			Remedy: "use a repository that ends in /<platform>-installer/" + node.schematicHint(),
		}
	}

	// What the node runs now is dropped where that was accepted.
	node.Schematic, node.Extensions = "", nil

	if repository.Generic() {
		return resolveGeneric(node, target, repository, wish)
	}

	return Choice{Reference: repository.At(target)}, nil
}

// resolveGeneric replaces the generic installer where it would lose something
// or no longer exists.
func resolveGeneric(node Running, target version.Version, repository Repository, wish Wish) (Choice, error) {
	if node.Schematic == "" && len(node.Extensions) > 0 {
		if !wish.Lenient.AnySchematic {
			return Choice{}, &UnsuitableError{
				Kind:   ErrSchematic,
				Found:  fmt.Sprintf("machine.install.image is the generic installer, but the node runs the extensions %s and reports no schematic", strings.Join(node.Extensions, ", ")),
				Remedy: "set installer_image to the image that holds them",
			}
		}

		node.Extensions = nil
	}

	if node.bare() && !node.SecureBoot && !target.AtLeast(1, 14) {
		return Choice{Reference: repository.At(target)}, nil
	}

	return fromFactory(node, target, wish)
}

// resolveOwnBuild keeps a repository whose name says nothing about its content,
// unless the node demonstrably runs a factory image from elsewhere.
func resolveOwnBuild(node Running, target version.Version, repository Repository, wish Wish) (Choice, error) {
	if repository.names(node.Schematic) {
		return Choice{Reference: repository.At(target), Schematic: node.Schematic}, nil
	}

	if node.Schematic != "" && node.Schematic != EmptySchematic && !wish.Lenient.AnySchematic {
		return Choice{}, &UnsuitableError{
			Kind: ErrSchematic,
			Found: fmt.Sprintf("the node runs schematic %s, but its machine.install.image %s does not name it and would drop %s",
				node.Schematic, repository, node.added()),
			Remedy: "set installer_image to a repository that ends in /<platform>-installer/" + node.Schematic,
		}
	}

	return Choice{Reference: repository.At(target)}, nil
}

// fromFactory names the factory image that equals what the node runs.
func fromFactory(node Running, target version.Version, wish Wish) (Choice, error) {
	schematic := node.Schematic
	if schematic == "" {
		if len(node.Extensions) > 0 && !wish.Lenient.AnySchematic {
			return Choice{}, &UnsuitableError{
				Kind:   ErrSchematic,
				Found:  fmt.Sprintf("the node runs the extensions %s and reports neither a schematic nor an install image", strings.Join(node.Extensions, ", ")),
				Remedy: "set installer_image to the image that holds them",
			}
		}

		schematic = EmptySchematic
	}

	platform := node.Platform
	if platform == "" {
		platform = "metal"
	}

	repository, err := Factory{Platform: platform, SecureBoot: node.SecureBoot, Schematic: schematic}.Repository(wish.Factory)
	if err != nil {
		return Choice{}, err
	}

	return Choice{Reference: repository.At(target), Schematic: schematic}, nil
}

// matchFactory refuses a node's own factory image when it is not what the node
// runs.
func matchFactory(node Running, factory Factory, repository Repository, lenient Leniency) error {
	if node.Schematic != "" && node.Schematic != factory.Schematic && !lenient.AnySchematic {
		return &UnsuitableError{
			Kind: ErrSchematic,
			Found: fmt.Sprintf("the node runs schematic %s, but its machine.install.image %s names another one and would replace %s",
				node.Schematic, repository, node.added()),
			Remedy: "set installer_image to the repository that is wanted",
		}
	}

	if node.Schematic == "" && len(node.Extensions) > 0 && !lenient.AnySchematic {
		return &UnsuitableError{
			Kind: ErrSchematic,
			Found: fmt.Sprintf("the node runs the extensions %s and reports no schematic, and its machine.install.image %s may not hold them",
				strings.Join(node.Extensions, ", "), repository),
			Remedy: "set installer_image to the image that does",
		}
	}

	return matchFlavour(node, factory, repository, lenient)
}

// matchFlavour refuses an image for another platform or another way to boot.
func matchFlavour(node Running, factory Factory, repository Repository, lenient Leniency) error {
	if factory.SecureBoot != node.SecureBoot && !node.BootUnknown && !lenient.AnyBoot {
		return &UnsuitableError{
			Kind:   ErrBoot,
			Found:  fmt.Sprintf("%s is %s, but the node boots %s", repository, bootFlavour(factory.SecureBoot), bootFlavour(node.SecureBoot)),
			Remedy: "set installer_image to the installer " + bootFlavour(node.SecureBoot),
		}
	}

	// An image without a platform in its name serves metal, and Equinix Metal
	// has no name of its own.
	platform := node.Platform
	if platform == equinixMetal {
		platform = "metal"
	}

	if platform != "" && platform != factory.Platform {
		return &UnsuitableError{
			Kind:   ErrPlatform,
			Found:  fmt.Sprintf("%s is built for platform %s, but the node runs on %s", repository, factory.Platform, node.Platform),
			Remedy: fmt.Sprintf("set installer_image to the %s-installer of the same schematic", platform),
		}
	}

	return nil
}

func bootFlavour(secure bool) string {
	if secure {
		return "with secure boot"
	}

	return "without secure boot"
}

// added says what the node would lose with a bare image.
func (n Running) added() string {
	if len(n.Extensions) > 0 {
		return "its extensions (" + strings.Join(n.Extensions, ", ") + ")"
	}

	return "what its schematic adds"
}

func (n Running) schematicHint() string {
	if n.Schematic != "" {
		return n.Schematic
	}

	return "<schematic>"
}
