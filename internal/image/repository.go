// SPDX-License-Identifier: MPL-2.0

// Package image parses image references. It decides which installer a node is upgraded with, so that no node loses
// its extensions, its platform or secure boot, and which images its components come from, so that they stay in their
// registries.
package image

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/distribution/reference"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// FactoryHost serves the images of the public Image Factory.
	FactoryHost = "factory.talos.dev"
	// EmptySchematic is the factory's schematic without any extension. From Talos 1.14 on, it replaces the generic
	// installer.
	EmptySchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
	// genericRepository is the installer without extensions. It is published up to Talos 1.13 only.
	genericRepository = "ghcr.io/siderolabs/installer"
	// metal is the platform of images whose name contains none.
	metal = "metal"
	// equinixMetal is how Talos spells the only platform for which the factory has no name.
	equinixMetal = "equinixMetal"
)

// ErrReference is wrapped by errors about text that is not an image reference.
var ErrReference = errors.New("not an image reference")

var (
	schematicPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// A factory puts the platform into the names of its installers. The spelling without a platform is older and
	// means metal.
	installerPattern = regexp.MustCompile(`^(?:([a-z0-9][a-z0-9.-]*)-)?installer(-secureboot)?$`)
)

// Repository is an image reference, without tag and without digest unless
// [ParseInstaller] read one.
type Repository struct {
	name reference.Named
}

// ParseRepository parses a reference without tag and digest, such as "registry.example.com:5000/talos/installer".
// Errors wrap [ErrReference].
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

// ParseInstaller parses the image of an installer as it may be configured: a repository, as in [ParseRepository],
// optionally with the tag of a Talos version, such as "registry.example.com:5000/talos/installer:v1.13.4", or an
// image by its digest, such as "registry.example.com:5000/talos/installer@sha256:...". Errors wrap [ErrReference].
func ParseInstaller(text string) (Repository, error) {
	named, err := parseNamed(text)
	if err != nil {
		return Repository{}, err
	}

	repository := Repository{name: named}

	switch tag := repository.tag(); {
	case tag == "":
	case repository.Pinned():
		return Repository{}, fmt.Errorf("%w: %q carries a tag and a digest, and means the image of the digest; leave the tag out", ErrReference, text)
	case repository.Version().IsZero():
		return Repository{}, fmt.Errorf("%w with the tag of a version: %q carries the tag %s, which is no version of Talos; give the repository alone, such as %q, or an image of it by its digest, such as %q",
			ErrReference, text, tag, repository, repository.String()+"@sha256:<digest>")
	}

	return repository, nil
}

// Split parses a full reference and returns its repository and its tag, which is empty if there is none. A digest is
// dropped. Errors wrap [ErrReference].
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

// parsed caches parsed references. A plan parses the same few references for each of a thousand nodes, which would
// take longer than everything else in it.
var parsed = memory{known: map[string]reading{}} //nolint:gochecknoglobals // what a text means never changes

// memory is a cache of parsed references. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	known map[string]reading
}

// reading is the result of parsing a text.
type reading struct {
	named reference.Named
	err   error
}

// maxParsed is the size at which the memory is cleared.
const maxParsed = 1024

func (m *memory) read(text string) (reference.Named, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if before, found := m.known[text]; found {
		return before.named, before.err
	}

	if len(m.known) >= maxParsed {
		clear(m.known)
	}

	named, err := reference.ParseNormalizedNamed(text)
	m.known[text] = reading{named, err}

	return named, err
}

func parseNamed(text string) (reference.Named, error) {
	named, err := parsed.read(text)

	switch {
	case err == nil && reachable(reference.Domain(named)):
		return named, nil
	case confidential(text):
		return nil, fmt.Errorf("%w: it holds what may be a password and is not repeated here; write registry, path and name alone", ErrReference)
	case err == nil:
		return nil, fmt.Errorf("%w: %q: its port is not one of 1 to 65535", ErrReference, text)
	default:
		return nil, fmt.Errorf("%w: %q: %w", ErrReference, text, err)
	}
}

// reachable reports whether the port of the registry is valid. It is true if the registry has no port.
func reachable(registry string) bool {
	colon := strings.LastIndexByte(registry, ':')
	if colon < 0 || strings.HasSuffix(registry, "]") {
		return true
	}

	port, err := strconv.ParseUint(registry[colon+1:], 10, 16)

	return err == nil && port > 0
}

// confidential reports whether text that is not a reference may contain a password: a user name before a host, or a
// query. A digest is neither.
func confidential(text string) bool {
	if at := strings.LastIndexByte(text, '@'); at >= 0 && (strings.HasPrefix(text[at:], "@sha256:") || strings.HasPrefix(text[at:], "@sha512:")) {
		text = text[:at]
	}

	return strings.ContainsAny(text, "@?")
}

// String returns the repository without tag and digest.
func (r Repository) String() string {
	if r.name == nil {
		return ""
	}

	return r.name.Name()
}

// At returns the reference of the repository's image of the given version. If the repository is pinned, it is the
// pinned image, regardless of the version.
func (r Repository) At(v version.Version) string {
	if r.Pinned() {
		return r.name.String()
	}

	return r.String() + ":" + v.Tag()
}

// Version returns the Talos version of the tag; zero if the repository has none.
func (r Repository) Version() version.Version {
	named, err := version.Parse(r.tag())
	if err != nil {
		return version.Version{}
	}

	return named
}

// tag returns the tag of the repository; empty if it has none.
func (r Repository) tag() string {
	tagged, ok := r.name.(reference.Tagged)
	if !ok {
		return ""
	}

	return tagged.Tag()
}

// Pinned reports whether the repository carries the digest of one image.
func (r Repository) Pinned() bool {
	_, digested := r.name.(reference.Digested)

	return digested
}

// Generic reports whether this is the installer without extensions that siderolabs published up to Talos 1.13.
func (r Repository) Generic() bool { return r.String() == genericRepository }

// InstallsNothing reports whether this is, by its name, one of the other images that siderolabs publishes with each
// release of Talos (the list "Images" of the release notes of v1.13.9 and v1.14.4).
func (r Repository) InstallsNothing() bool {
	if r.name == nil {
		return false
	}

	parts := strings.Split(reference.Path(r.name), "/")
	if len(parts) < 2 || parts[len(parts)-2] != "siderolabs" {
		return false
	}

	return slices.Contains([]string{"imager", "installer-base", "talos", "talosctl", "talosctl-all", "overlays", "extensions", "kubelet"}, parts[len(parts)-1])
}

// mirrorsGeneric reports whether this is, by its name, the generic installer at any registry.
func (r Repository) mirrorsGeneric() bool {
	_, name, _ := strings.Cut(genericRepository, "/")

	return strings.HasSuffix(r.String(), "/"+name)
}

// Factory parses the repository as one of an Image Factory, which may be a mirror; false if it is not named like
// one.
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
		platform = metal
	}

	return Factory{Platform: platform, SecureBoot: match[2] != "", Schematic: schematic}, true
}

// names reports whether the last part of the repository is the schematic, as in a mirror that keeps the factory's
// images under its own names.
func (r Repository) names(schematic string) bool {
	return schematic != "" && strings.HasSuffix(r.String(), "/"+schematic)
}
