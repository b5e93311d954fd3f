// SPDX-License-Identifier: MPL-2.0

//go:build race

package wire_test

// raceEnabled tells that everything takes eight times as long.
const raceEnabled = true
