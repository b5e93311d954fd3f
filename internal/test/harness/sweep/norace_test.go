// SPDX-License-Identifier: MPL-2.0

//go:build !race

package sweep_test

// raceEnabled is true in builds with the race detector, in which everything takes eight times as long.
const raceEnabled = false
