// SPDX-License-Identifier: MPL-2.0

// Package report draws a run as one HTML file: what was planned, what every node
// did and for how long, what it ran before and runs now and, where the run stopped,
// what was seen and what to do. It observes the engine and never holds it up.
//
// The file needs nothing but itself, not even scripts, and forbids the browser to
// load anything. It holds what the errors, the warnings and the plan of the provider
// hold, and therefore no secrets.
package report

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

var _ cluster.Observer = (*Report)(nil)
