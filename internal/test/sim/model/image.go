// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	genericRepository = "ghcr.io/siderolabs/installer"
	factoryHost       = "factory.talos.dev"
	schematicLength   = 64
)

// system is what an installer image writes into a slot.
type system struct {
	image     string
	digest    string
	broken    string // what its installer fails with, if it was built badly
	talos     string
	tag       string // what it calls its version, if that is another one
	schematic string
	// extensions are names with a comma between them, sorted.
	extensions string
	platform   string // of its UKI: metal, unless it was built for another one
	secure     bool
}

// parseInstaller reads what an installer image holds from its name, as the
// registries lay them out.
func parseInstaller(image string) (system, error) {
	name, _, _ := strings.Cut(image, "@")

	colon := strings.LastIndex(name, ":")
	if colon < strings.LastIndex(name, "/") || colon < 0 {
		return system{}, missingImage(image)
	}

	repository, tag := name[:colon], name[colon+1:]

	version, err := parseVersion(tag)
	if err != nil || !strings.HasPrefix(tag, "v") || !released(version) {
		return system{}, missingImage(image)
	}

	if repository == genericRepository && AtLeast(version.String(), 1, 14) {
		return system{}, missingImage(image)
	}

	content := system{image: image, talos: version.String(), platform: "metal"}
	content.flavour(strings.Split(repository, "/"))

	return content, nil
}

// flavour fills in what the Image Factory puts into the last two elements of
// the name: <platform>-installer[-secureboot]/<schematic>. People's own builds have
// no schematic.
func (s *system) flavour(elements []string) {
	if platform, own := strings.CutSuffix(elements[len(elements)-1], "-installer"); own {
		s.platform = platform
	}

	if len(elements) < 2 {
		return
	}

	kind, schematic := elements[len(elements)-2], elements[len(elements)-1]
	if !isSchematic(schematic) {
		return
	}

	kind, s.secure = strings.CutSuffix(kind, "-secureboot")

	platform, isInstaller := strings.CutSuffix(kind, "-installer")

	switch {
	case isInstaller:
		s.platform = platform
	case kind == "installer":
		s.platform = "metal"
	default:
		s.secure = false

		return
	}

	s.schematic = schematic
	if schematic != EmptySchematic {
		s.extensions = FactoryExtension
	}
}

func isSchematic(text string) bool {
	if len(text) != schematicLength {
		return false
	}

	return strings.Trim(text, "0123456789abcdef") == ""
}

// installerFor returns the image with which a machine of these options was installed.
func (o Options) installerFor(talos, schematic string) string {
	if schematic == "" && len(o.Extensions) > 0 {
		return OwnRepository + ":v" + talos
	}

	if schematic == "" && !AtLeast(talos, 1, 14) && !o.SecureBoot {
		return genericRepository + ":v" + talos
	}

	if schematic == "" {
		schematic = EmptySchematic
	}

	flavour := "-installer"
	if o.SecureBoot {
		flavour += "-secureboot"
	}

	return fmt.Sprintf("%s/%s%s/%s:v%s", factoryHost, o.Platform, flavour, schematic, talos)
}

// registry is what the registries have of installers. A tag has the content that its name says, until another build
// is pushed.
type registry struct {
	tags     map[string]system // by reference with a tag
	contents map[string]system // by reference with a digest
}

func newRegistry() *registry {
	return &registry{tags: map[string]system{}, contents: map[string]system{}}
}

// resolve finds what the registries have under a reference now. A build that was replaced is still there under its
// digest.
func (r *registry) resolve(reference string) (system, error) {
	reference = normalised(reference)

	if strings.Contains(reference, "@") {
		content, found := r.contents[reference]
		if !found {
			return system{}, missingImage(reference)
		}

		content.image = reference

		return content, nil
	}

	if content, found := r.tags[reference]; found {
		return content, nil
	}

	content, err := parseInstaller(reference)
	if err != nil {
		return system{}, err
	}

	return r.put(content, digest(reference)), nil
}

func (r *registry) put(content system, digested string) system {
	_, content.digest, _ = strings.Cut(digested, "@")
	r.tags[content.image], r.contents[digested] = content, content

	return content
}

// PushImage replaces the installer under a tag by another build of it, and returns its digest. broken is what its
// installer fails with; empty if it works.
func (w *World) PushImage(tagged, broken string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	before, err := w.registry.resolve(tagged)
	if err != nil {
		return "", err
	}

	content := before
	content.broken = broken

	return w.registry.put(content, anotherBuild(tagged, before)).digest, nil
}

// Build is the content of another build of an installer.
type Build struct {
	// Schematic is the schematic that the build says it was made of; empty for none.
	Schematic string
	// Extensions are the names of its system extensions.
	Extensions []string
}

// PushBuild replaces the installer under a tag by another build of it. Until then an image has the content that its
// name says, and no extensions if its name says nothing.
func (w *World) PushBuild(tagged string, build Build) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	before, err := w.registry.resolve(tagged)
	if err != nil {
		return err
	}

	content := before
	content.schematic, content.extensions = build.Schematic, joined(build.Extensions)
	w.registry.put(content, anotherBuild(tagged, before))

	return nil
}

// names returns the names of the extensions.
func (s system) names() []string {
	if s.extensions == "" {
		return nil
	}

	return strings.Split(s.extensions, ",")
}

// joined returns the names, sorted, with commas between them.
func joined(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), ",") }

// anotherBuild returns the reference by digest of the build that replaces an installer under its tag.
func anotherBuild(tagged string, before system) string {
	repository, _ := splitImage(tagged)
	_, sum, _ := strings.Cut(digest(before.digest), "@")

	return repository + "@" + sum
}

// ImageDigest returns the digest that the registries have for a reference now.
func (w *World) ImageDigest(reference string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	content, err := w.registry.resolve(reference)

	return content.digest, err
}

// normalised returns a reference as containerd stores it: a digest replaces a tag.
func normalised(reference string) string {
	_, sum, digested := strings.Cut(reference, "@")
	if !digested {
		return reference
	}

	repository, _ := splitImage(reference)

	return repository + "@" + sum
}

// digest returns the reference by digest that a tag stands for, unless another image was pushed there.
func digest(tagged string) string {
	repository, _ := splitImage(tagged)

	return fmt.Sprintf("%s@sha256:%x", repository, draw(0, "image", tagged))
}

// imageStore holds the installers on a machine by their references.
type imageStore map[string]storedImage

type storedImage struct {
	content system
	created time.Time
	used    time.Time
}

// put stores an image under its reference, under its repository with its digest, and under
// its digest alone (Talos 1.13.9, internal/pkg/containers/image: manageAliases).
func (s imageStore) put(content system, now time.Time) {
	repository, _ := splitImage(content.image)

	for _, name := range []string{content.image, repository + "@" + content.digest, content.digest} {
		stored, there := s[name]
		if !there || stored.content.digest != content.digest {
			stored.created = now
		}

		stored.content, stored.used = content, now
		s[name] = stored
	}
}

// has reports whether a store has some content under any name.
func (s imageStore) has(digest string) bool {
	for _, stored := range s {
		if stored.content.digest == digest {
			return true
		}
	}

	return false
}

// unflushed returns the digests of what was unpacked so recently that it is not on the disk yet. The names are,
// because they are flushed at once.
func (s imageStore) unflushed(now time.Time) []string {
	const flushed = 30 * time.Second

	var lately []string

	for _, stored := range s {
		if now.Sub(stored.created) < flushed {
			lately = append(lately, stored.content.digest)
		}
	}

	return lately
}

// find returns what a store has under exactly that reference, unless it was not used for too long.
func (s imageStore) find(reference string, now time.Time) (system, bool) {
	stored, there := s[reference]
	stored.content.image = reference

	return stored.content, there && now.Sub(stored.used) <= imageLifetime
}

// Image is an image in the containerd of a machine.
type Image struct {
	// Name is a tag, or a digest that somebody asked for.
	Name, Digest string
	Size         int64
	Created      time.Time
}

// Images lists what a machine has in a namespace of the containerd of its kubelet, or
// in the one of Talos itself, by name.
func (w *World) Images(ctx context.Context, name string, in ImageNamespace) (list []Image, err error) {
	if in != NamespaceSystem && in != NamespaceCRI && in != NamespaceOwn {
		return nil, fmt.Errorf("namespace %q: %w", in, ErrUnsupported)
	}

	if err := ctx.Err(); err != nil {
		return nil, err
	}

	add := func(image, sum string, pulled time.Time) {
		list = append(list, Image{Name: image, Digest: sum, Size: imageSize, Created: pulled})
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, "images"); err != nil {
			return
		}

		for image, pulled := range n.pulled {
			if image.namespace == in {
				_, sum, _ := strings.Cut(referenceByDigest(image.image), "@")
				add(image.image, sum, pulled)
			}
		}

		for image, stored := range w.fresh(n.installers(in)) {
			add(image, stored.content.digest, stored.created)
		}
	})

	slices.SortFunc(list, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })

	return list, err
}

// installers returns the installers of a machine in a namespace; nil if it has none.
func (n *node) installers(in ImageNamespace) imageStore {
	switch in {
	case NamespaceSystem:
		return n.images
	case NamespaceOwn:
		return n.ownImages
	default:
		return nil
	}
}

// RemoveImage removes one reference to an image from a machine. The content is kept for as long as another
// reference stands for it.
func (w *World) RemoveImage(ctx context.Context, name, image string, in ImageNamespace) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}

	w.locked(func() {
		var n *node

		if n, err = w.reach(name); err != nil {
			return
		}

		_, component := n.pulled[runtimeImage{in, image}]
		_, installer := n.installers(in)[image]

		if !component && !installer {
			err = fmt.Errorf("image %s not found: %w", image, ErrImageNotFound)
		}

		delete(n.pulled, runtimeImage{in, image})
		delete(n.installers(in), image)
		w.touch(n)
	})

	return err
}
