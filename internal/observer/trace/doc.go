// SPDX-License-Identifier: MPL-2.0

// Package trace records a run as OpenTelemetry spans. It observes the engine. The run is the root span, each
// upgrade of a node or of a component is a child of it, and each step of an upgrade is a child of the upgrade.
// Waits and warnings are events of the span in which they occur.
//
// The environment variables OTEL_* decide whether there is a trace and where it is sent. A trace that fails does
// not affect the run.
package trace
