// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Axis is the half of a cluster that a hop moves.
type Axis string

// The halves.
const (
	Talos      Axis = "talos"
	Kubernetes Axis = "kubernetes"
)

// name is the half as people write it.
func (a Axis) name() string {
	if a == Kubernetes {
		return "Kubernetes"
	}

	return "Talos"
}

// State is what a whole cluster runs between two hops. Kubernetes is zero where
// it is not known.
type State struct {
	Talos, Kubernetes version.Version
}

// String is "Talos 1.13.4, Kubernetes 1.35.2".
func (s State) String() string {
	switch {
	case s.Kubernetes.IsZero():
		return "Talos " + s.Talos.String()
	case s.Talos.IsZero():
		return "Kubernetes " + s.Kubernetes.String()
	default:
		return "Talos " + s.Talos.String() + ", Kubernetes " + s.Kubernetes.String()
	}
}

// version is what the state says about one half.
func (s State) version(axis Axis) version.Version {
	if axis == Kubernetes {
		return s.Kubernetes
	}

	return s.Talos
}

// Hop is one leg of the way: every node, or every component of Kubernetes,
// moves to the version of its axis in To. Both ends are equal where nodes are
// only given another image, or back into service.
type Hop struct {
	Axis     Axis
	From, To State
}

// hopsOf are the hops between the states of a path.
func hopsOf(states []State) []Hop {
	var hops []Hop

	for index := 1; index < len(states); index++ {
		hop := Hop{Axis: Talos, From: states[index-1], To: states[index]}
		if hop.From.Talos.Equal(hop.To.Talos) {
			hop.Axis = Kubernetes
		}

		hops = append(hops, hop)
	}

	return hops
}

// spell writes a way out in full: "Talos 1.11.6, Kubernetes 1.33.2 -> Talos
// 1.12.8 -> Kubernetes 1.34.5 -> Talos 1.13.4".
func spell(hops []Hop) string {
	if len(hops) == 0 {
		return ""
	}

	legs := []string{hops[0].From.String()}
	for _, hop := range hops {
		legs = append(legs, hop.Axis.name()+" "+hop.To.version(hop.Axis).String())
	}

	return strings.Join(legs, " -> ")
}
