// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// Option changes how the provider works, for tests.
type Option func(*settings)

// settings are what all provider instances of one process share.
type settings struct {
	version string
	clock   engine.Clock
	// patience is how long a first apply waits for a cluster that does not answer.
	patience time.Duration
	dial     dialFunc
	// registry knows whether images exist; nil asks nobody.
	registry cluster.Registry
}

// userAgent names the provider to the APIs it calls.
func (s *settings) userAgent() string { return "terraform-provider-talosupgrade/" + s.version }

// WithClock makes the engine take the time from the clock, so that a simulated
// cluster may run faster than the world.
func WithClock(clock engine.Clock) Option {
	return func(s *settings) { s.clock = clock }
}
