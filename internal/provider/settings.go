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
	// registry checks whether images exist; nil checks nothing.
	registry cluster.Registry
	// bootID is the boot ID of the kernel under this process; empty if unknown.
	bootID string
}

// bootIDPath is the file with the boot ID on Linux. It is the same in every container of a machine.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// readBootID returns the boot ID in the file; empty if it cannot be read, as on other systems.
func readBootID(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}

	return strings.TrimSpace(string(content))
}

// userAgent returns the name of the provider for the APIs it calls.
func (s *settings) userAgent() string { return "terraform-provider-talosupgrade/" + s.version }

// WithClock makes the engine use the clock, so that a simulated cluster can run faster than real time.
func WithClock(clock engine.Clock) Option {
	return func(s *settings) { s.clock = clock }
}
