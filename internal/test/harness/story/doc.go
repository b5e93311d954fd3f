// SPDX-License-Identifier: MPL-2.0

// Package story draws what may happen around an upgrade, and makes it happen. A story is a state machine over runs of
// the engine that are killed, cut off, cancelled and started again, faults that come and go, and others who work on
// the same cluster at the same time. The package has only tests.
package story
