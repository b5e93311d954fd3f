// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Walk is how a way through several release lines is chosen.
type Walk struct {
	// Intermediate are versions to walk through, of Talos and of Kubernetes,
	// instead of the newest known patch of their release lines. Those that lie
	// on no way have no effect.
	Intermediate []version.Version
	// AllowUnknown accepts versions that are newer than the support matrix.
	AllowUnknown bool
}

// supports tells whether the pair may run; what is not known is not judged.
func (w Walk) supports(talos, kubernetes version.Version) bool {
	if talos.IsZero() || kubernetes.IsZero() {
		return true
	}

	return w.tolerates(compat.Supports(talos, kubernetes))
}

// tolerates tells whether an answer of the matrix stands in the way.
func (w Walk) tolerates(err error) bool {
	return err == nil || (w.AllowUnknown && errors.Is(err, compat.ErrNewer))
}

// legs are the versions of one half on its way, from the first to the last,
// one for each release line. Without a last version the half stays.
func (w Walk) legs(axis Axis, from, to version.Version) ([]version.Version, error) {
	switch order := from.Compare(to); {
	case to.IsZero(), order == 0:
		return []version.Version{from}, nil
	case from.IsZero():
		return nil, &PathError{
			Axis: axis, Err: ErrNoStart, Reason: fmt.Sprintf("which %s runs now %v, so no way to %s can be found", axis.name(), ErrNoStart, to),
			Remedy: fmt.Sprintf("Say which version of %s to start from.", axis.name()),
		}
	case order > 0:
		older := "older than"
		if to.Core().Equal(from.Core()) {
			older = "a pre-release that comes before"
		}

		return nil, &PathError{
			Axis: axis, Err: ErrDowngrade, Reason: fmt.Sprintf("%s %s is %s %s, which runs, and %v", axis.name(), to, older, from, ErrDowngrade),
			Remedy: fmt.Sprintf("Ask for %s %s or newer.", axis.name(), from),
		}
	case from.Minor().Major != to.Minor().Major:
		return nil, &PathError{
			Axis: axis, Err: ErrNoWay,
			Reason: fmt.Sprintf("%s %s is of another major version than %s, which runs, and %v leads there", axis.name(), to, from, ErrNoWay),
			Remedy: fmt.Sprintf("Choose a version of %s %d, or use a newer release of this provider.", axis.name(), from.Minor().Major),
		}
	}

	if err := w.knows(axis, to); err != nil {
		return nil, err
	}

	legs := []version.Version{from}

	// However far the target is, there is an end to what is known and named.
	var missing []version.Minor

	for minor := from.Minor().Next(); minor.Compare(to.Minor()) < 0 && len(missing) <= namesMost; minor = minor.Next() {
		if through, found := w.through(axis, minor); found {
			legs = append(legs, through)
		} else {
			missing = append(missing, minor)
		}
	}

	if len(missing) > 0 {
		return nil, refuseMissing(axis, from, to, missing)
	}

	return append(legs, to), nil
}

// refuseMissing names the release lines on the way that have no known release.
func refuseMissing(axis Axis, from, to version.Version, missing []version.Minor) *PathError {
	refused := &PathError{Axis: axis, Err: ErrNoRelease}

	lines := "release line " + missing[0].String()
	refused.Remedy = fmt.Sprintf("Name the release of %s %s to walk through in intermediate_versions.", axis.name(), missing[0])

	if len(missing) > 1 {
		names := make([]string, 0, namesMost)
		for _, minor := range missing[:min(len(missing), namesMost)] {
			names = append(names, minor.String())
		}

		lines = "release lines " + strings.Join(names, ", ")
		refused.Remedy = fmt.Sprintf("Name a release of each of them (of %s) in intermediate_versions, or choose a version nearer to what runs.", axis.name())
	}

	if len(missing) > namesMost {
		lines += " and more"
	}

	refused.Reason = fmt.Sprintf("the way from %s %s to %s leads through the %s, of which %v", axis.name(), from, to, lines, ErrNoRelease)

	return refused
}

// knows refuses a version that is newer than the matrix, unless that is
// allowed, and a release line that is older than it.
func (w Walk) knows(axis Axis, to version.Version) error {
	var err error
	if axis == Talos {
		_, err = compat.Find(to.Minor())
	} else {
		_, err = compat.TalosMinorsFor(to.Minor())
	}

	if w.tolerates(err) {
		return nil
	}

	refused := &PathError{Axis: axis, Err: err, Reason: err.Error(), Remedy: "Choose a version that the support matrix knows."}
	if errors.Is(err, compat.ErrNewer) {
		refused.Remedy = "Choose a version that the support matrix knows, use a newer release of this provider, or set allow_unknown_versions = true."
	}

	return refused
}

// through is the version in which a release line is crossed.
func (w Walk) through(axis Axis, minor version.Minor) (version.Version, bool) {
	// The release lines of Talos and of Kubernetes are too far apart for one
	// number to mean both.
	for _, named := range w.Intermediate {
		if !named.IsZero() && named.Minor() == minor {
			return named, true
		}
	}

	if axis == Talos {
		return compat.NewestTalos(minor)
	}

	return compat.NewestKubernetes(minor)
}
