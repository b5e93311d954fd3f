// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// inFlight is how long after its start a request is struck that takes time.
const inFlight = 317 * time.Millisecond

// blow is one case of a sweep: a run of a scenario that is struck.
type blow struct {
	scenario scenario
	variant  variant
	point    point
}

// String returns the name by which the environment selects a case.
func (b blow) String() string { return fmt.Sprintf("%s %s %s", b.scenario.name, b.variant, b.point) }

// undisturbed runs a scenario and returns every possible blow, and how many requests the run made.
func undisturbed(t *testing.T, tested scenario) (blows []blow, requests int) {
	t.Helper()

	inBubble(t, tested.name+" undisturbed", tested.given, func(r *rig) {
		p := r.start("run-1")
		r.must(p, tested.request)
		r.Sound()

		changes, reads := r.tap.points(p.name)
		requests = len(changes) + reads

		for _, at := range changes {
			for _, way := range variants(r.tap.lasts(at)) {
				blows = append(blows, blow{tested, way, at})
			}
		}
	})

	return blows, requests
}

// strike runs a case. It returns what was wrong, and whether the request came that was to be struck.
func (b blow) strike(t *testing.T) (wrong []string, came bool) {
	wrong = noted(t, b.scenario.given, func(r *rig) {
		p := r.start("run-1")
		wait, err := r.crashing(p, b.scenario.request, aim{point: b.point, variant: b.variant, within: inFlight})
		came = r.tap.hit()

		switch {
		case b.variant == repliedAndDead && err == nil && r.tap.last(p.name) == b.point:
			// The run ends with its last reply: nothing is left to kill.
		case b.variant.deadly() && came && !errors.Is(err, harness.ErrKilled):
			r.T.Errorf("the run ended with %v before it was killed", err)
		case !b.variant.deadly() && err != nil:
			r.T.Errorf("the run did not get over it: %v\n%s", err, r.Judge.Text())
		}

		r.Sound()

		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()

		next := r.start("run-2")
		if err := next.apply(ctx, b.scenario.request); err != nil {
			r.T.Errorf("the next run failed: %v\n%s", err, r.Judge.Text())
		}

		wait()
		r.converged(b.scenario.request)
	})

	return wrong, came
}

// spread orders cases so that any prefix of them has as many kinds of requests and ways to strike as possible. The
// seed decides which case of each kind comes first.
func spread(blows []blow, seed uint64) []blow {
	random := rand.New(rand.NewPCG(seed, 31)) //nolint:gosec // samples, not secrets
	kinds := map[string][]blow{}

	var names []string

	random.Shuffle(len(blows), func(i, j int) { blows[i], blows[j] = blows[j], blows[i] })

	for _, one := range blows {
		kind := string(one.variant) + " " + one.point.Method
		if kinds[kind] == nil {
			names = append(names, kind)
		}

		kinds[kind] = append(kinds[kind], one)
	}

	ordered := make([]blow, 0, len(blows))

	for len(ordered) < len(blows) {
		for _, name := range names {
			if len(kinds[name]) > 0 {
				ordered = append(ordered, kinds[name][0])
				kinds[name] = kinds[name][1:]
			}
		}
	}

	return ordered
}

// tally hands out the cases of a sweep and counts their results.
type tally struct {
	blows []blow
	seed  uint64
	until time.Time

	mu                           sync.Mutex
	next, runs, missed, failures int
}

// take returns the next case; false if there is none, or no time for it.
func (t *tally) take() (next blow, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.next >= len(t.blows) || time.Now().After(t.until) {
		return blow{}, false
	}

	t.next++

	return t.blows[t.next-1], true
}

func (t *tally) add(came bool, wrong []string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.runs++

	if !came {
		t.missed++
	}

	if len(wrong) > 0 {
		t.failures++
	}
}

// few reports whether there is no time for more than one of a kind.
func few() bool { return raceEnabled || testing.Short() }

// sampled returns how many cases of the scenario with that number are struck by default: fewer if a run takes longer.
func sampled(number int) int {
	if few() {
		return 1
	}

	return 3 - number
}

// The shares of a soak's time that have passed once all cases of the sweep, and once all of these tests are done.
const (
	shareOfSweep = 0.3
	shareOfAll   = 0.4
)

// TestCrash_AnywhereThenApplyAgainConverges strikes requests that change something, each in one of the possible ways,
// and applies once more: a sample by seed, or all in a soak. The rest of the time of a soak is for stories.
func TestCrash_AnywhereThenApplyAgainConverges(t *testing.T) {
	budget, soaking := harness.Soak()
	began, seed, only := time.Now(), harness.Seed(), harness.Only()
	end := func(share float64) time.Time { return began.Add(time.Duration(share * float64(budget))) }

	for number, tested := range scenarios() {
		t.Run(tested.name, func(t *testing.T) {
			switch {
			case only != "" && !strings.HasPrefix(only, tested.name+" "):
				t.Skip("another case was asked for")
			case only == "" && !soaking && few() && number != int(seed%uint64(len(scenarios()))):
				t.Skip("there is time for one, which the seed decides")
			}

			started := time.Now()
			blows, requests := undisturbed(t, tested)
			points := map[point]bool{}

			for _, one := range blows {
				points[one.point] = true
			}

			sum := &tally{blows: spread(blows, seed), seed: seed, until: end(shareOfSweep * float64(number+1) / float64(len(scenarios())))}

			switch {
			case only != "":
				sum.blows = slices.DeleteFunc(sum.blows, func(one blow) bool { return one.String() != only })
				sum.until = began.Add(time.Hour)

				if len(sum.blows) == 0 {
					t.Fatalf("there is no case %q", only)
				}
			case !soaking:
				sum.blows, sum.until = sum.blows[:min(len(blows), sampled(number))], began.Add(time.Hour)
			}

			sum.sweep(t)
			t.Logf("%s: %d requests, %d of them change something, %d variants; seed %d: %d cases struck, %d not, %d left out, %d failed, %d applies in %s",
				tested.name, requests, len(points), len(blows), seed, sum.runs-sum.missed, sum.missed, len(blows)-sum.runs, sum.failures, 3*sum.runs,
				time.Since(started).Round(time.Millisecond))

			if most := sum.runs / 10; sum.missed > most {
				t.Errorf("%d requests did not come a second time, want at most %d", sum.missed, most)
			}
		})
	}

	t.Run("stories", func(t *testing.T) {
		most := usualStories()

		switch {
		case only == onlyOne:
			most = 1
		case only != "":
			t.Skip("another case was asked for")
		case soaking:
			most = 0
		}

		tellStories(t, seed, most, end(shareOfAll))
	})
}

// sweep strikes its cases, in all lanes.
func (t *tally) sweep(test *testing.T) {
	var lanes sync.WaitGroup

	for range harness.Lanes() {
		lanes.Go(func() {
			for one, more := t.take(); more; one, more = t.take() {
				wrong, came := one.strike(test)
				t.add(came, wrong)

				if len(wrong) > 0 {
					test.Errorf("%s: %s", one, strings.Join(wrong, "\n"))
					harness.Repeat(test, "wire", t.seed, one.String())
				}
			}
		})
	}

	lanes.Wait()
}
