// SPDX-License-Identifier: MPL-2.0

package provider

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

// TestReachIsWhatThePlannerSays holds the short cuts to the planner: from every
// pair of release lines, asked for each pair of releases.
func TestReachIsWhatThePlannerSays(t *testing.T) {
	t.Parallel()

	talos, kubernetes := compat.Releases()
	talos0, kubernetes0 := oldestOfEachMinor(talos), oldestOfEachMinor(kubernetes)
	talos, kubernetes = newestOfEachMinor(talos), newestOfEachMinor(kubernetes)

	leads := func(from, to plan.State, most int) bool {
		path, err := plan.Path(from, to, plan.Walk{})

		return err == nil && len(path) > 1 && len(path)-1 <= most
	}

	for _, t0 := range talos0 {
		for _, k0 := range kubernetes0 {
			from := plan.State{Talos: t0, Kubernetes: k0}
			ahead := newReach(standing{from, from}, talos, kubernetes)

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

			got[0], got[1] = ahead.next()
			got[2], got[3] = ahead.eventual()

			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("from %s:\ngot  %v\nwant %v", from, got, want)
			}
		}
	}
}

func BenchmarkReachOfTheWholeList(b *testing.B) {
	talos, kubernetes := compat.Releases()
	from := plan.State{Talos: talos[0], Kubernetes: kubernetes[0]}

	for b.Loop() {
		ahead := newReach(standing{from, from}, talos, kubernetes)
		ahead.next()
		ahead.eventual()
	}
}
