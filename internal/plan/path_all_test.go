// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// axisVersions are an early release of every release line, which paths begin
// with and end at, and the newest known one, which they lead through.
func axisVersions(oldest, last version.Minor, newest func(version.Minor) (version.Version, bool)) (ends, all []version.Version) {
	for minor := oldest; minor.Compare(last) <= 0; minor = minor.Next() {
		end := version.MustParse(fmt.Sprintf("%s.1", minor))
		ends, all = append(ends, end), append(all, end)

		if through, found := newest(minor); found && !through.Equal(end) {
			all = append(all, through)
		}
	}

	return ends, all
}

// moves are the versions that one hop can reach: any newer one of this release
// line or the next.
func moves(from version.Version, all []version.Version) []version.Version {
	var reached []version.Version

	for _, to := range all {
		if from.Less(to) && (to.Minor() == from.Minor() || to.Minor() == from.Minor().Next()) {
			reached = append(reached, to)
		}
	}

	return reached
}

// fewest searches all ways from one state, breadth first, without regard to any
// order, and counts the hops to every state that can be reached.
func fewest(from plan.State, allTalos, allKubernetes []version.Version) map[plan.State]int {
	hops := map[plan.State]int{from: 0}

	for queue := []plan.State{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]

		var next []plan.State

		for _, talos := range moves(at.Talos, allTalos) {
			if compat.Upgradeable(at.Talos, talos) == nil {
				next = append(next, plan.State{Talos: talos, Kubernetes: at.Kubernetes})
			}
		}

		for _, kubernetes := range moves(at.Kubernetes, allKubernetes) {
			next = append(next, plan.State{Talos: at.Talos, Kubernetes: kubernetes})
		}

		for _, to := range next {
			if _, seen := hops[to]; !seen && compat.Supports(to.Talos, to.Kubernetes) == nil {
				hops[to] = hops[at] + 1
				queue = append(queue, to)
			}
		}
	}

	return hops
}

// TestNoWayIsShorterOverAllPairsOfTheMatrix holds every path, from every pair
// of release lines to every other, against a search that tries everything:
// there is a path exactly where there is a way, no way is shorter, each state
// is a hop from the one before, and from every state the path is the rest.
func TestNoWayIsShorterOverAllPairsOfTheMatrix(t *testing.T) {
	t.Parallel()

	oldestTalos, newestTalos := compat.TalosMinors()
	oldestKubernetes, newestKubernetes := compat.KubernetesRange()
	talosEnds, allTalos := axisVersions(oldestTalos, newestTalos, compat.NewestTalos)
	kubernetesEnds, allKubernetes := axisVersions(oldestKubernetes, newestKubernetes, compat.NewestKubernetes)

	checked := 0

	for _, fromTalos := range talosEnds {
		for _, fromKubernetes := range kubernetesEnds {
			from := plan.State{Talos: fromTalos, Kubernetes: fromKubernetes}
			hops := fewest(from, allTalos, allKubernetes)

			for _, toTalos := range talosEnds {
				for _, toKubernetes := range kubernetesEnds {
					to := plan.State{Talos: toTalos, Kubernetes: toKubernetes}
					checkPath(t, from, to, hops)

					checked++
				}
			}
		}
	}

	if checked < 50_000 {
		t.Errorf("only %d pairs were checked", checked)
	}
}

func checkPath(t *testing.T, from, to plan.State, hops map[plan.State]int) {
	t.Helper()

	want, reachable := hops[to]

	path, err := plan.Path(from, to, plan.Walk{})
	if (err == nil) != reachable {
		t.Fatalf("%s to %s: error %v, and there is a way: %t", from, to, err, reachable)
	}

	if err != nil {
		return
	}

	if len(path)-1 != want || path[0] != from || path[len(path)-1] != to {
		t.Fatalf("%s to %s: %s, and %d hops are enough", from, to, printed(path), want)
	}

	for index := 1; index < len(path); index++ {
		before, after := path[index-1], path[index]

		if err := compat.Supports(after.Talos, after.Kubernetes); err != nil {
			t.Fatalf("%s to %s: %v", from, to, err)
		}

		talosMoves, kubernetesMoves := before.Talos.Less(after.Talos), before.Kubernetes.Less(after.Kubernetes)
		if talosMoves == kubernetesMoves || after.Talos.Less(before.Talos) || after.Kubernetes.Less(before.Kubernetes) {
			t.Fatalf("%s to %s: no hop from %s to %s", from, to, before, after)
		}

		if beyond(before.Talos, after.Talos) || beyond(before.Kubernetes, after.Kubernetes) {
			t.Fatalf("%s to %s: a release line is skipped between %s and %s", from, to, before, after)
		}
	}

	// By induction this holds for every state of the path.
	if len(path) > 1 {
		rest, err := plan.Path(path[1], to, plan.Walk{})
		if err != nil || !slices.Equal(rest, path[1:]) {
			t.Fatalf("%s to %s: %s, and from its second state %s (%v)", from, to, printed(path), printed(rest), err)
		}
	}
}

func beyond(before, after version.Version) bool {
	return after.Minor().Compare(before.Minor().Next()) > 0
}
