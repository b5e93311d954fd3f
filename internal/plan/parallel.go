// SPDX-License-Identifier: MPL-2.0

package plan

// Parallel tells whether the step may have others of its kind beside it.
func (s Step) Parallel() bool { return s.parallel() }
