// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"os"
	"strings"
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
	// bootID is that of the kernel below this process; empty where it is not known.
	bootID string
}

// bootIDPath is where Linux tells it, to every container of a machine the same.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// readBootID is the boot ID in the file; empty where there is none, as on other systems.
func readBootID(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}

	return strings.TrimSpace(string(content))
}

// userAgent names the provider to the APIs it calls.
func (s *settings) userAgent() string { return "terraform-provider-talosupgrade/" + s.version }

// WithClock makes the engine take the time from the clock, so that a simulated
// cluster may run faster than the world.
func WithClock(clock engine.Clock) Option {
	return func(s *settings) { s.clock = clock }
}
