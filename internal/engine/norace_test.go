// SPDX-License-Identifier: MPL-2.0

//go:build !race

package engine_test

// raceEnabled is true under the race detector, with which everything takes eight times as long.
const raceEnabled = false

// stride is from one case of a kind to the next that is tried.
const stride = 1
