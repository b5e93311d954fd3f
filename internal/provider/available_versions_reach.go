// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// standing is what a cluster runs: the lowest versions, from which every way
// begins, and the highest, below which none may end. Kubernetes is zero where
// it is not known.
type standing struct {
	lowest, highest plan.State
}

// reach answers which releases a cluster can go to. It asks the planner once
// for each pair of release lines: whether there is a way depends on no more
// than that, since every release above the present one can be the last step
// within its line.
type reach struct {
	from              standing
	talos, kubernetes []version.Version
	// through are the releases that lines on the way are crossed in, and listed
	// says so of each line.
	through []version.Version
	listed  map[version.Minor]bool
	ways    map[[2]version.Minor]int
}

// newReach takes the releases that exist, in ascending order.
func newReach(from standing, talos, kubernetes []version.Version) *reach {
	r := &reach{
		from:       from,
		talos:      above(talos, from.lowest.Talos, from.highest.Talos),
		kubernetes: above(kubernetes, from.lowest.Kubernetes, from.highest.Kubernetes),
		listed:     map[version.Minor]bool{},
		ways:       map[[2]version.Minor]int{},
	}

	// Nodes that are behind others go through lines that those have left.
	_, newestTalos := compat.TalosMinors()
	_, newestKubernetes := compat.KubernetesRange()

	r.cross(above(talos, from.lowest.Talos, version.Version{}), newestTalos)
	r.cross(above(kubernetes, from.lowest.Kubernetes, version.Version{}), newestKubernetes)

	return r
}

// cross adds the lines of the releases, in ascending order, to those that a way
// may lead through; no way does beyond the newest that is known. The release
// lines of Talos and of Kubernetes are too far apart for one number to mean both.
func (r *reach) cross(releases []version.Version, newest version.Minor) {
	best := map[version.Minor]version.Version{}

	for _, v := range releases {
		if v.Minor().Compare(newest) > 0 {
			break
		}

		// A pre-release is better than nothing.
		if earlier, found := best[v.Minor()]; !found || v.Equal(v.Core()) || !earlier.Equal(earlier.Core()) {
			best[v.Minor()] = v
		}
	}

	for line, v := range best {
		r.listed[line] = true
		r.through = append(r.through, v)
	}
}

// above are the versions that take a cluster between lowest and highest
// forward, and no node of it backward.
func above(versions []version.Version, lowest, highest version.Version) []version.Version {
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

// hops is how many steps lead to the pair; negative when no way does.
func (r *reach) hops(talos, kubernetes version.Version) int {
	// Staying is another thing than going to a release of the same line.
	key := [2]version.Minor{talos.Minor(), kubernetes.Minor()}
	if talos.Equal(r.from.lowest.Talos) {
		key[0] = version.Minor{}
	}

	if kubernetes.Equal(r.from.lowest.Kubernetes) {
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

// way leads to the pair through listed releases alone. The planner would make
// do with others that it knows.
func (r *reach) way(talos, kubernetes version.Version) ([]plan.State, bool) {
	path, err := plan.Path(r.from.lowest, plan.State{Talos: talos, Kubernetes: kubernetes}, plan.Walk{Intermediate: r.through})
	if err != nil {
		return nil, false
	}

	for _, state := range path {
		if !r.offers(state.Talos, r.from.lowest.Talos) || !r.offers(state.Kubernetes, r.from.lowest.Kubernetes) {
			return nil, false
		}
	}

	return path, true
}

// offers tells whether a half can be at the version: it is there already, or
// its line is listed.
func (r *reach) offers(v, present version.Version) bool {
	return v.IsZero() || v.Equal(present) || r.listed[v.Minor()]
}

// next are the releases one step away, the other half staying as it is.
func (r *reach) next() (talos, kubernetes []version.Version) {
	return keep(r.talos, func(v version.Version) bool { return r.hops(v, r.from.lowest.Kubernetes) == 1 }),
		keep(r.kubernetes, func(v version.Version) bool { return r.hops(r.from.lowest.Talos, v) == 1 })
}

// eventual are the releases to which a way leads, the other half moving along
// where it has to.
func (r *reach) eventual() (talos, kubernetes []version.Version) {
	alongside := func(present version.Version, ahead []version.Version) []version.Version {
		return append([]version.Version{present}, newestOfEachMinor(ahead)...)
	}

	kubernetesBeside := alongside(r.from.lowest.Kubernetes, r.kubernetes)
	talosBeside := alongside(r.from.lowest.Talos, r.talos)

	return keep(r.talos, func(v version.Version) bool {
			return slices.ContainsFunc(kubernetesBeside, func(beside version.Version) bool { return r.hops(v, beside) > 0 })
		}), keep(r.kubernetes, func(v version.Version) bool {
			return slices.ContainsFunc(talosBeside, func(beside version.Version) bool { return r.hops(beside, v) > 0 })
		})
}

// newestOfEachMinor thins versions in ascending order out.
func newestOfEachMinor(versions []version.Version) []version.Version {
	var newest []version.Version

	for index, v := range versions {
		if index+1 == len(versions) || versions[index+1].Minor() != v.Minor() {
			newest = append(newest, v)
		}
	}

	return newest
}

// keep filters; what is not known stays unknown.
func keep(versions []version.Version, wanted func(version.Version) bool) []version.Version {
	return slices.DeleteFunc(slices.Clone(versions), func(v version.Version) bool { return !wanted(v) })
}
