// SPDX-License-Identifier: MPL-2.0

// Package version parses, compares and prints the versions of Talos and of
// Kubernetes. Users write them with or without a leading "v"; so do the
// registries, the annotations and the nodes themselves.
package version

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// ErrMalformed is wrapped by every error of [Parse].
var ErrMalformed = errors.New("malformed version")

// Version is a release of Talos or of Kubernetes. The zero value means
// "unknown" and is older than any other version.
type Version struct {
	sv semver.Version
	ok bool
}

// Parse reads "1.13.4", "v1.13.4" or a pre-release such as "1.14.0-rc.1". Major, minor and patch are all
// required: "1.13" names a minor version, not a version that could be installed. Build metadata is refused,
// because an image tag cannot carry it.
func Parse(text string) (Version, error) {
	trimmed := strings.TrimPrefix(text, "v")

	parsed, err := semver.StrictNewVersion(trimmed)
	if err != nil {
		return Version{}, fmt.Errorf("%w %q: want MAJOR.MINOR.PATCH such as 1.13.4, with or without a leading v", ErrMalformed, text)
	}

	if parsed.Metadata() != "" {
		return Version{}, fmt.Errorf("%w %q: build metadata (+%s) cannot be part of an image tag", ErrMalformed, text, parsed.Metadata())
	}

	return Version{sv: *parsed, ok: true}, nil
}

// MustParse is like [Parse] but panics if the text is malformed. It is for constants.
func MustParse(text string) Version {
	parsed, err := Parse(text)
	if err != nil {
		panic(err)
	}

	return parsed
}

// IsZero reports whether the version is unknown.
func (v Version) IsZero() bool { return !v.ok }

// String returns the version without a leading "v", or "unknown" if it is zero.
func (v Version) String() string {
	if !v.ok {
		return "unknown"
	}

	return v.sv.String()
}

// Tag returns the version with a leading "v", as image tags and release pages spell it.
func (v Version) Tag() string { return "v" + v.String() }

// Compare returns a negative number if v is older than other, zero if they are the same version, and a positive
// number if v is newer. Pre-releases are older than their release.
func (v Version) Compare(other Version) int {
	switch {
	case !v.ok && !other.ok:
		return 0
	case !v.ok:
		return -1
	case !other.ok:
		return 1
	}

	return v.sv.Compare(&other.sv)
}

// Less reports whether v is older than other.
func (v Version) Less(other Version) bool { return v.Compare(other) < 0 }

// Equal reports whether both are the same version, with or without a leading "v".
func (v Version) Equal(other Version) bool { return v.Compare(other) == 0 }

// Minor returns the minor version that v belongs to.
func (v Version) Minor() Minor {
	return Minor{Major: v.sv.Major(), Minor: v.sv.Minor()}
}

// Core returns v without its pre-release part. Talos compares cores when it decides what an installer accepts
// (machinery/compatibility).
func (v Version) Core() Version {
	if !v.ok {
		return v
	}

	return Version{sv: *semver.New(v.sv.Major(), v.sv.Minor(), v.sv.Patch(), "", ""), ok: true}
}

// AtLeast reports whether the core of v is major.minor.0 or newer.
func (v Version) AtLeast(major, minor uint64) bool {
	return v.ok && v.Minor().Compare(Minor{Major: major, Minor: minor}) >= 0
}

// Lowest returns the oldest of the known versions, or zero if none is known.
func Lowest(versions ...Version) Version {
	var lowest Version

	for _, candidate := range versions {
		if candidate.ok && (!lowest.ok || candidate.Less(lowest)) {
			lowest = candidate
		}
	}

	return lowest
}

// Highest returns the newest of the versions, or zero if none is known.
func Highest(versions ...Version) Version {
	var highest Version

	for _, candidate := range versions {
		if highest.Less(candidate) {
			highest = candidate
		}
	}

	return highest
}
