// SPDX-License-Identifier: MPL-2.0

package version

import (
	"cmp"
	"fmt"
)

// Minor is a minor version such as 1.13.
type Minor struct {
	Major, Minor uint64
}

// String returns the minor version as in "1.13".
func (m Minor) String() string { return fmt.Sprintf("%d.%d", m.Major, m.Minor) }

// Compare returns a negative number, zero or a positive number if m is older than, equal to or newer than other.
func (m Minor) Compare(other Minor) int {
	if byMajor := cmp.Compare(m.Major, other.Major); byMajor != 0 {
		return byMajor
	}

	return cmp.Compare(m.Minor, other.Minor)
}

// Next returns the minor version after m within the same major version.
func (m Minor) Next() Minor { return Minor{Major: m.Major, Minor: m.Minor + 1} }
