// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// operatorWatch is what a run knows of the operator beside it. Its upgrades share it.
type operatorWatch struct {
	mu sync.Mutex
	// pausing tells that the operator may be kept from acting in the name of the run.
	pausing bool
	// blocking is what the last look found to be in the way.
	blocking []cluster.Finding
	// silent is when the object could not be read last; zero where it could.
	silent time.Time
	// unhold is how a person ends the hold.
	unhold string
}

// silentPatience is how long an object that could not be read is left alone: every
// upgrade would wait for it anew otherwise.
const silentPatience = 30 * time.Second

// recentlyUnreadable tells whether the object could not be read a moment ago.
func (b *operatorWatch) recentlyUnreadable(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return !b.silent.IsZero() && now.Sub(b.silent) < silentPatience
}

// fail takes note of a look that failed.
func (b *operatorWatch) fail(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.silent = now
}

// note takes note of a look.
func (b *operatorWatch) note(blocking []cluster.Finding, unhold string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.blocking, b.silent = slices.Clone(blocking), time.Time{}
	if unhold != "" {
		b.unhold = unhold
	}
}

// last is what the last look found.
func (b *operatorWatch) last() []cluster.Finding {
	b.mu.Lock()
	defer b.mu.Unlock()

	return slices.Clone(b.blocking)
}

func (b *operatorWatch) pause() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.pausing = true
}

func (b *operatorWatch) paused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.pausing
}

// endPauseByHand is how a person ends the hold; empty where that is not known.
func (b *operatorWatch) endPauseByHand() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.unhold
}
