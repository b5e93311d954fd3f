// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"os"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
)

// Option changes how the provider works, for tests.
type Option func(*Settings)

// Settings are what all provider instances of one process share.
type Settings struct {
	Version string
	Clock   engine.Clock
	// Patience is how long a first apply waits for a cluster that does not answer.
	Patience time.Duration
	Dial     DialFunc
	// Registry checks whether images exist; nil checks nothing.
	Registry cluster.Registry
	// BootID is the boot ID of the kernel under this process; empty if unknown.
	BootID string
}

// NewSettings returns the settings of a provider of the version.
func NewSettings(version string, options ...Option) *Settings {
	made := &Settings{Version: version, Clock: engine.RealClock(), Patience: bootstrapPatience, Dial: Dial, BootID: readBootID(bootIDPath)}
	made.Registry = release.NewRegistry(release.Options{UserAgent: made.UserAgent()})

	for _, option := range options {
		option(made)
	}

	return made
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

// UserAgent returns the name of the provider for the APIs it calls.
func (s *Settings) UserAgent() string { return "terraform-provider-talosupgrade/" + s.Version }

// WithClock makes the engine use the clock, so that a simulated cluster can run faster than real time.
func WithClock(clock engine.Clock) Option {
	return func(s *Settings) { s.Clock = clock }
}
