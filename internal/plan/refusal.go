// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// refusal says what blocks every way through the grid.
func (g *grid) refusal() *PathError {
	lastTalos, lastKubernetes := len(g.talos)-1, len(g.kubernetes)-1

	if !g.allowed[lastTalos][lastKubernetes] {
		return g.refuseEnd(g.talos[lastTalos], g.kubernetes[lastKubernetes])
	}

	i, j := g.frontier()
	at := State{Talos: g.talos[i], Kubernetes: g.kubernetes[j]}

	var blocks []string

	if i < lastTalos {
		if err := compat.Upgradeable(g.talos[i], g.talos[i+1]); !g.walk.tolerates(err) {
			blocks = append(blocks, err.Error())
		} else {
			blocks = append(blocks, mismatch(g.talos[i+1], g.kubernetes[j]))
		}
	}

	if j < lastKubernetes {
		blocks = append(blocks, mismatch(g.talos[i], g.kubernetes[j+1]))
	}

	refused := &PathError{
		Axis: Talos, Err: ErrNoWay,
		Reason: fmt.Sprintf("%v leads on from %s: %s", ErrNoWay, at, strings.Join(blocks, ", and ")),
		Remedy: "Bring the cluster to a supported pair of versions first, or choose another target.",
	}

	if lastKubernetes == 0 {
		refused.Reason = fmt.Sprintf("%s on the way, %s", strings.Join(blocks, ", and "), g.standing())
		refused.Remedy = "Bring Kubernetes into that range first, or choose another talos_version."
	}

	if lastTalos == 0 {
		refused.Axis = Kubernetes
	}

	return refused
}

// refuseEnd says why the two versions at the end do not go together.
func (g *grid) refuseEnd(talos, kubernetes version.Version) *PathError {
	err := compat.Supports(talos, kubernetes)
	refused := &PathError{Axis: Talos, Err: err, Reason: err.Error()}

	if len(g.kubernetes) > 1 {
		refused.Axis = Kubernetes
	}

	switch {
	case errors.Is(err, compat.ErrNewer):
		refused.Remedy = "Choose versions that the support matrix knows, use a newer release of this provider, or set allow_unknown_versions = true."
	case errors.Is(err, compat.ErrUnknownMinor):
		refused.Remedy = "Choose versions that the support matrix knows."
	case len(g.kubernetes) == 1:
		refused.Reason = fmt.Sprintf("%s, %s", mismatch(talos, kubernetes), g.standing())
		refused.Remedy = "Bring Kubernetes into that range first, or choose another talos_version."
	case len(g.talos) == 1:
		refused.Reason = fmt.Sprintf("%s, and %s is asked for", mismatch(talos, kubernetes), kubernetes)
		refused.Remedy = "Choose a kubernetes_version in that range, or set a talos_version that runs it."
	default:
		refused.Reason = fmt.Sprintf("%s, and %s is asked for beside it", mismatch(talos, kubernetes), kubernetes)
		refused.Remedy = "Choose a kubernetes_version in that range, or another talos_version."
	}

	return refused
}

// standing says why Kubernetes does not move out of the way.
func (g *grid) standing() string {
	if g.unset {
		return fmt.Sprintf("the cluster runs %s, and kubernetes_version is not set", g.kubernetes[0])
	}

	return fmt.Sprintf("the cluster runs %s, and kubernetes_version asks for no other", g.kubernetes[0])
}

// mismatch says in which way a pair is not supported: "Talos 1.14.1 needs
// Kubernetes 1.32 or newer".
func mismatch(talos, kubernetes version.Version) string {
	oldest, newest, err := compat.KubernetesMinors(talos.Minor())

	switch {
	case err != nil:
		return err.Error()
	case kubernetes.Minor().Compare(oldest) < 0:
		return fmt.Sprintf("Talos %s needs Kubernetes %s or newer", talos, oldest)
	default:
		return fmt.Sprintf("Talos %s needs Kubernetes %s or older", talos, newest)
	}
}

// frontier is the state farthest along the way that can still be reached.
func (g *grid) frontier() (farTalos, farKubernetes int) {
	reached := make([][]bool, len(g.talos))

	for i := range g.talos {
		reached[i] = make([]bool, len(g.kubernetes))

		for j := range g.kubernetes {
			fromAbove := i > 0 && reached[i-1][j] && g.replaces(i-1)
			fromLeft := j > 0 && reached[i][j-1]
			reached[i][j] = i+j == 0 || (g.allowed[i][j] && (fromAbove || fromLeft))

			if reached[i][j] && i+j > farTalos+farKubernetes {
				farTalos, farKubernetes = i, j
			}
		}
	}

	return farTalos, farKubernetes
}
