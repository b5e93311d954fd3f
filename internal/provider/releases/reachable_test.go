// SPDX-License-Identifier: MPL-2.0

package releases

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// oldestOfEachMinor is the other end of each line.
func oldestOfEachMinor(versions []version.Version) []version.Version {
	return slices.CompactFunc(slices.Clone(versions), func(a, b version.Version) bool { return a.Minor() == b.Minor() })
}

// TestReachable_IsWhatThePlannerSays holds the short cuts to the planner: from every
// pair of minor versions, asked for each pair of releases.
func TestReachable_IsWhatThePlannerSays(t *testing.T) {
	t.Parallel()

	talos, kubernetes := compat.BuiltIn().Releases(version.Talos), compat.BuiltIn().Releases(version.Kubernetes)
	talos0, kubernetes0 := oldestOfEachMinor(talos), oldestOfEachMinor(kubernetes)
	talos, kubernetes = newestOfEachMinor(talos), newestOfEachMinor(kubernetes)

	leads := func(from, to plan.State, most int) bool {
		path, err := plan.Path(from, to, plan.Walk{})

		return err == nil && len(path) > 1 && len(path)-1 <= most
	}

	for _, t0 := range talos0 {
		for _, k0 := range kubernetes0 {
			from := plan.State{Talos: t0, Kubernetes: k0}
			ahead := NewReachable(RunningVersions{from, from}, talos, kubernetes)

			var want, got [4][]version.Version

			for _, v := range talos {
				if v.Compare(t0) > 0 && leads(from, plan.State{Talos: v, Kubernetes: k0}, 1) {
					want[0] = append(want[0], v)
				}

				if v.Compare(t0) > 0 && slices.ContainsFunc(kubernetes, func(k version.Version) bool {
					return leads(from, plan.State{Talos: v, Kubernetes: k}, 99)
				}) {
					want[2] = append(want[2], v)
				}
			}

			for _, v := range kubernetes {
				if v.Compare(k0) > 0 && leads(from, plan.State{Talos: t0, Kubernetes: v}, 1) {
					want[1] = append(want[1], v)
				}

				if v.Compare(k0) > 0 && slices.ContainsFunc(talos, func(t version.Version) bool {
					return leads(from, plan.State{Talos: t, Kubernetes: v}, 99)
				}) {
					want[3] = append(want[3], v)
				}
			}

			got[0], got[1] = ahead.Next()
			got[2], got[3] = ahead.Eventual()

			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("from %s:\ngot  %v\nwant %v", from, got, want)
			}
		}
	}
}

// TestReachable_UsesListedReleasesAlone: what is not listed was not approved,
// or is in no mirror.
func TestReachable_UsesListedReleasesAlone(t *testing.T) {
	t.Parallel()

	list := func(texts ...string) []version.Version {
		versions := make([]version.Version, 0, len(texts))
		for _, text := range texts {
			versions = append(versions, version.MustParse(text))
		}

		return versions
	}
	at := func(talos, kubernetes string) plan.State {
		return plan.State{Talos: version.MustParse(talos), Kubernetes: version.MustParse(kubernetes)}
	}

	for name, test := range map[string]struct {
		from              RunningVersions
		talos, kubernetes []version.Version
		want              string
	}{
		"every line is listed": {
			RunningVersions{at("1.11.0", "1.33.0"), at("1.11.0", "1.33.0")},
			list("1.11.1", "1.12.3", "1.13.0"), list("1.33.1", "1.34.1", "1.35.1"),
			"[1.11.1 1.12.3 1.13.0] [1.33.1 1.34.1 1.35.1]",
		},
		"a line of Talos is not": {
			RunningVersions{at("1.11.0", "1.33.0"), at("1.11.0", "1.33.0")},
			list("1.11.1", "1.13.0"), list("1.33.1", "1.34.1", "1.35.1"),
			"[1.11.1] [1.33.1 1.34.1]",
		},
		"a line of Kubernetes is not": {
			RunningVersions{at("1.11.0", "1.32.0"), at("1.11.0", "1.32.0")},
			list("1.12.3", "1.13.0"), list("1.32.9", "1.34.1"),
			"[1.12.3 1.13.0] [1.32.9]",
		},
		"a line between the nodes": {
			RunningVersions{at("1.11.0", "1.33.0"), at("1.13.0", "1.33.0")},
			list("1.12.3", "1.13.0", "1.14.0"), list("1.33.1"),
			"[1.13.0 1.14.0] [1.33.1]",
		},
		"a line between the nodes that is not": {
			RunningVersions{at("1.11.0", "1.33.0"), at("1.13.0", "1.33.0")},
			list("1.13.0", "1.14.0"), list("1.33.1"),
			"[] [1.33.1]",
		},
		"a line with a pre-release alone": {
			RunningVersions{at("1.11.0", "1.33.0"), at("1.11.0", "1.33.0")},
			list("1.12.0-beta.0", "1.13.0"), list("1.33.1"),
			"[1.12.0-beta.0 1.13.0] [1.33.1]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			talos, kubernetes := NewReachable(test.from, test.talos, test.kubernetes).Eventual()
			if got := fmt.Sprint(talos, kubernetes); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestReachable_PathUsesTheNewestListedRelease(t *testing.T) {
	t.Parallel()

	from := plan.State{Talos: version.MustParse("1.11.0"), Kubernetes: version.MustParse("1.33.0")}

	for want, listed := range map[string][]string{
		"1.12.3":        {"1.12.1", "1.12.3", "1.13.0"},
		"1.12.1":        {"1.12.1", "1.12.2-rc.0", "1.13.0"},
		"1.12.0-beta.1": {"1.12.0-alpha.0", "1.12.0-beta.1", "1.13.0"},
	} {
		var versions []version.Version
		for _, text := range listed {
			versions = append(versions, version.MustParse(text))
		}

		path, ok := NewReachable(RunningVersions{from, from}, versions, nil).way(version.MustParse("1.13.0"), from.Kubernetes)
		if !ok || len(path) != 3 || path[1].Talos.String() != want {
			t.Errorf("of %v the way is %v", listed, path)
		}
	}
}

func BenchmarkReachOfTheWholeList(b *testing.B) {
	talos, kubernetes := compat.BuiltIn().Releases(version.Talos), compat.BuiltIn().Releases(version.Kubernetes)
	from := plan.State{Talos: talos[0], Kubernetes: kubernetes[0]}

	for b.Loop() {
		ahead := NewReachable(RunningVersions{from, from}, talos, kubernetes)
		ahead.Next()
		ahead.Eventual()
	}
}
