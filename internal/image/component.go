// SPDX-License-Identifier: MPL-2.0

package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// kubelet is the only component whose image siderolabs publishes.
const kubelet = "kubelet"

// ComponentChoice is the image that a machine configuration is to name for a component.
type ComponentChoice struct {
	// Reference is the image with its tag.
	Reference string
	// Digest is the digest of the current image, which the reference omits because it belongs to another version;
	// empty if there is none.
	Digest string
}

// Component chooses the image of a component, such as "kube-apiserver", in the target version. The repository is
// override, which has no tag; if that is empty, the repository of the current image; if that is empty too, the one
// that Talos uses by default. What follows the version in the current tag, such as "-slim", follows the new version.
// Errors wrap [ErrReference].
func Component(current, override, component string, target version.Version) (ComponentChoice, error) {
	var choice ComponentChoice

	present, tag, unread := Split(current)
	if unread == nil {
		choice.Digest = digestOf(current)
	}

	repository := present
	newTag := tagLike(tag, target)

	switch {
	case override != "":
		wanted, err := ParseRepository(override)
		if err != nil {
			return ComponentChoice{}, err
		}

		// Another repository may spell versions differently.
		if wanted.String() != present.String() {
			newTag = "v" + strings.TrimPrefix(newTag, "v")
		}

		repository = wanted
	case current == "":
		wanted, err := ParseRepository(DefaultComponent(component))
		if err != nil {
			return ComponentChoice{}, err
		}

		repository = wanted
	case unread != nil:
		return ComponentChoice{}, unread
	}

	tagged, err := reference.WithTag(repository.name, newTag)
	if err != nil {
		return ComponentChoice{}, fmt.Errorf("%w: %s:%s: %w", ErrReference, repository, newTag, err)
	}

	choice.Reference = repository.String() + ":" + tagged.Tag()

	return choice, nil
}

// DefaultComponent returns the repository from which Talos takes a component if the machine configuration names
// none.
func DefaultComponent(component string) string {
	if component == kubelet {
		return "ghcr.io/siderolabs/" + kubelet
	}

	return "registry.k8s.io/" + component
}

// SameRepository reports whether an image, with or without tag and digest, is of the repository. It is false for an
// image that cannot be parsed.
func SameRepository(image, repository string) bool {
	one, _, err := Split(image)
	if err != nil {
		return false
	}

	other, _, err := Split(repository)

	return err == nil && one.String() == other.String()
}

// tagLike returns the tag of a version, with the spelling and the suffix of another tag. A suffix that would change
// the version is omitted.
func tagLike(tag string, target version.Version) string {
	match := tagPattern.FindStringSubmatch(tag)
	if match == nil {
		return target.Tag()
	}

	plain := target.Tag()
	if !strings.HasPrefix(tag, "v") {
		plain = target.String()
	}

	like := plain + tag[len(match[1])+len(match[2]):]
	if stands, err := TagVersion(like); err != nil || !stands.Equal(target) {
		return plain
	}

	return like
}

func digestOf(text string) string {
	named, err := parseNamed(text)
	if err != nil {
		return ""
	}

	if digested, ok := named.(reference.Digested); ok {
		return digested.Digest().String()
	}

	return ""
}
