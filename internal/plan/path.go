// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Reasons why there is no way from one state to another. Beside them an error
// of [Path] may wrap the errors of package compat.
var (
	// ErrDowngrade: one half would have to go down.
	ErrDowngrade = errors.New("downgrades are not done")
	// ErrNoRelease: a release line on the way has no known release.
	ErrNoRelease = errors.New("no release is known")
	// ErrNoStart: what runs now is not known.
	ErrNoStart = errors.New("is not known")
	// ErrNoWay: every way leads through a pair of versions that is not
	// supported.
	ErrNoWay = errors.New("no supported way")
)

// PathError says why there is no way, and which half of the target is at
// fault. It unwraps to one of the reasons above or to an error of package
// compat.
type PathError struct {
	Axis Axis
	// Reason is what blocks, a sentence without a full stop.
	Reason string
	// Remedy is what a person can do about it, one or more sentences.
	Remedy string
	Err    error
}

func (e *PathError) Error() string { return e.Reason }

func (e *PathError) Unwrap() error { return e.Err }

// Path is the way of a whole cluster from one state to another: the states
// between its hops, beginning with from and ending with to, in which a half
// that to leaves open stays as it is. Every hop moves one half into its next
// release line, or to a newer patch, so that no way has fewer hops. Every state
// but the first is supported, and with that every pair of versions that occurs
// while a hop is going on: a hop mixes no pairs but those of its two ends.
//
// Talos moves first where both halves may, so that the way from any state on it
// is the rest of it. Errors are of type [*PathError].
func Path(from, to State, walk Walk) ([]State, error) {
	talos, err := walk.legs(Talos, from.Talos, to.Talos)
	if err != nil {
		return nil, err
	}

	kubernetes, err := walk.legs(Kubernetes, from.Kubernetes, to.Kubernetes)
	if err != nil {
		return nil, err
	}

	g := newGrid(talos, kubernetes, walk)
	g.unset = to.Kubernetes.IsZero()

	return g.path()
}

// grid holds the states that a cluster can pass through: one row for each
// version of Talos, one column for each of Kubernetes.
type grid struct {
	talos, kubernetes []version.Version
	walk              Walk
	// allowed are the states that may be entered, leads those from which the
	// last one can be reached.
	allowed, leads [][]bool
	// unset tells that Kubernetes stays because nothing is asked of it.
	unset bool
}

func newGrid(talos, kubernetes []version.Version, walk Walk) *grid {
	g := &grid{talos: talos, kubernetes: kubernetes, walk: walk}

	for range talos {
		g.allowed = append(g.allowed, make([]bool, len(kubernetes)))
		g.leads = append(g.leads, make([]bool, len(kubernetes)))
	}

	for i := len(talos) - 1; i >= 0; i-- {
		for j := len(kubernetes) - 1; j >= 0; j-- {
			// What runs now runs, supported or not.
			start := i+j == 0
			last := i == len(talos)-1 && j == len(kubernetes)-1

			g.allowed[i][j] = start || walk.supports(talos[i], kubernetes[j])
			g.leads[i][j] = g.allowed[i][j] && (last || g.down(i, j) || g.right(i, j))
		}
	}

	return g
}

// down tells whether Talos may move next.
func (g *grid) down(i, j int) bool {
	return i+1 < len(g.talos) && g.leads[i+1][j] && g.replaces(i)
}

// right tells whether Kubernetes may move next.
func (g *grid) right(i, j int) bool {
	return j+1 < len(g.kubernetes) && g.leads[i][j+1]
}

// replaces tells whether the installer of the next version of Talos accepts a
// host with this one.
func (g *grid) replaces(i int) bool {
	return g.walk.tolerates(compat.Upgradeable(g.talos[i], g.talos[i+1]))
}

func (g *grid) path() ([]State, error) {
	if !g.leads[0][0] {
		return nil, g.refusal()
	}

	states := []State{{Talos: g.talos[0], Kubernetes: g.kubernetes[0]}}

	for i, j := 0, 0; i+1 < len(g.talos) || j+1 < len(g.kubernetes); {
		if g.down(i, j) {
			i++
		} else {
			j++
		}

		states = append(states, State{Talos: g.talos[i], Kubernetes: g.kubernetes[j]})
	}

	return states, nil
}
