// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// live runs one story in a bubble of its own. It returns what went wrong, and what rapid threw, which rapid has to
// get outside of the bubble.
func live(t *testing.T, told *rapid.T, count *tally, bug plant) (found wrong, thrown any) {
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			thrown = recover()

			if caught, is := thrown.(wrong); is {
				found, thrown = caught, nil
			}
		}()

		given := drawScene(told)
		s := newStage(t, given, count)
		s.bug = bug

		defer s.close()

		if rapid.IntRange(0, 3).Draw(told, "at once") > 0 {
			s.apply(told)
		}

		told.Repeat(s.actions())
		s.end()
		count.story(s.World().Now())
	})

	return found, thrown
}

// actions returns what can happen at any time. What is in it more than once happens more often.
func (s *stage) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"apply":         s.apply,
		"apply again":   s.apply,
		"time passes":   s.goOn,
		"kill":          s.kill,
		"cancel":        s.interrupt,
		"cut off":       s.partition,
		"fault":         s.strikeNode,
		"another fault": s.strikeNode,
		"lift":          s.lift,
		"talosctl":      s.talosctl,
		"kubectl":       s.kubectl,
		"lease":         s.takeLease,
		"journal":       s.editJournal,
		"gitops":        s.gitOps,
		"autoscaler":    s.autoscale,
		"":              func(*rapid.T) { s.watch() },
	}
}

// teller is the test as rapid sees it. It drops the line that says that all is well.
type teller struct{ *testing.T }

func (l teller) Logf(format string, args ...any) {
	l.Helper()

	if !strings.HasPrefix(format, "[rapid] OK") {
		l.T.Logf(format, args...)
	}
}

// whole is a lane with the name of the test that it belongs to.
type whole struct{ *testing.T }

func (w whole) Name() string { return strings.Split(w.T.Name(), "/")[0] }

// set sets a flag of rapid.
func set(t testing.TB, name, value string) {
	t.Helper()

	if err := flag.Set("rapid."+name, value); err != nil {
		t.Fatal(err)
	}
}

// drawOnce makes rapid draw one story for each seed. In short mode, it divides checks by five and steps by two.
func drawOnce(t testing.TB) {
	t.Helper()

	set(t, "checks", map[bool]string{false: "1", true: "5"}[testing.Short()])
	set(t, "steps", "12")
	set(t, "nofailfile", "true")
}

// lane draws one story after the other.
type lane struct {
	// flags is held from when a seed is set until rapid has read it.
	flags *sync.Mutex
	count *tally
}

// story draws the story of a seed.
func (l lane) story(t *testing.T, seed uint64) {
	t.Helper()

	defer func() {
		if t.Failed() {
			harness.Repeat(whole{t}, "story", seed, "one")
		}
	}()

	l.flags.Lock()

	free := sync.OnceFunc(l.flags.Unlock)
	defer free()

	// The seed 0 would mean a random one.
	set(t, "seed", strconv.FormatUint(max(seed, 1), 10))

	first := ""

	rapid.Check(teller{t}, func(told *rapid.T) {
		free()

		found, thrown := live(t, told, l.count, nil)
		if thrown != nil {
			panic(thrown)
		}

		if first == "" {
			first = found.kind
		}

		// Another failure must not pass for a smaller form of the first one.
		if found.kind != "" && found.kind == first {
			told.Fatal(found.text)
		}
	})
}

// share divides the time of a soak: the stories get a quarter of it.
const share = 4

// TestStories_EndAtTheTarget draws stories and ends each of them with an apply that has to bring the cluster to its
// target.
func TestStories_EndAtTheTarget(t *testing.T) {
	stories, limit := 200, time.Duration(0)
	seed := harness.Seed()

	if testing.Short() || raceEnabled {
		stories = 20
	}

	if budget, on := harness.Soak(); on {
		stories, limit = 1<<30, budget/share
	}

	if harness.Only() != "" {
		stories = 1
	}

	drawOnce(t)

	count := newTally()
	flags := &sync.Mutex{}

	t.Run("lanes", func(t *testing.T) {
		for number := range harness.Lanes() {
			t.Run(fmt.Sprint(number), func(t *testing.T) {
				t.Parallel()

				for index := number; index < stories; index += harness.Lanes() {
					if limit > 0 && time.Since(count.begun) > limit {
						return
					}

					if limit > 0 && count.due() {
						t.Logf("so far %s; seed %d", count, seed)
					}

					lane{flags, count}.story(t, seed+uint64(index))
				}
			})
		}
	})

	t.Logf("%s; seed %d", count, seed)
}

// TestStories_OfSoaksStayGood draws the stories that were judged wrongly in a soak.
func TestStories_OfSoaksStayGood(t *testing.T) {
	drawOnce(t)

	one := lane{flags: &sync.Mutex{}, count: newTally()}

	for _, seed := range []uint64{3058611140, 3058617079} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { one.story(t, seed) })
	}
}

// tally counts what the stories of a test had in them.
type tally struct {
	mu      sync.Mutex
	begun   time.Time
	stories int
	virtual time.Duration
	longest float64
	kinds   map[string]int
	// said is when the counts were last logged.
	said time.Time
}

func newTally() *tally { return &tally{begun: time.Now(), said: time.Now(), kinds: map[string]int{}} }

// due reports, once a minute, whether it is time to log the progress of the test.
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

// story counts a story that has ended, and how long it lasted on the clock of its world.
func (c *tally) story(lasted time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.stories++
	c.virtual += lasted
}

// last keeps the largest share of its time that the last apply of a story took.
func (c *tally) last(share float64) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.longest = max(c.longest, share)
}

// String returns the counts on one line.
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
