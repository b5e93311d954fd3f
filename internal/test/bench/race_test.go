// SPDX-License-Identifier: MPL-2.0

//go:build race

package bench_test

const raceEnabled = true
