// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Axis is the half of a cluster that a hop moves.
type Axis string

// The halves.
const (
	Talos      Axis = "talos"
	Kubernetes Axis = "kubernetes"
)

// State is what a whole cluster runs between two hops. Kubernetes is zero where
// it is not known.
type State struct {
	Talos, Kubernetes version.Version
}

// String is "Talos 1.13.4, Kubernetes 1.35.2".
func (s State) String() string {
	if s.Kubernetes.IsZero() {
		return "Talos " + s.Talos.String()
	}

	return "Talos " + s.Talos.String() + ", Kubernetes " + s.Kubernetes.String()
}

// Hop is one leg of the way: every node, or every component of Kubernetes,
// moves to the version of its axis in To.
type Hop struct {
	Axis     Axis
	From, To State
}
