// SPDX-License-Identifier: MPL-2.0

package engine

// DropGuards makes the engine disturb nodes without asking any guard. Tests
// plant a bug with it.
func (e *Engine) DropGuards() { e.guards = nil }
