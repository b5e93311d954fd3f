// SPDX-License-Identifier: MPL-2.0

// Package fact holds what the engine knows about a cluster: which nodes belong to it, and the dated answers to
// what was asked.
package fact
