// SPDX-License-Identifier: MPL-2.0

package image

import (
	"regexp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// tagPattern separates the version in a tag from a vendor's suffix. Talos and Kubernetes have only these three kinds
// of pre-releases.
var tagPattern = regexp.MustCompile(`^(v?\d+\.\d+\.\d+)(?:(-(?:alpha|beta|rc)\.\d+)(?:[-_.][\w.-]*)?|[-_][\w.-]*)?$`)

// TagVersion returns the version in the tag of a component image. The suffixes alpha.N, beta.N and rc.N are
// pre-releases; any other is a vendor's, such as "-slim" or "-eks.1", and not part of the version. Errors wrap
// [version.ErrMalformed].
func TagVersion(tag string) (version.Version, error) {
	match := tagPattern.FindStringSubmatch(tag)
	if match == nil {
		return version.Parse(tag)
	}

	return version.Parse(match[1] + match[2])
}

// Version returns the version in the tag of a component image, as in [TagVersion]; zero if the tag contains none,
// such as "stable".
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
