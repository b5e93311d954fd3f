// SPDX-License-Identifier: MPL-2.0

package image

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Running is what a node runs, as far as the choice of its image goes.
type Running struct {
	// InstallImage is what the machine configuration names; empty when unset or
	// unreadable. InstallField is where it does, machine.install.image when empty.
	InstallImage, InstallField string
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
	// UKI tells that the node takes its kernel arguments from the UKI of the image,
	// and with them the platform: it boots the UKI itself, or has GRUB read it.
	UKI bool
}

// elsewhere tells that the node runs on a platform that an Image Factory builds
// installers of its own for.
func (n Running) elsewhere() bool {
	return n.Platform != "" && n.Platform != metal && n.Platform != equinixMetal
}

// takesPlatform tells whether an image of that version makes the node run on the
// platform that it is built for. From Talos 1.10 on there is a UKI in every
// installer; before, in those for secure boot.
func (n Running) takesPlatform(target version.Version) bool {
	return n.UKI && n.Platform != "" && n.Platform != metal && (n.SecureBoot || target.AtLeast(1, 10))
}

// field is where the machine configuration names the install image.
func (n Running) field() string { return cmp.Or(n.InstallField, "machine.install.image") }

// bare tells whether the node runs Talos without anything added.
func (n Running) bare() bool {
	return (n.Schematic == "" && len(n.Extensions) == 0) || n.Schematic == EmptySchematic
}

// Wish is what the configuration says about the image of a node.
type Wish struct {
	// Repository, without tag, replaces the node's own; empty keeps that. With a
	// digest it is one image, and no other takes its place.
	Repository string
	// Factory is the host, with port and path if it has them, of the Image
	// Factory that serves images which neither names; [FactoryHost] when empty.
	Factory string
	// Lenient is what the image may cost the node.
	Lenient Leniency
}

// Choice is the image that a node is to run, and what the name of it promises.
type Choice struct {
	// Reference is the image with its tag or its digest.
	Reference string
	// Schematic that the installed system will report; empty when the name
	// does not tell.
	Schematic string
	// Demanded tells that the configuration asks for this schematic, so that a
	// node with another one is not at its target.
	Demanded bool
	// Advice is what is worth knowing about it, a phrase: why it is of another
	// repository than the one that is configured, or what its name leaves open.
	Advice string
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

// resolveFactory takes an image of an Image Factory. Where its name has no
// platform, which stands for metal from Talos 1.10 on, it gets the node's.
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

// resolveOverride takes the repository that the configuration names. One that
// names a schematic asks for it; one that names none must not cost the node
// its extensions, unless that is accepted.
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

	// What the node runs now is dropped where that was accepted.
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

// resolveGeneric replaces the generic installer where it would lose something
// or no longer exists.
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

// resolveOwnBuild keeps a repository whose name says nothing about its content,
// unless the node demonstrably runs a factory image from elsewhere.
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

// ownBuild is an image whose name does not have to say what it is built for.
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

// loses is the refusal of an image that is built for another platform than the
// node runs on.
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
		platform = metal
	}

	factory := Factory{Platform: platform, SecureBoot: node.SecureBoot, Schematic: schematic}
	if !target.AtLeast(1, 10) && !node.takesPlatform(target) {
		// The factory has one installer for all platforms there (SupportsUnifiedInstaller in
		// machinery's imager/quirks).
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

// matchSchematic refuses a node's own factory image when it does not hold what the
// node runs.
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

// matchFlavour refuses an image for another platform or another way to boot.
func matchFlavour(node Running, target version.Version, factory Factory, repository Repository, lenient Leniency) error {
	if err := matchBoot(node, repository, factory.SecureBoot, lenient); err != nil {
		return err
	}

	// An image without a platform in its name serves metal, and Equinix Metal
	// has no name of its own.
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

// matchBoot refuses an image that boots in another way than the node does.
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
