// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts what the stories of a test were made of.
type tally struct {
	mu      sync.Mutex
	begun   time.Time
	stories int
	virtual time.Duration
	longest float64
	kinds   map[string]int
	// said is when the counts were last told.
	said time.Time
}

func newTally() *tally { return &tally{begun: time.Now(), said: time.Now(), kinds: map[string]int{}} }

// due tells, once a minute, that it is time to say how far the test is.
func (c *tally) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if time.Since(c.said) < time.Minute {
		return false
	}

	c.said = time.Now()

	return true
}

func (c *tally) count(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.kinds[kind]++
}

// story counts one that ended, after so long on the clock of its world.
func (c *tally) story(lasted time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.stories++
	c.virtual += lasted
}

// last keeps which share of its time the last apply of a story took at most.
func (c *tally) last(share float64) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.longest = max(c.longest, share)
}

// String is the line of counts.
func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, c.kinds[kind]))
	}

	return fmt.Sprintf("stories %d, %s of virtual time, last apply took %.0f %% of its time at most, real time %s; %s",
		c.stories, c.virtual.Round(time.Minute), 100*c.longest, time.Since(c.begun).Round(time.Second), strings.Join(kinds, ", "))
}

func (s *stage) touchTally(kind string) { s.tally.count(kind) }
