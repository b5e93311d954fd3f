// SPDX-License-Identifier: MPL-2.0

// Package image reads references of Talos installer images and decides which
// image a node is to be upgraded with, so that no node loses its extensions,
// its platform or secure boot on the way.
package image

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/distribution/reference"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// FactoryHost serves the images of the public Image Factory.
	FactoryHost = "factory.talos.dev"
	// EmptySchematic is the factory's schematic without any extension: from
	// Talos 1.14 on it is what the generic installer used to be.
	EmptySchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
	// genericRepository is the installer without extensions. It is published
	// up to Talos 1.13 only.
	genericRepository = "ghcr.io/siderolabs/installer"
	// equinixMetal is how Talos spells the one platform that the factory has no
	// name for.
	equinixMetal = "equinixMetal"
)

// ErrReference is wrapped by errors about text that is no image reference.
var ErrReference = errors.New("not an image reference")

var (
	schematicPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// A factory names its installers after the platform; the spelling without
	// a platform is the older one and means metal.
	installerPattern = regexp.MustCompile(`^(?:([a-z0-9][a-z0-9.-]*)-)?installer(-secureboot)?$`)
)

// Repository is an image reference without tag and digest.
type Repository struct {
	name reference.Named
}

// ParseRepository reads a reference that must carry neither tag nor digest,
// such as "registry.example.com:5000/talos/installer". Errors wrap
// [ErrReference].
func ParseRepository(text string) (Repository, error) {
	named, err := parseNamed(text)
	if err != nil {
		return Repository{}, err
	}

	if !reference.IsNameOnly(named) {
		return Repository{}, fmt.Errorf("%w without tag: %q carries a tag or a digest; give the repository alone, such as %q", ErrReference, text, reference.TrimNamed(named).Name())
	}

	return Repository{name: named}, nil
}

// Split reads a full reference and returns its repository and its tag. The tag
// is empty when there is none; a digest is dropped. Errors wrap [ErrReference].
func Split(text string) (Repository, string, error) {
	named, err := parseNamed(text)
	if err != nil {
		return Repository{}, "", err
	}

	var tag string
	if tagged, ok := named.(reference.Tagged); ok {
		tag = tagged.Tag()
	}

	return Repository{name: reference.TrimNamed(named)}, tag, nil
}

func parseNamed(text string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrReference, text, err)
	}

	return named, nil
}

// TagVersion is the version that a tag such as "v1.34.1-slim" stands for.
// Variants of the kubelet image carry a suffix that is no pre-release.
func TagVersion(tag string) (version.Version, error) {
	for _, suffix := range []string{"-slim", "-fat"} {
		tag = strings.TrimSuffix(tag, suffix)
	}

	return version.Parse(tag)
}

// String is the repository as it is pulled from.
func (r Repository) String() string {
	if r.name == nil {
		return ""
	}

	return r.name.Name()
}

// At is the reference of the repository's image of the given version.
func (r Repository) At(v version.Version) string { return r.String() + ":" + v.Tag() }

// Generic tells whether this is the installer without extensions that
// siderolabs published up to Talos 1.13.
func (r Repository) Generic() bool { return r.String() == genericRepository }

// Factory reads the repository as one of an Image Factory; ok is false when it
// is not built like one. The host may be a mirror.
func (r Repository) Factory() (Factory, bool) {
	if r.name == nil {
		return Factory{}, false
	}

	parts := strings.Split(reference.Path(r.name), "/")
	if len(parts) < 2 {
		return Factory{}, false
	}

	schematic, installer := parts[len(parts)-1], parts[len(parts)-2]
	match := installerPattern.FindStringSubmatch(installer)

	if match == nil || !schematicPattern.MatchString(schematic) {
		return Factory{}, false
	}

	platform := match[1]
	if platform == "" {
		platform = "metal"
	}

	return Factory{Platform: platform, SecureBoot: match[2] != "", Schematic: schematic}, true
}

// names tells whether the last part of the repository is the schematic, as in a
// mirror that keeps the factory's images under names of its own.
func (r Repository) names(schematic string) bool {
	return schematic != "" && strings.HasSuffix(r.String(), "/"+schematic)
}

// Factory is what the name of a factory image says about its content.
type Factory struct {
	// Platform is "metal" where the name does not say.
	Platform   string
	SecureBoot bool
	Schematic  string
}

// Repository is the name that the factory at the host serves the image under.
func (f Factory) Repository(host string) (Repository, error) {
	installer := f.Platform + "-installer"

	// The factory has no platform name with capitals; Talos on Equinix Metal
	// uses the plain installer.
	if f.Platform == "" || f.Platform == equinixMetal {
		installer = "installer"
	}

	if f.SecureBoot {
		installer += "-secureboot"
	}

	return ParseRepository(host + "/" + installer + "/" + f.Schematic)
}
