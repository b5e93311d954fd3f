// SPDX-License-Identifier: MPL-2.0

package compat_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func products() []version.Product { return []version.Product{version.Talos, version.Kubernetes} }

func TestTable_ReleasesAreStableAndInOrder(t *testing.T) {
	t.Parallel()

	if _, err := time.Parse(time.DateOnly, compat.BuiltIn().AsOf); err != nil {
		t.Error(err)
	}

	for _, product := range products() {
		known := compat.BuiltIn().Releases(product)

		if !slices.IsSortedFunc(known, version.Version.Compare) {
			t.Errorf("%s: not in order: %v", product, known)
		}

		for index, release := range known {
			if index > 0 && release.Equal(known[index-1]) {
				t.Errorf("%s: %s is listed twice", product, release)
			}
		}
	}
}

// TestTable_CoversEveryReleasedLineOfTheMatrix allows the lines at the end of
// the matrix to have none: they are known before their release.
func TestTable_CoversEveryReleasedLineOfTheMatrix(t *testing.T) {
	t.Parallel()

	oldestTalos, _ := compat.TalosMinors()
	oldestKubernetes, _ := compat.KubernetesRange()

	for product, oldest := range map[version.Product]version.Minor{version.Talos: oldestTalos, version.Kubernetes: oldestKubernetes} {
		t.Run(product.Name(), func(t *testing.T) {
			t.Parallel()

			known := compat.BuiltIn().Releases(product)
			last := version.Highest(known...).Minor()

			for minor := oldest; minor.Compare(last) <= 0; minor = minor.Next() {
				newest, found := compat.BuiltIn().Newest(product, minor)
				if !found || newest.Minor() != minor {
					t.Errorf("newest of %s: %s, %t", minor, newest, found)
				}

				for _, release := range known {
					if release.Minor() == minor && release.Compare(newest) > 0 {
						t.Errorf("%s is newer than the newest of %s: %s", release, minor, newest)
					}
				}
			}

			if newest, found := compat.BuiltIn().Newest(product, last.Next()); found {
				t.Errorf("the minor version after the last has the release %s", newest)
			}
		})
	}
}

func TestTable_StopsAreOfTheReleasesThatTheyName(t *testing.T) {
	t.Parallel()

	for talos, want := range map[string][]compat.StopWhen{
		"1.13.0": nil, "1.13.1": {compat.Withdrawn}, "1.13.2": nil,
		"1.9.0": {compat.Running}, "1.9.2": {compat.Running}, "1.9.3": nil, "1.8.4": nil,
		"1.13.9": {compat.BootsUKI}, "1.13.10": nil,
	} {
		var got []compat.StopWhen
		for _, stop := range compat.BuiltIn().Stops(version.MustParse(talos)) {
			got = append(got, stop.When)

			// They are put together to sentences.
			if stop.Reason == "" || strings.HasSuffix(stop.Reason, ".") || !strings.HasSuffix(stop.Remedy, ".") || !strings.Contains(stop.Source, "#") {
				t.Errorf("%s: %+v", talos, stop)
			}
		}

		if !slices.Equal(got, want) || compat.BuiltIn().IsWithdrawn(version.MustParse(talos)) != slices.Contains(want, compat.Withdrawn) {
			t.Errorf("%s: got %v, want %v", talos, got, want)
		}
	}
}

const withdraws = "stop 1.14.96 | withdrawn | was broken | Choose another. | x#1\n"

// TestTable_AddsAndLiftsNothing: what is built in holds whatever is added.
func TestTable_AddsAndLiftsNothing(t *testing.T) {
	t.Parallel()

	builtIn := compat.BuiltIn()
	before := len(builtIn.Releases(version.Talos))

	added, err := builtIn.With("here", "# more\n\nas-of 2096-12-01\ntalos v1.14.97  1.14.96 1.14.97\ntalos 1.25.0\nkubernetes 1.37.93\n"+withdraws+
		"stop 1.13.1 | running | is left | Go on. | x#2\n")
	if err != nil {
		t.Fatal(err)
	}

	if added.Source != "here" || added.AsOf != "2096-12-01" || builtIn.Source != "" {
		t.Errorf("from %q as of %s, built in from %q", added.Source, added.AsOf, builtIn.Source)
	}

	for _, product := range products() {
		for _, release := range builtIn.Releases(product) {
			if !slices.ContainsFunc(added.Releases(product), release.Equal) {
				t.Errorf("%s %s is gone", product, release)
			}
		}
	}

	if got := len(added.Releases(version.Talos)); got != before+3 || len(builtIn.Releases(version.Talos)) != before {
		t.Errorf("%d releases of Talos, want %d; built in are %d", got, before+3, len(builtIn.Releases(version.Talos)))
	}

	for release, want := range map[string]bool{"1.13.1": true, "1.14.96": true, "1.14.97": false} {
		if added.IsWithdrawn(version.MustParse(release)) != want {
			t.Errorf("%s: withdrawn is not %t", release, want)
		}
	}

	if builtIn.IsWithdrawn(version.MustParse("1.14.96")) || len(added.Stops(version.MustParse("1.13.1"))) != 2 {
		t.Error("what is added changed what is built in, or is not there")
	}
}

func TestTable_NewestIsWhatWasNotWithdrawn(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ text, minor, want string }{
		"the last one":      {"talos 1.14.95 1.14.96\n" + withdraws, "1.14.0", "1.14.95"},
		"none is left":      {"talos 1.25.0\nstop 1.25.0 | withdrawn | was broken | Choose another. | x#1\n", "1.25.0", ""},
		"a newer one":       {"talos 1.14.97\n" + withdraws, "1.14.0", "1.14.97"},
		"an older day":      {"talos 1.14.98\n", "1.14.0", "1.14.98"},
		"a longer number":   {"", "1.1.0", ""},
		"a line of its own": {"talos 1.26.3 1.26.10\n", "1.26.0", "1.26.10"},
	} {
		table, err := compat.BuiltIn().With("here", test.text+"# no more\n"+"kubernetes 1.37.0\n")
		if err != nil {
			t.Fatal(err)
		}

		got, found := table.Newest(version.Talos, version.MustParse(test.minor).Minor())
		if found != (test.want != "") || found && got.String() != test.want {
			t.Errorf("%s: got %s, %t, want %q", name, got, found, test.want)
		}

		if table.AsOf != compat.BuiltIn().AsOf {
			t.Errorf("%s: as of %s", name, table.AsOf)
		}
	}
}

func TestTable_RefusesWhatIsNone(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ text, says string }{
		"nothing":           {"# nothing\n\n", "no line that begins with as-of, talos, kubernetes or stop"},
		"a page":            {"<!DOCTYPE html>\n<html>", `line 1 begins with "<!DOCTYPE", which is none of as-of, talos, kubernetes and stop`},
		"another word":      {"as-of 2026-12-01\n\ntalso 1.14.97\n", `line 3 begins with "talso"`},
		"two days":          {"as-of 2026-12-01\nas-of 2026-12-02\n", "line 2 is a second as-of"},
		"no day":            {"as-of 1.12.2026\n", `line 1 has the day "1.12.2026", want YYYY-MM-DD`},
		"no version":        {"talos 1.14.97 1.14\n", `line 1 has "1.14", which is no version`},
		"a pre-release":     {"kubernetes 1.38.0-rc.1\n", `"1.38.0-rc.1", which is no stable release`},
		"a field too few":   {"stop 1.13.1 | withdrawn | was broken | Choose another.\n", "line 1 has 4 fields, want 5"},
		"an empty field":    {"stop 1.13.1 | withdrawn | was broken |  | x#1\n", "want 5 that are not empty"},
		"another when":      {"stop 1.13.1 | always | was broken | Choose another. | x#1\n", `is about "always", which is none of withdrawn, running and boots-uki`},
		"versions reversed": {"stop 1.13.2-1.13.1 | running | was broken | Choose another. | x#1\n", `is about "1.13.2-1.13.1"`},
		"no versions":       {"stop newest | withdrawn | was broken | Choose another. | x#1\n", `is about "newest"`},
	} {
		got, err := compat.BuiltIn().With("here", test.text)
		if err == nil || !errors.Is(err, compat.ErrTable) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, %v; want an error that says %q", name, got, err, test.says)
		}
	}
}

func BenchmarkNewest(b *testing.B) {
	b.ReportAllocs()

	for b.Loop() {
		if _, found := compat.BuiltIn().Newest(version.Kubernetes, version.Minor{Major: 1, Minor: 34}); !found {
			b.Fatal("no release of 1.34")
		}
	}
}
