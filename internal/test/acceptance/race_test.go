// SPDX-License-Identifier: MPL-2.0

//go:build race

package acceptance

// speed is how many simulated seconds pass in a real second. With the race detector, and beside other tests, the
// machine may stall for longer.
const speed = 60
