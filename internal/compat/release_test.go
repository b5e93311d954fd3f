// SPDX-License-Identifier: MPL-2.0

package compat_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestReleases_AreStableAndInOrder(t *testing.T) {
	t.Parallel()

	talos, kubernetes := compat.Releases()

	for half, known := range map[string][]version.Version{"Talos": talos, "Kubernetes": kubernetes} {
		if !slices.IsSortedFunc(known, version.Version.Compare) {
			t.Errorf("%s: not in order: %v", half, known)
		}

		for index, release := range known {
			if strings.Contains(release.String(), "-") {
				t.Errorf("%s: %s is a pre-release", half, release)
			}

			if index > 0 && release.Equal(known[index-1]) {
				t.Errorf("%s: %s is listed twice", half, release)
			}
		}
	}
}

// TestReleases_CoverEveryReleasedLineOfTheMatrix allows the lines at the end of
// the matrix to have none: they are known before their release.
func TestReleases_CoverEveryReleasedLineOfTheMatrix(t *testing.T) {
	t.Parallel()

	talos, kubernetes := compat.Releases()
	oldestTalos, _ := compat.TalosMinors()
	oldestKubernetes, _ := compat.KubernetesRange()

	for half, test := range map[string]struct {
		known  []version.Version
		oldest version.Minor
		newest func(version.Minor) (version.Version, bool)
	}{
		"Talos":      {talos, oldestTalos, compat.NewestTalos},
		"Kubernetes": {kubernetes, oldestKubernetes, compat.NewestKubernetes},
	} {
		t.Run(half, func(t *testing.T) {
			t.Parallel()

			last := version.Highest(test.known...).Minor()

			for minor := test.oldest; minor.Compare(last) <= 0; minor = minor.Next() {
				newest, found := test.newest(minor)
				if !found || newest.Minor() != minor {
					t.Errorf("newest of %s: %s, %t", minor, newest, found)
				}

				for _, release := range test.known {
					if release.Minor() == minor && release.Compare(newest) > 0 {
						t.Errorf("%s is newer than the newest of %s: %s", release, minor, newest)
					}
				}
			}

			if newest, found := test.newest(last.Next()); found {
				t.Errorf("the release line after the last has the release %s", newest)
			}
		})
	}
}

// A release line that is the beginning of another's number must not be taken
// for it.
func TestReleases_NewestIsNotThatOfALineWithALongerNumber(t *testing.T) {
	t.Parallel()

	if newest, found := compat.NewestTalos(version.Minor{Major: 1, Minor: 1}); found {
		t.Errorf("newest of 1.1: %s", newest)
	}

	if newest, found := compat.NewestKubernetes(version.Minor{Major: 1, Minor: 3}); found {
		t.Errorf("newest of 1.3: %s", newest)
	}
}

func TestReleases_HaveADate(t *testing.T) {
	t.Parallel()

	if _, err := time.Parse(time.DateOnly, compat.ReleasesAsOf()); err != nil {
		t.Error(err)
	}
}

func BenchmarkNewest(b *testing.B) {
	b.ReportAllocs()

	for b.Loop() {
		if _, found := compat.NewestKubernetes(version.Minor{Major: 1, Minor: 34}); !found {
			b.Fatal("no release of 1.34")
		}
	}
}
