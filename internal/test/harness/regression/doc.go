// SPDX-License-Identifier: MPL-2.0

// Package regression remembers what simulated clusters, drawn stories, properties
// and reviews have found in this repository, and nothing that is not a test. Each
// finding has a row: what it looked like, what was wrong, how to get there, the
// last commit that had it, and the test that gets there again. Where that takes
// no more than the shared harness, the row replays it itself. REGRESSIONS.md is
// the same table for people.
package regression
