// SPDX-License-Identifier: MPL-2.0

package image

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Running is the part of a node's state that the choice of its image depends on.
type Running struct {
	// InstallImage is the image in the machine configuration; empty if unset or unreadable. InstallField is the field
	// that contains it; machine.install.image if empty.
	InstallImage, InstallField string
	// Schematic is the one of the running system; empty if no factory built it.
	Schematic string
	// Extensions are the names of the extensions in the running system.
	Extensions []string
	Platform   string
	SecureBoot bool
	// BootUnknown is true if it is unknown whether the node booted with secure boot. Then an image whose name says how
	// it boots is accepted, and any other is chosen without secure boot.
	BootUnknown bool
	// UKI is true if the node takes its kernel arguments, and with them the platform, from the UKI of the image: it
	// boots the UKI itself, or has GRUB read it.
	UKI bool
}

// elsewhere reports whether the node runs on a platform for which an Image Factory builds separate installers.
func (n Running) elsewhere() bool {
	return n.Platform != "" && n.Platform != metal && n.Platform != equinixMetal
}

// takesPlatform reports whether the platform of an image of that version becomes the platform of the node. From
// Talos 1.10 on, every installer contains a UKI; before, only those for secure boot.
func (n Running) takesPlatform(target version.Version) bool {
	return n.UKI && n.Platform != "" && n.Platform != metal && (n.SecureBoot || target.AtLeast(1, 10))
}

// field returns the field of the machine configuration that contains the install image.
func (n Running) field() string { return cmp.Or(n.InstallField, "machine.install.image") }

// bare reports whether the node runs Talos without additions.
func (n Running) bare() bool {
	return (n.Schematic == "" && len(n.Extensions) == 0) || n.Schematic == EmptySchematic
}

// Wish is what the configuration says about the image of a node.
type Wish struct {
	// Repository, without tag, replaces the node's own; if empty, the node keeps its own. With a digest it is exactly
	// one image, which is never replaced.
	Repository string
	// Factory is the host, with an optional port and path, of the Image Factory from which images are taken that
	// neither the node nor the configuration names; [FactoryHost] if empty.
	Factory string
	// Lenient is what a node may lose by the image.
	Lenient Leniency
}

// Choice is the image that a node is to run, and what its name implies.
type Choice struct {
	// Reference is the image with its tag or its digest.
	Reference string
	// Schematic is the one that the installed system will report; empty if the name does not contain it.
	Schematic string
	// Demanded is true if the configuration asks for this schematic. A node with another one is then not at its
	// target.
	Demanded bool
	// Advice is a phrase of further information: why the image is from another repository than the configured one, or
	// what its name leaves open.
	Advice string
}

// Resolve chooses the image for a node: its own repository, or the configured one, with the tag of the target.
// Errors are an [UnsuitableError] or wrap [ErrReference], and contain a remedy. With an error, the choice has no
// reference, but it still has the schematic that an override demands.
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
		return Choice{}, fmt.Errorf("%s: %w", node.field(), err)
	}

	if repository.Generic() {
		return resolveGeneric(node, target, repository, wish)
	}

	factory, ok := repository.Factory()
	if !ok {
		return resolveOwnBuild(node, target, repository, wish)
	}

	if err := matchSchematic(node, factory, repository, wish.Lenient); err != nil {
		return Choice{}, err
	}

	return resolveFactory(node, target, repository, wish.Lenient)
}

// resolveFactory chooses an image of an Image Factory. If its name has no platform, which means metal from Talos
// 1.10 on, the platform of the node is inserted.
func resolveFactory(node Running, target version.Version, repository Repository, lenient Leniency) (Choice, error) {
	factory, _ := repository.Factory()

	var advice string

	host, unnamed := strings.CutSuffix(repository.String(), "/"+Factory{SecureBoot: factory.SecureBoot, Schematic: factory.Schematic}.path())

	if unnamed && node.elsewhere() && !repository.Pinned() {
		factory.Platform = node.Platform

		if node.SecureBoot || target.AtLeast(1, 10) {
			named, err := factory.Repository(host)
			if err != nil {
				return Choice{}, err
			}

			advice = fmt.Sprintf("%s is built for platform %s and %s for platform %s, so that is where the installer is taken from", repository, metal, named, node.Platform)
			repository = named
		}
	}

	if err := matchFlavour(node, target, factory, repository, lenient); err != nil {
		return Choice{}, err
	}

	return Choice{Reference: repository.At(target), Schematic: factory.Schematic, Advice: advice}, nil
}

// resolveOverride chooses the repository in the configuration. If its name contains a schematic, that schematic is
// demanded; otherwise the node must not lose its extensions, unless that is accepted.
func resolveOverride(node Running, target version.Version, wish Wish) (Choice, error) {
	repository, err := ParseInstaller(wish.Repository)
	if err != nil {
		return Choice{}, err
	}

	if factory, ok := repository.Factory(); ok {
		choice, err := resolveFactory(node, target, repository, wish.Lenient)
		choice.Schematic, choice.Demanded = factory.Schematic, true

		return choice, err
	}

	if repository.names(node.Schematic) {
		return ownBuild(node, target, repository, node.Schematic)
	}

	if !node.bare() && !wish.Lenient.AnySchematic {
		return Choice{}, &UnsuitableError{
			Kind:   ErrSchematic,
			Found:  fmt.Sprintf("%s does not name the schematic of the node and would drop %s", repository, node.added()),
			Remedy: "use a repository that ends in /<platform>-installer/" + node.schematicHint(),
		}
	}

	// The loss of what the node runs has been accepted.
	node.Schematic, node.Extensions = "", nil

	switch {
	case !repository.Generic():
		return ownBuild(node, target, repository, "")
	case node.takesPlatform(target):
		return Choice{}, loses(node, repository, metal)
	case repository.Pinned():
		if err := matchBoot(node, repository, false, wish.Lenient); err != nil {
			return Choice{}, err
		}

		return Choice{Reference: repository.At(target)}, nil
	default:
		return resolveGeneric(node, target, repository, wish)
	}
}

// resolveGeneric replaces the generic installer if it no longer exists or would remove something from the node.
func resolveGeneric(node Running, target version.Version, repository Repository, wish Wish) (Choice, error) {
	if node.Schematic == "" && len(node.Extensions) > 0 {
		if !wish.Lenient.AnySchematic {
			return Choice{}, &UnsuitableError{
				Kind:   ErrSchematic,
				Found:  fmt.Sprintf("%s is the generic installer, but the node runs the extensions %s and reports no schematic", node.field(), strings.Join(node.Extensions, ", ")),
				Remedy: "set installer_image to the image that holds them",
			}
		}

		node.Extensions = nil
	}

	takes := node.takesPlatform(target)
	if node.bare() && !node.SecureBoot && !target.AtLeast(1, 14) && !takes {
		return Choice{Reference: repository.At(target)}, nil
	}

	choice, err := fromFactory(node, target, wish)
	if err == nil && takes {
		choice.Advice = fmt.Sprintf("%s is built for platform %s, and a node on %s that takes the platform from the image it boots would lose it, so the installer is taken from %s",
			repository, metal, node.Platform, strings.TrimSuffix(choice.Reference, ":"+target.Tag()))
	}

	return choice, err
}

// resolveOwnBuild keeps a repository whose name does not describe its content, unless the node is known to run
// another factory image.
func resolveOwnBuild(node Running, target version.Version, repository Repository, wish Wish) (Choice, error) {
	if repository.names(node.Schematic) {
		return ownBuild(node, target, repository, node.Schematic)
	}

	if node.Schematic != "" && node.Schematic != EmptySchematic && !wish.Lenient.AnySchematic {
		return Choice{}, &UnsuitableError{
			Kind: ErrSchematic,
			Found: fmt.Sprintf("the node runs schematic %s, but its %s %s does not name it and would drop %s",
				node.Schematic, node.field(), repository, node.added()),
			Remedy: "set installer_image to a repository that ends in /<platform>-installer/" + node.Schematic,
		}
	}

	return ownBuild(node, target, repository, "")
}

// ownBuild chooses an image whose name need not say which platform it is built for.
func ownBuild(node Running, target version.Version, repository Repository, schematic string) (Choice, error) {
	choice := Choice{Reference: repository.At(target), Schematic: schematic}

	switch {
	case !node.takesPlatform(target):
	case repository.mirrorsGeneric():
		return Choice{}, loses(node, repository, metal)
	case !strings.Contains(repository.String(), strings.ToLower(node.Platform)):
		choice.Advice = fmt.Sprintf("the name of %s does not say which platform it is built for, and a node on %s takes the platform from the image that it boots; "+
			"the roll stops at a node that comes back on another one", repository, node.Platform)
	}

	return choice, nil
}

// loses returns the error for an image that is built for another platform than the one that the node runs on.
func loses(node Running, repository Repository, platform string) error {
	remedy := "set installer_image to a build of your own for " + node.Platform + ", which no Image Factory has"
	if node.Platform != equinixMetal {
		schematic := node.schematicHint()
		if node.bare() {
			schematic = EmptySchematic
		}

		remedy = fmt.Sprintf("set installer_image to a repository that ends in /%s-installer/%s", node.Platform, schematic)
	}

	return &UnsuitableError{
		Kind: ErrPlatform,
		Found: fmt.Sprintf("%s is built for platform %s, but the node runs on %s and takes the platform from the image that it boots, so that it would lose it",
			repository, platform, node.Platform),
		Remedy: remedy,
	}
}

// fromFactory chooses the factory image with the same content as what the node runs.
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
		platform = metal
	}

	factory := Factory{Platform: platform, SecureBoot: node.SecureBoot, Schematic: schematic}
	if !target.AtLeast(1, 10) && !node.takesPlatform(target) {
		// There, the factory has one installer for all platforms (SupportsUnifiedInstaller in machinery's
		// imager/quirks).
		factory.Platform = ""
	}

	repository, err := factory.Repository(wish.Factory)
	if err != nil {
		return Choice{}, err
	}

	if platform == equinixMetal && node.takesPlatform(target) {
		return Choice{}, loses(node, repository, metal)
	}

	return Choice{Reference: repository.At(target), Schematic: schematic}, nil
}

// matchSchematic refuses a node's own factory image if it does not contain what the node runs.
func matchSchematic(node Running, factory Factory, repository Repository, lenient Leniency) error {
	if node.Schematic != "" && node.Schematic != factory.Schematic && !lenient.AnySchematic {
		return &UnsuitableError{
			Kind: ErrSchematic,
			Found: fmt.Sprintf("the node runs schematic %s, but its %s %s names another one and would replace %s",
				node.Schematic, node.field(), repository, node.added()),
			Remedy: "set installer_image to the repository that is wanted",
		}
	}

	if node.Schematic == "" && len(node.Extensions) > 0 && !lenient.AnySchematic {
		return &UnsuitableError{
			Kind: ErrSchematic,
			Found: fmt.Sprintf("the node runs the extensions %s and reports no schematic, and its %s %s may not hold them",
				strings.Join(node.Extensions, ", "), node.field(), repository),
			Remedy: "set installer_image to the image that does",
		}
	}

	return nil
}

// matchFlavour refuses an image for another platform or another boot mode.
func matchFlavour(node Running, target version.Version, factory Factory, repository Repository, lenient Leniency) error {
	if err := matchBoot(node, repository, factory.SecureBoot, lenient); err != nil {
		return err
	}

	// An image without a platform in its name is for metal, and Equinix Metal has no images of its own.
	platform := node.Platform
	if platform == equinixMetal {
		platform = metal
	}

	if platform == factory.Platform && platform != node.Platform && node.takesPlatform(target) {
		return loses(node, repository, factory.Platform)
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

// matchBoot refuses an image whose boot mode differs from the node's.
func matchBoot(node Running, repository Repository, secure bool, lenient Leniency) error {
	if secure == node.SecureBoot || node.BootUnknown || lenient.AnyBoot {
		return nil
	}

	return &UnsuitableError{
		Kind:   ErrBoot,
		Found:  fmt.Sprintf("%s is %s, but the node boots %s", repository, bootFlavour(secure), bootFlavour(node.SecureBoot)),
		Remedy: "set installer_image to the installer " + bootFlavour(node.SecureBoot),
	}
}

func bootFlavour(secure bool) string {
	if secure {
		return "with secure boot"
	}

	return "without secure boot"
}

// added returns what the node would lose with a bare image.
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
