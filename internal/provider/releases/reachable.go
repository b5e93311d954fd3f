// SPDX-License-Identifier: MPL-2.0

package releases

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// RunningVersions is what a cluster runs: the lowest versions, from which every path starts, and the highest, below
// which none may end. Kubernetes is zero if unknown.
type RunningVersions struct {
	Lowest, Highest plan.State
}

// Reachable determines which releases a cluster can be upgraded to. It asks the planner once for each pair of
// minor versions. Whether there is a path depends only on those, because every release above the current one can be
// the last step within its minor version.
type Reachable struct {
	from              RunningVersions
	talos, kubernetes []version.Version
	// through are the releases with which paths cross minor versions. listed is true for each of these.
	through []version.Version
	listed  map[version.Minor]bool
	ways    map[[2]version.Minor]int
}

// NewReachable returns what a cluster that runs from can be upgraded to. The releases are in ascending order.
func NewReachable(from RunningVersions, talos, kubernetes []version.Version) *Reachable {
	r := &Reachable{
		from:       from,
		talos:      withoutDowngrades(talos, from.Lowest.Talos, from.Highest.Talos),
		kubernetes: withoutDowngrades(kubernetes, from.Lowest.Kubernetes, from.Highest.Kubernetes),
		listed:     map[version.Minor]bool{},
		ways:       map[[2]version.Minor]int{},
	}

	// Nodes that are behind others go through minor versions that the others have left.
	_, newestTalos := compat.TalosMinors()
	_, newestKubernetes := compat.KubernetesRange()

	r.cross(withoutDowngrades(talos, from.Lowest.Talos, version.Version{}), newestTalos)
	r.cross(withoutDowngrades(kubernetes, from.Lowest.Kubernetes, version.Version{}), newestKubernetes)

	return r
}

// cross adds the minor versions of the releases, which are in ascending order, to those that a path may cross. No
// path goes beyond the newest known one. The minor versions of Talos and of Kubernetes are too far apart to collide.
func (r *Reachable) cross(releases []version.Version, newest version.Minor) {
	best := map[version.Minor]version.Version{}

	for _, v := range releases {
		if v.Minor().Compare(newest) > 0 {
			break
		}

		// A pre-release is used only if its minor version has no release.
		if earlier, found := best[v.Minor()]; !found || v.Equal(v.Core()) || !earlier.Equal(earlier.Core()) {
			best[v.Minor()] = v
		}
	}

	for minor, v := range best {
		r.listed[minor] = true
		r.through = append(r.through, v)
	}
}

// withoutDowngrades returns the versions that upgrade a cluster between lowest and highest and downgrade none of its
// nodes; nil if lowest is zero.
func withoutDowngrades(versions []version.Version, lowest, highest version.Version) []version.Version {
	if lowest.IsZero() {
		return nil
	}

	ahead := []version.Version{}

	for _, v := range versions {
		if lowest.Less(v) && !v.Less(highest) {
			ahead = append(ahead, v)
		}
	}

	return ahead
}

// hops returns the number of steps to the pair; negative if there is no path.
func (r *Reachable) hops(talos, kubernetes version.Version) int {
	// Staying at a version differs from going to a release of the same minor version.
	key := [2]version.Minor{talos.Minor(), kubernetes.Minor()}
	if talos.Equal(r.from.Lowest.Talos) {
		key[0] = version.Minor{}
	}

	if kubernetes.Equal(r.from.Lowest.Kubernetes) {
		key[1] = version.Minor{}
	}

	if found, ok := r.ways[key]; ok {
		return found
	}

	r.ways[key] = -1
	if path, ok := r.way(talos, kubernetes); ok {
		r.ways[key] = len(path) - 1
	}

	return r.ways[key]
}

// way returns a path to the pair through listed releases only. The planner would also use others that it knows.
func (r *Reachable) way(talos, kubernetes version.Version) ([]plan.State, bool) {
	path, err := plan.Path(r.from.Lowest, plan.State{Talos: talos, Kubernetes: kubernetes}, plan.Walk{Intermediate: r.through})
	if err != nil {
		return nil, false
	}

	for _, state := range path {
		if !r.offers(state.Talos, r.from.Lowest.Talos) || !r.offers(state.Kubernetes, r.from.Lowest.Kubernetes) {
			return nil, false
		}
	}

	return path, true
}

// offers reports whether a product can be at the version: it already is, or the minor version is listed.
func (r *Reachable) offers(v, present version.Version) bool {
	return v.IsZero() || v.Equal(present) || r.listed[v.Minor()]
}

// Next returns the releases that are one step away while the other product stays as it is.
func (r *Reachable) Next() (talos, kubernetes []version.Version) {
	return keep(r.talos, func(v version.Version) bool { return r.hops(v, r.from.Lowest.Kubernetes) == 1 }),
		keep(r.kubernetes, func(v version.Version) bool { return r.hops(r.from.Lowest.Talos, v) == 1 })
}

// Eventual returns the releases to which there is a path, on which the other product is upgraded as well if
// necessary.
func (r *Reachable) Eventual() (talos, kubernetes []version.Version) {
	alongside := func(present version.Version, ahead []version.Version) []version.Version {
		return append([]version.Version{present}, newestOfEachMinor(ahead)...)
	}

	kubernetesBeside := alongside(r.from.Lowest.Kubernetes, r.kubernetes)
	talosBeside := alongside(r.from.Lowest.Talos, r.talos)

	return keep(r.talos, func(v version.Version) bool {
			return slices.ContainsFunc(kubernetesBeside, func(beside version.Version) bool { return r.hops(v, beside) > 0 })
		}), keep(r.kubernetes, func(v version.Version) bool {
			return slices.ContainsFunc(talosBeside, func(beside version.Version) bool { return r.hops(beside, v) > 0 })
		})
}

// newestOfEachMinor returns the newest version of each minor. The versions must be in ascending order.
func newestOfEachMinor(versions []version.Version) []version.Version {
	var newest []version.Version

	for index, v := range versions {
		if index+1 == len(versions) || versions[index+1].Minor() != v.Minor() {
			newest = append(newest, v)
		}
	}

	return newest
}

// keep returns the wanted versions; nil stays nil.
func keep(versions []version.Version, wanted func(version.Version) bool) []version.Version {
	return slices.DeleteFunc(slices.Clone(versions), func(v version.Version) bool { return !wanted(v) })
}
