// SPDX-License-Identifier: MPL-2.0

package compat

import (
	_ "embed" // for the list of releases
	"iter"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// releases is the list of stable releases that were known when the provider
// was built.
//
//go:embed releases.txt
var releases string

// The words that begin a line of the list.
const (
	wordTalos      = "talos"
	wordKubernetes = "kubernetes"
	wordAsOf       = "as-of"
)

// Releases are the known stable releases, oldest first. A release line may be
// in the matrix and have none.
func Releases() (talos, kubernetes []version.Version) {
	return known(wordTalos), known(wordKubernetes)
}

// ReleasesAsOf is the day on which the list of releases was made, as
// YYYY-MM-DD.
func ReleasesAsOf() string {
	for rest := range starting(wordAsOf) {
		return strings.TrimSpace(rest)
	}

	return ""
}

// NewestTalos is the newest known release of a release line of Talos; ok is
// false when none is known.
func NewestTalos(minor version.Minor) (newest version.Version, ok bool) {
	return newestOf(wordTalos, minor)
}

// NewestKubernetes is the newest known release of a release line of
// Kubernetes; ok is false when none is known.
func NewestKubernetes(minor version.Minor) (newest version.Version, ok bool) {
	return newestOf(wordKubernetes, minor)
}

// newestOf reads no more of the list than the last releases of the release
// line, up to one that was not withdrawn, since a planner asks often. A test holds the list to its order.
func newestOf(word string, minor version.Minor) (version.Version, bool) {
	prefix := minor.String() + "."

	for rest := range starting(word) {
		rest = strings.TrimSpace(rest)
		if !strings.HasPrefix(rest, prefix) {
			continue
		}

		for rest != "" {
			before := strings.LastIndexByte(rest, ' ')

			newest := version.MustParse(rest[before+1:])
			if word == wordKubernetes || !IsWithdrawn(newest) {
				return newest, true
			}

			rest = rest[:max(before, 0)]
		}

		break
	}

	return version.Version{}, false
}

func known(word string) []version.Version {
	var found []version.Version

	for rest := range starting(word) {
		for text := range strings.FieldsSeq(rest) {
			found = append(found, version.MustParse(text))
		}
	}

	slices.SortFunc(found, version.Version.Compare)

	return found
}

// starting yields what follows the word on each line that begins with it.
// Comments begin with another word.
func starting(word string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(releases) {
			rest, found := strings.CutPrefix(line, word+" ")
			if found && !yield(rest) {
				return
			}
		}
	}
}
