// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// releasePattern matches the tags that Talos and Kubernetes give releases. A registry holds other tags too:
// builds between releases (v1.14.0-alpha.1-12-gabcdef), variants (v1.34.1-slim), signatures (sha256-...) and
// floating tags (latest, v1.13).
var releasePattern = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// newList returns the releases among the tags that the options ask for.
func newList(source string, product version.Product, tags []string, options Options) (List, error) {
	list := List{Source: source}
	withheld := 0

	for _, tag := range tags {
		if !releasePattern.MatchString(tag) {
			continue
		}

		parsed, err := version.Parse(tag)
		if err != nil {
			continue
		}

		if !options.PreReleases && !parsed.Equal(parsed.Core()) {
			withheld++

			continue
		}

		list.Versions = append(list.Versions, parsed)
	}

	slices.SortFunc(list.Versions, version.Version.Compare)
	list.Versions = slices.CompactFunc(list.Versions, version.Version.Equal)

	switch {
	case len(list.Versions) > 0:
		return list, nil
	case withheld > 0:
		return List{}, fmt.Errorf("%s: %w: of %s it has nothing but %d pre-releases, which were not asked for", source, ErrEmpty, product.Name(), withheld)
	case len(tags) == 0:
		return List{}, fmt.Errorf("%s: %w: it lists nothing at all", source, ErrEmpty)
	default:
		return List{}, fmt.Errorf("%s: %w of %s among its %d entries, the first of which is %s",
			source, ErrEmpty, product.Name(), len(tags), clip(tags[0]))
	}
}

// newOffer returns the releases among the tags that the options ask for and that were not withdrawn.
func newOffer(source string, product version.Product, tags []string, options Options) (List, error) {
	list, err := newList(source, product, tags, options)
	if err != nil || product != version.Talos {
		return list, err
	}

	known := len(list.Versions)

	list.Versions = slices.DeleteFunc(list.Versions, options.table().IsWithdrawn)
	if len(list.Versions) == 0 {
		return List{}, fmt.Errorf("%s: %w: each of the %d releases that it lists was withdrawn", source, ErrEmpty, known)
	}

	return list, nil
}

// given is a list that a user wrote down.
type given struct {
	name     string
	product  version.Product
	versions []version.Version
	options  Options
}

// Given returns the source of a list that a user wrote down; name says where.
func Given(name string, product version.Product, versions []version.Version, options Options) Source {
	return given{name: name, product: product, versions: versions, options: options}
}

// Versions implements [Source]. Withdrawn releases are not left out: the user listed them.
func (g given) Versions(context.Context) (List, error) {
	return newList(g.name, g.product, tags(g.versions), g.options)
}

func tags(versions []version.Version) []string {
	texts := make([]string, 0, len(versions))
	for _, v := range versions {
		texts = append(texts, v.Tag())
	}

	return texts
}
