// SPDX-License-Identifier: MPL-2.0

// Package compat knows which versions of Talos and Kubernetes go together, which version of Talos may replace
// which, and which releases exist.
package compat

import (
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	// ErrUnknownMinor is wrapped if a minor version is not in the matrix.
	ErrUnknownMinor = errors.New("not in the support matrix")
	// ErrNewer is wrapped, with [ErrUnknownMinor], if the minor version is not in the matrix because it is newer
	// than all of its rows.
	ErrNewer = fmt.Errorf("too new and %w", ErrUnknownMinor)
	// ErrUnsupported is wrapped if the matrix rules the combination out.
	ErrUnsupported = errors.New("not supported")
)

// Row is one minor version of Talos.
type Row struct {
	Talos version.Minor
	// KubernetesMin and KubernetesMax are the oldest and the newest minor version of Kubernetes that it supports.
	KubernetesMin, KubernetesMax version.Minor
	// FromMin and FromMax are the oldest and the newest minor version of Talos that its installer replaces; from
	// a newer one than its own, that is a downgrade.
	FromMin, FromMax version.Minor
}

func minor(n uint64) version.Minor { return version.Minor{Major: 1, Minor: n} }

// rows is how many minor versions the matrix has.
const rows = 8

// matrix returns the table of machinery's packages compatibility/talos1XX, from the oldest supported minor version
// to the newest that machinery knows, released or not. It is ordered and has no gaps, and KubernetesMax never
// decreases.
func matrix() [rows]Row {
	return [rows]Row{
		{minor(8), minor(26), minor(31), minor(5), minor(9)},
		{minor(9), minor(27), minor(32), minor(8), minor(10)},
		{minor(10), minor(28), minor(33), minor(8), minor(11)},
		{minor(11), minor(29), minor(34), minor(9), minor(12)},
		{minor(12), minor(30), minor(35), minor(10), minor(13)},
		{minor(13), minor(31), minor(36), minor(11), minor(14)},
		{minor(14), minor(32), minor(37), minor(12), minor(15)},
		{minor(15), minor(33), minor(38), minor(13), minor(16)},
	}
}

// Rows returns all minor versions of Talos in the matrix, oldest first.
func Rows() []Row {
	table := matrix()

	return table[:]
}

// Find returns the row of a minor version of Talos. The error wraps [ErrUnknownMinor], and [ErrNewer] if it is
// too new.
func Find(talos version.Minor) (Row, error) {
	table := matrix()

	oldest, newest := table[0].Talos, table[rows-1].Talos
	if talos.Compare(oldest) < 0 || talos.Compare(newest) > 0 {
		return Row{}, fmt.Errorf("talos %s is %w, which knows %s to %s", talos, unknown(talos, newest), oldest, newest)
	}

	return table[talos.Minor-oldest.Minor], nil
}

// unknown returns the reason why a minor version is not in the matrix.
func unknown(asked, newest version.Minor) error {
	if asked.Compare(newest) > 0 {
		return ErrNewer
	}

	return ErrUnknownMinor
}

// TalosMinors returns the oldest and the newest minor version of Talos in the matrix.
func TalosMinors() (oldest, newest version.Minor) {
	table := matrix()

	return table[0].Talos, table[rows-1].Talos
}

// KubernetesRange returns the oldest and the newest minor version of Kubernetes in the matrix.
func KubernetesRange() (oldest, newest version.Minor) {
	table := matrix()

	return table[0].KubernetesMin, table[rows-1].KubernetesMax
}

// KubernetesMinors returns the oldest and the newest minor version of Kubernetes that the Talos minor version
// supports.
func KubernetesMinors(talos version.Minor) (oldest, newest version.Minor, err error) {
	found, err := Find(talos)
	if err != nil {
		return version.Minor{}, version.Minor{}, err
	}

	return found.KubernetesMin, found.KubernetesMax, nil
}

// TalosMinorsFor returns the minor versions of Talos that support the minor version of Kubernetes, oldest first.
// They need not be consecutive. The error wraps [ErrUnknownMinor], and [ErrNewer] if it is too new.
func TalosMinorsFor(kubernetes version.Minor) ([]version.Minor, error) {
	oldest, newest := KubernetesRange()
	if kubernetes.Compare(oldest) < 0 || kubernetes.Compare(newest) > 0 {
		return nil, fmt.Errorf("kubernetes %s is %w, which knows %s to %s", kubernetes, unknown(kubernetes, newest), oldest, newest)
	}

	var found []version.Minor

	for _, row := range matrix() {
		if row.runs(kubernetes) {
			found = append(found, row.Talos)
		}
	}

	return found, nil
}

func (r Row) runs(kubernetes version.Minor) bool {
	return kubernetes.Compare(r.KubernetesMin) >= 0 && kubernetes.Compare(r.KubernetesMax) <= 0
}

// Supports returns nil if the Talos version supports the Kubernetes version. The error wraps [ErrUnknownMinor] or
// [ErrUnsupported]. It wraps [ErrNewer] as well if one of the two is newer than the matrix and nothing older
// rules the combination out: what the newest minor version will support is not settled before its release.
func Supports(talos, kubernetes version.Version) error {
	row, err := Find(talos.Minor())
	if err != nil {
		return err
	}

	if row.runs(kubernetes.Minor()) {
		return nil
	}

	if _, newest := TalosMinors(); row.Talos == newest && kubernetes.Minor().Compare(row.KubernetesMax) > 0 {
		_, err := TalosMinorsFor(kubernetes.Minor())

		return err
	}

	return fmt.Errorf("kubernetes %s is %w by Talos %s, which runs %s to %s", kubernetes, ErrUnsupported, talos, row.KubernetesMin, row.KubernetesMax)
}

// Upgradeable returns nil if the installer of the target accepts a host that runs from; a pre-release of a host
// counts as its release. The row of the target decides, because its installer makes the check.
func Upgradeable(from, target version.Version) error {
	row, err := Find(target.Minor())
	if err != nil {
		return err
	}

	host := from.Minor()
	if host.Compare(row.FromMin) < 0 {
		return fmt.Errorf("an upgrade to Talos %s from %s is %w: it starts from %s at the earliest", target, from, ErrUnsupported, row.FromMin)
	}

	if host.Compare(row.FromMax) > 0 {
		return fmt.Errorf("a change to Talos %s from %s is %w: the host is too new", target, from, ErrUnsupported)
	}

	return nil
}
