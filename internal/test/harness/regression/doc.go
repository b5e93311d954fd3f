// SPDX-License-Identifier: MPL-2.0

// Package regression lists the bugs that simulated clusters, drawn stories, properties and reviews have found in this
// repository. The package has only tests. Each bug has a row: what it looked like, what was wrong, how to reproduce
// it, the last commit that had it, and the test that reproduces it. If the shared harness is enough to reproduce it,
// the row replays it itself. REGRESSIONS.md is the same table for people.
package regression
