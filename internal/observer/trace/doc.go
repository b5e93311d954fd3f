// SPDX-License-Identifier: MPL-2.0

// Package trace tells a run as OpenTelemetry spans: an observer of the engine.
// The run is the root, each upgrade of a node or of a component a child of it, and
// each step of an upgrade a child of that; what is waited for and warned of are events
// of the span in which that happens.
//
// The variables OTEL_* of the environment decide whether there is a trace, and
// where it goes. Whatever becomes of it, the run does not notice.
package trace
