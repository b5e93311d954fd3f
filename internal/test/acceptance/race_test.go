// SPDX-License-Identifier: MPL-2.0

//go:build race

package acceptance

// speed is how many simulated seconds pass in a real one. Under the race
// detector, beside other tests, a hiccup of the computer is longer.
const speed = 60
