// SPDX-License-Identifier: MPL-2.0

// Package compat answers which versions of Talos and Kubernetes go together
// and which version of Talos may replace which.
package compat

import (
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	// ErrUnknownMinor is wrapped where a release line is not in the matrix.
	ErrUnknownMinor = errors.New("not in the support matrix")
	// ErrUnsupported is wrapped where the matrix says no.
	ErrUnsupported = errors.New("not supported")
)

// line is one release line of Talos: the Kubernetes versions it runs, and the
// hosts its installer accepts. Hosts must be at least fromMin and below
// fromBelow; a pre-release of a host counts as its release.
type line struct {
	talos              version.Minor
	kubeMin, kubeMax   version.Minor
	fromMin, fromBelow version.Minor
}

func minor(n uint64) version.Minor { return version.Minor{Major: 1, Minor: n} }

// matrix is the table of machinery's packages compatibility/talos1XX, back to
// the first release with an upgrade API like today's.
func matrix() []line {
	return []line{
		{minor(2), minor(23), minor(25), minor(0), minor(3)},
		{minor(3), minor(24), minor(26), minor(0), minor(5)},
		{minor(4), minor(25), minor(27), minor(0), minor(6)},
		{minor(5), minor(26), minor(28), minor(2), minor(7)},
		{minor(6), minor(24), minor(29), minor(3), minor(8)},
		{minor(7), minor(25), minor(30), minor(4), minor(9)},
		{minor(8), minor(26), minor(31), minor(5), minor(10)},
		{minor(9), minor(27), minor(32), minor(8), minor(11)},
		{minor(10), minor(28), minor(33), minor(8), minor(12)},
		{minor(11), minor(29), minor(34), minor(9), minor(13)},
		{minor(12), minor(30), minor(35), minor(10), minor(14)},
		{minor(13), minor(31), minor(36), minor(11), minor(15)},
		{minor(14), minor(32), minor(37), minor(12), minor(16)},
		{minor(15), minor(33), minor(38), minor(13), minor(17)},
	}
}

func find(talos version.Minor) (line, error) {
	for _, candidate := range matrix() {
		if candidate.talos == talos {
			return candidate, nil
		}
	}

	oldest, newest := TalosMinors()

	return line{}, fmt.Errorf("talos %s is %w, which knows %s to %s", talos, ErrUnknownMinor, oldest, newest)
}

// TalosMinors are the oldest and the newest release line of Talos in the
// matrix.
func TalosMinors() (oldest, newest version.Minor) {
	lines := matrix()

	return lines[0].talos, lines[len(lines)-1].talos
}

// KubernetesMinors are the oldest and the newest release line of Kubernetes
// that the Talos release line supports.
func KubernetesMinors(talos version.Minor) (oldest, newest version.Minor, err error) {
	found, err := find(talos)
	if err != nil {
		return version.Minor{}, version.Minor{}, err
	}

	return found.kubeMin, found.kubeMax, nil
}

// Supports is nil when the Talos version runs the Kubernetes version. The error
// wraps [ErrUnknownMinor] or [ErrUnsupported].
func Supports(talos, kubernetes version.Version) error {
	oldest, newest, err := KubernetesMinors(talos.Minor())
	if err != nil {
		return err
	}

	if kubernetes.Minor().Compare(oldest) < 0 || kubernetes.Minor().Compare(newest) > 0 {
		return fmt.Errorf("kubernetes %s is %w by Talos %s, which runs %s to %s", kubernetes, ErrUnsupported, talos, oldest, newest)
	}

	return nil
}

// Upgradeable is nil when the installer of the target accepts a host that runs
// from. It is the target's table that counts: its installer checks.
func Upgradeable(from, target version.Version) error {
	found, err := find(target.Minor())
	if err != nil {
		return err
	}

	host := from.Minor()
	if host.Compare(found.fromMin) < 0 {
		return fmt.Errorf("an upgrade to Talos %s from %s is %w: it starts from %s at the earliest", target, from, ErrUnsupported, found.fromMin)
	}

	if host.Compare(found.fromBelow) >= 0 {
		return fmt.Errorf("a change to Talos %s from %s is %w: the host is too new", target, from, ErrUnsupported)
	}

	return nil
}
