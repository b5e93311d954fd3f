// SPDX-License-Identifier: MPL-2.0

// Package release finds out which versions of Talos and of Kubernetes exist: in
// the list that is built in, at an Image Factory, or among the tags of an OCI
// repository; and whether a registry has an image. It only reads.
package release

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Errors of sources, by meaning. What [New] returns wraps ErrLocation; what
// [Source.Versions] returns wraps one of the others, or the error of a context
// that was cancelled. Each text begins with the name of the source.
var (
	// ErrLocation: the text names no source.
	ErrLocation = errors.New("not a source of releases")
	// ErrUnreachable: nothing answered, or not in time; it may heal by itself.
	ErrUnreachable = errors.New("unavailable")
	// ErrDenied: the source wants credentials, or others.
	ErrDenied = errors.New("access denied")
	// ErrNotFound: there is no such list or repository.
	ErrNotFound = errors.New("not found")
	// ErrAnswer: the answer is no list of versions.
	ErrAnswer = errors.New("unusable answer")
	// ErrEmpty: the answer is a list, and no version that was asked for is in it.
	ErrEmpty = errors.New("no version")
)

// The ways to write a location.
const (
	// Embedded is the list that is built in: offline, and as old as it says.
	Embedded = "embedded"
	// Factory is the version list of the Image Factory. It knows Talos alone.
	Factory = "factory"
	// OCI is what the location of a repository begins with.
	OCI = "oci://"
)

const (
	// DefaultFactoryURL is the base of the public Image Factory.
	DefaultFactoryURL = "https://factory.talos.dev"
	// DefaultTimeout is how long a source may take to answer.
	DefaultTimeout = 20 * time.Second
	// maxAnswer is how many bytes of answers a source may send: some ten times
	// what the longest known list takes.
	maxAnswer = 4 << 20
)

// Source knows which versions of one product exist.
type Source interface {
	// Versions asks the source. It is safe for concurrent use.
	Versions(ctx context.Context) (List, error)
}

// List is what a source answered.
type List struct {
	// Versions are in ascending order, each once; at least one.
	Versions []version.Version
	// Source is where they come from, as a person would write it.
	Source string
	// AsOf is the day, as in 2026-10-01, up to which the list is complete; empty
	// when the source was asked just now.
	AsOf string
}

// New is the source at the location: [Embedded], [Factory], or [OCI] and the
// repository. Nothing is contacted. Errors wrap [ErrLocation].
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

// allowed lists what may be written, with an example of a repository.
func allowed(product version.Product) string {
	if product == version.Talos {
		return `"embedded", "factory" and a repository such as "oci://ghcr.io/siderolabs/installer"`
	}

	return `"embedded" and a repository such as "oci://registry.k8s.io/kube-apiserver"`
}
