// SPDX-License-Identifier: MPL-2.0

// Package release finds out which versions of Talos and Kubernetes exist, from the built-in list, an Image
// Factory or the tags of an OCI repository, and whether a registry has an image. It only reads.
package release

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Errors of sources, by meaning. Errors of [New] wrap ErrLocation; errors of [Source.Versions] wrap one of the
// others, or the error of a cancelled context. Each text begins with the name of the source.
var (
	// ErrLocation: the text names no source.
	ErrLocation = errors.New("not a source of releases")
	// ErrUnreachable: there was no answer, or not in time, which may pass.
	ErrUnreachable = errors.New("unavailable")
	// ErrDenied: the source requires credentials, or other ones.
	ErrDenied = errors.New("access denied")
	// ErrNotFound: there is no such list or repository.
	ErrNotFound = errors.New("not found")
	// ErrAnswer: the answer is no list of versions.
	ErrAnswer = errors.New("unusable answer")
	// ErrEmpty: the answer is a list, but contains no version that was asked for.
	ErrEmpty = errors.New("no version")
)

// The values that a location may have.
const (
	// Embedded is the built-in list: it works offline, and is complete up to the day in [List.AsOf].
	Embedded = "embedded"
	// Factory is the version list of the Image Factory. It lists Talos only.
	Factory = "factory"
	// OCI is the prefix of the location of a repository.
	OCI = "oci://"
)

const (
	// DefaultFactoryURL is the base of the public Image Factory.
	DefaultFactoryURL = "https://factory.talos.dev"
	// DefaultTimeout is how long a source may take to answer.
	DefaultTimeout = 20 * time.Second
	// maxAnswer is how many bytes a source may send in all answers together: about ten times the longest known
	// list.
	maxAnswer = 4 << 20
)

// Source lists the existing versions of one product.
type Source interface {
	// Versions queries the source. It is safe for concurrent use.
	Versions(ctx context.Context) (List, error)
}

// List is the answer of a source.
type List struct {
	// Versions are in ascending order, without duplicates; there is at least one.
	Versions []version.Version
	// Source is where they come from, as a person would write it.
	Source string
	// AsOf is the day, as in 2026-10-01, up to which the list is complete; empty if the source was queried just
	// now.
	AsOf string
}

// New returns the source at the location: [Embedded], [Factory], or [OCI] and the repository. Nothing is
// contacted. Errors wrap [ErrLocation].
func New(product version.Product, location string, options Options) (Source, error) {
	switch {
	case location == Embedded:
		return embedded{product: product, options: options}, nil
	case location == Factory && product == version.Talos:
		return newFactory(options)
	case location == Factory:
		return nil, fmt.Errorf("%s is %w of %s: the Image Factory lists versions of Talos alone; allowed are %s", quoted(location), ErrLocation, product.Name(), allowed(product))
	case strings.HasPrefix(location, OCI):
		return newRepository(product, location, options)
	default:
		return nil, fmt.Errorf("%s is %w of %s; allowed are %s", quoted(location), ErrLocation, product.Name(), allowed(product))
	}
}

// allowed lists the possible locations, with an example of a repository.
func allowed(product version.Product) string {
	if product == version.Talos {
		return `"embedded", "factory" and a repository such as "oci://ghcr.io/siderolabs/installer"`
	}

	return `"embedded" and a repository such as "oci://registry.k8s.io/kube-apiserver"`
}
