// SPDX-License-Identifier: MPL-2.0

//go:build !race

package acceptance

// speed is how many simulated seconds pass in a real second.
const speed = 120
