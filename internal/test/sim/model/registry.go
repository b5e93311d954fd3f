// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"strings"
	"time"
)

// registry is what the registries have of installers. Under a tag there is what its
// name says, until somebody pushes another build.
type registry struct {
	tags     map[string]system // by reference with a tag
	contents map[string]system // by reference with a digest
}

func newRegistry() *registry {
	return &registry{tags: map[string]system{}, contents: map[string]system{}}
}

// resolve finds what the registries have under a reference now. What was pushed over
// is still there under its digest.
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

// PushImage replaces the installer under a tag by another build of it, and returns
// its digest. broken is what its installer fails with, empty for one that works.
func (w *World) PushImage(tagged, broken string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	before, err := w.registry.resolve(tagged)
	if err != nil {
		return "", err
	}

	content := before
	content.broken = broken
	repository, _ := splitImage(tagged)
	_, sum, _ := strings.Cut(digest(before.digest), "@")

	return w.registry.put(content, repository+"@"+sum).digest, nil
}

// ImageDigest is the digest that the registries have for a reference now.
func (w *World) ImageDigest(reference string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	content, err := w.registry.resolve(reference)

	return content.digest, err
}

// normalised is a reference as containerd stores it: a digest takes the place of a tag.
func normalised(reference string) string {
	_, sum, digested := strings.Cut(reference, "@")
	if !digested {
		return reference
	}

	repository, _ := splitImage(reference)

	return repository + "@" + sum
}

// digest is what a reference with a tag stands for, unless somebody pushed another
// image there.
func digest(tagged string) string {
	repository, _ := splitImage(tagged)

	return fmt.Sprintf("%s@sha256:%x", repository, draw(0, "image", tagged))
}

// imageStore are installers on a machine, by the references under which they are found.
type imageStore map[string]storedImage

type storedImage struct {
	content system
	pulled  time.Time
}

// put stores an image under its reference and under its digest.
func (s imageStore) put(content system, now time.Time) {
	repository, _ := splitImage(content.image)

	s[content.image] = storedImage{content, now}
	s[repository+"@"+content.digest] = storedImage{content, now}
}

// find is what a store has under exactly that reference, unless nothing ran it for
// too long.
func (s imageStore) find(reference string, now time.Time) (system, bool) {
	stored, there := s[reference]
	stored.content.image = reference

	return stored.content, there && now.Sub(stored.pulled) <= imageLifetime
}
