// SPDX-License-Identifier: MPL-2.0

//go:build race

package wording

// raceEnabled tells that some tests do not run, or do less.
const raceEnabled = true
