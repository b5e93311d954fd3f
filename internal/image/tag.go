// SPDX-License-Identifier: MPL-2.0

package image

import (
	"regexp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// tagPattern tells the version in a tag from what a vendor adds to it. Talos and
// Kubernetes have pre-releases of three kinds, and no others.
var tagPattern = regexp.MustCompile(`^(v?\d+\.\d+\.\d+)(?:(-(?:alpha|beta|rc)\.\d+)(?:[-_.][\w.-]*)?|[-_][\w.-]*)?$`)

// TagVersion is the version that the tag of a component image stands for. Of
// what follows it, alpha.N, beta.N and rc.N are pre-releases; anything else is a
// vendor's, such as "-slim" or "-eks.1", and no part of the version. Errors wrap
// [version.ErrMalformed].
func TagVersion(tag string) (version.Version, error) {
	match := tagPattern.FindStringSubmatch(tag)
	if match == nil {
		return version.Parse(tag)
	}

	return version.Parse(match[1] + match[2])
}

// Version is the version that a component image is named by, with [TagVersion]; zero where
// its tag stands for none, as that of "stable".
func Version(reference string) version.Version {
	_, tag, err := Split(reference)
	if err != nil {
		return version.Version{}
	}

	named, err := TagVersion(tag)
	if err != nil {
		return version.Version{}
	}

	return named
}
