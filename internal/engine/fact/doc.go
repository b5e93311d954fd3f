// SPDX-License-Identifier: MPL-2.0

// Package fact is what the engine knows of a cluster: who belongs to it, and what was answered to
// which question, when.
package fact
