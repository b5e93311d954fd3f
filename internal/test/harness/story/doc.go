// SPDX-License-Identifier: MPL-2.0

// Package story draws what may happen around an upgrade, and lets it happen: a
// state machine over runs of the engine that are killed, cut off, cancelled and
// started anew, faults that come and go, and others who work on the same cluster
// at the same time. All of it is in its tests.
package story
