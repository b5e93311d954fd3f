// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

func parseVersion(text string) (*semver.Version, error) {
	version, err := semver.StrictNewVersion(strings.TrimPrefix(text, "v"))
	if err != nil {
		return nil, fmt.Errorf("want MAJOR.MINOR.PATCH: %w", err)
	}

	return version, nil
}

// AtLeast tells whether a Talos version is of the given minor or a later one.
// Pre-releases count as their release. A version that cannot be read is of no
// minor at all.
func AtLeast(version string, major, minor uint64) bool {
	v, err := parseVersion(version)
	if err != nil {
		return false
	}

	return v.Major() > major || v.Major() == major && v.Minor() >= minor
}

// defaultKubernetes is the Kubernetes version a Talos version installs when
// the machine configuration names none.
func defaultKubernetes(talos string) string {
	v, err := parseVersion(talos)
	if err != nil {
		return ""
	}

	const offset = 23 // Talos 1.11 came with Kubernetes 1.34, and so on, one by one.

	return fmt.Sprintf("1.%d.0", v.Minor()+offset)
}

// hostRange is from which host versions an installer accepts to upgrade:
// from the first one up to, but without, the second.
type hostRange struct {
	from, below uint64
}

// hostRangeOf knows, by the minor of the installer, the minors of its hosts.
func hostRangeOf(minor uint64) (hostRange, bool) {
	accepted, known := map[uint64]hostRange{
		2: {0, 3}, 3: {0, 5}, 4: {0, 6}, 5: {2, 7}, 6: {3, 8}, 7: {4, 9}, 8: {5, 10}, 9: {8, 11},
		10: {8, 12}, 11: {9, 13}, 12: {10, 14}, 13: {11, 15}, 14: {12, 16}, 15: {13, 17},
	}[minor]

	return accepted, known
}

// released tells whether an installer of that version could exist at all.
func released(version *semver.Version) bool {
	_, known := hostRangeOf(version.Minor())

	return version.Major() == 1 && known
}

// checkHost is the installer's first step: may it replace what runs there?
func checkHost(installer, host *semver.Version) error {
	accepted, known := hostRangeOf(installer.Minor())

	switch {
	case !known || installer.Major() != 1:
		return fmt.Errorf("upgrades to version %s are not supported", installer)
	case host.Minor() < accepted.from:
		return fmt.Errorf("host version %s is too old to upgrade to Talos %s", host, installer)
	case host.Minor() >= accepted.below:
		return fmt.Errorf("host version %s is too new to downgrade to Talos %s", host, installer)
	default:
		return nil
	}
}
