// SPDX-License-Identifier: MPL-2.0

package cluster

import "time"

// Elapsed returns the time between two readings of the clock. On some systems the monotonic clock stands still while the
// machine sleeps, and the wall clock may be set back: the longer of the two times is returned.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
