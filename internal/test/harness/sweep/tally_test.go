// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// tally counts what a sweep does. It is safe for concurrent use.
type tally struct {
	begun time.Time

	mu sync.Mutex
	// cases are the runs that were struck, or that were not on purpose, missed
	// those in which the call to strike at did not come.
	cases, missed, reads, mutations int
	// pairs and units are the faults that were crossed with, and where.
	pairs map[string]bool
	units map[string]bool
	// left is what there was no time for.
	left  int
	seeds map[uint64]bool
	wrong int
	said  time.Time
}

// finding is a case in which something was wrong.
type finding struct {
	seed  uint64
	name  string
	wrong []string
}

func newTally() *tally {
	return &tally{begun: time.Now(), said: time.Now(), pairs: map[string]bool{}, units: map[string]bool{}, seeds: map[uint64]bool{}}
}

// add counts a case, and fails the test where something was wrong.
func (c *tally) add(t *testing.T, name string, u unit, blow strike, done account) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()

	c.cases++
	c.seeds[u.options.Seed] = true

	if blow.crash != "" && !done.came {
		c.missed++
	}

	if len(done.wrong) > 0 {
		c.wrong++
		c.tell(t, finding{u.options.Seed, name, done.wrong}, c.wrong)
	}
}

// calls counts the calls of a run without faults.
func (c *tally) calls(points []point) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, at := range points {
		if at.mutates {
			c.mutations++
		} else {
			c.reads++
		}
	}
}

// skip counts what there was no time for.
func (c *tally) skip(jobs int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.left += max(0, jobs)
}

// fault counts a unit with a fault that did something.
func (c *tally) fault(u unit) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.units[u.String()] = true
	c.pairs[u.pair()] = true
}

// String is the line that a sweep ends with.
func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	verdict := "violations none"
	if c.wrong > 0 {
		verdict = fmt.Sprintf("WRONG %d", c.wrong)
	}

	if c.left > 0 {
		verdict += fmt.Sprintf("; time over with %d cases or units left", c.left)
	}

	seeds := make([]string, 0, len(c.seeds))
	for _, seed := range slices.Sorted(maps.Keys(c.seeds)) {
		seeds = append(seeds, fmt.Sprint(seed))
	}

	const most = 5
	if more := len(seeds) - most; more > 0 {
		seeds = append(seeds[:most], fmt.Sprintf("and %d more", more))
	}

	return fmt.Sprintf("calls %d (reads %d, mutations %d), variants %d, faults %d in %d units, runs %d (%d ended before the call), seeds %s, real time %s; %s",
		c.reads+c.mutations, c.reads, c.mutations, len(harness.Crashes())+1, len(c.pairs), len(c.units), c.cases, c.missed,
		strings.Join(seeds, " "), time.Since(c.begun).Round(time.Second), verdict)
}

// progress says every minute how far a long sweep is.
func (c *tally) progress(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	due := time.Since(c.said) >= time.Minute

	if due {
		c.said = time.Now()
	}
	c.mu.Unlock()

	if due {
		t.Logf("so far: %s", c)
	}
}

// tell fails the test for a case: the first ones with the whole story, further
// ones in a line, and then no more.
func (c *tally) tell(t *testing.T, found finding, number int) {
	t.Helper()

	const whole, most = 4, 200

	switch text := strings.Join(found.wrong, "\n"); {
	case number <= whole:
		t.Errorf("%s:\n%s", found.name, text)
		harness.Repeat(t, "sweep", found.seed, found.name)
	case number <= most:
		first, _, _ := strings.Cut(text, "\n")
		t.Errorf("%s: %s", found.name, first)
	default:
		t.Fail()
	}
}
